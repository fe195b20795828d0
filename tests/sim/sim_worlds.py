"""Small scenarios and policies for the simulator's tests, fixed and drawn."""

import dataclasses

from hypothesis import strategies as st

from geosim.cost import Calibration, build
from geosim.policy import SyncPolicy, policy_from_dict
from geosim.scenario import Accelerator, Fabric, Hop, Model, Scenario, Site, WanLink, Workload

MODEL = Model(name="tiny", layers=4, d_model=64, heads=4, ffn=256, vocabulary=256, tied=True)
DEVICE = Accelerator(
    name="test",
    fp32_flops=1e11,
    memory_bytes=4e9,
    memory_bandwidth_bytes_per_s=1e10,
    source="made up",
)


def world(
    sites: int = 2,
    *,
    rate: float = 12.5e6,
    rtt: float = 0.04,
    step: float = 0.1,
    jitter: float = 0.0,
    ranks: int = 2,
    **link: object,
) -> Scenario:
    """Sites alike in a full mesh of links alike."""
    names = [f"s{m}" for m in range(sites)]
    fabric = Fabric(intra_node=Hop(bandwidth_bytes_per_s=2e9, latency_s=5e-5))
    return Scenario(
        name="test",
        sites=tuple(
            Site(name=n, accelerator=DEVICE, accelerators_per_node=ranks, fabric=fabric) for n in names
        ),
        wan=tuple(
            WanLink(between=(a, b), bandwidth_bytes_per_s=rate, rtt_s=rtt, **link)  # type: ignore[arg-type]
            for i, a in enumerate(names)
            for b in names[i + 1 :]
        ),
        workload=Workload(model=MODEL, precision="fp32", step_time_s=step, step_jitter=jitter),
    )


def policy(**fields: object) -> SyncPolicy:
    """A policy from plain fields."""
    return policy_from_dict({"name": "test", **fields})


TOPK = {"select": {"kind": "topk", "ratio": 0.01}, "quantize": "int8", "residual": "feedback"}
CODECS = st.sampled_from([{}, TOPK, {"quantize": "int8"}, {"quantize": "bf16"}])
OVERLAPS = st.sampled_from(
    [
        {"kind": "blocking"},
        {"kind": "delayed", "windows": 1},
        {"kind": "delayed", "windows": 2},
        {"kind": "streaming", "fragments": 4, "steps": 1},
        {"kind": "streaming", "fragments": 2, "steps": 3},
    ]
)


@st.composite
def policies(draw: st.DrawFn) -> SyncPolicy:
    """Two-level policies of every overlap."""
    overlap = draw(OVERLAPS)
    return policy(
        update="local",
        overlap=overlap,
        codec=draw(CODECS),
        interval=draw(st.integers(8, 40) if overlap["kind"] == "streaming" else st.integers(1, 40)),
        streams=draw(st.sampled_from([1, 4])),
    )


@st.composite
def worlds(draw: st.DrawFn, **fixed: object) -> Scenario:
    """Scenarios of two or three sites alike."""
    fields: dict[str, object] = {
        "sites": draw(st.integers(2, 3)),
        "rate": draw(st.floats(1e6, 1e9)),
        "rtt": draw(st.floats(1e-3, 0.3)),
        "step": draw(st.floats(0.01, 1.0)),
    }
    return world(**{**fields, **fixed})  # type: ignore[arg-type]


NOTHING = Calibration(
    accumulate_s=0, optimizer_s=0, outer_s=0, flag_s=0, site_collective_s=0, encode_s_per_element=0,
    decode_s_per_value=0, decode_s_per_element=0, gather_s_per_byte=0,
)  # fmt: skip


def plain(rule, seconds, *, sites=2, rtt=0.2, buffer=1e6, steps=(), slice_share=0.25):
    """A problem whose links take `seconds[source]` for a payload and whose buffers hold `buffer` payloads.

    Windows hold everything. All fragments' payloads are as large as the first; `slice_share` of one is a
    slice.
    """
    problem = build(world(sites, rtt=rtt, congestion_control="bbr", queue_bytes=1e12), rule, NOTHING)
    links = []
    for link in problem.links:
        size = problem.fragments[0].payload_bytes * link.wire_per_payload
        path = dataclasses.replace(
            link.path,
            rate_bytes_per_s=size / seconds[link.source],
            flow_window_bytes=1e15,
            flow_initial_bytes=1e15,
            held_bytes=1e15,
            peak_bytes=1e15,
            flow_buffer_bytes=buffer * size / problem.fragments[0].flows,
            stream_shares=(1.0,) * 4,
            shares_by_length=(),
        )
        links.append(dataclasses.replace(link, path=path))
    fragments = [
        dataclasses.replace(f, payload_bytes=problem.fragments[0].payload_bytes, slice_share=slice_share)
        for f in problem.fragments
    ]
    made = [
        dataclasses.replace(site, step_s=step) for site, step in zip(problem.sites, steps, strict=False)
    ] or problem.sites
    return dataclasses.replace(
        problem, links=tuple(links), fragments=tuple(fragments), sites=tuple(made), overhead_s=0.0
    )


def through(wan, rounds, late=()):
    """All sites enter the rounds one after another, all of which are expected: when each is through each.

    `late`: seconds that some sites begin later.
    """
    ends = {}
    late = dict(late)

    def site(m):
        yield wan.env.timeout(late.get(m, 0.0))
        for exchange in rounds:
            yield exchange.enter(m)
            ends[exchange.name, m] = round(wan.env.now, 9)

    for m in range(len(wan.problem.sites)):
        for exchange in rounds:
            exchange.post(m)
        wan.env.process(site(m))
    wan.env.run()
    return ends


def links_of(tracer):
    return sorted(
        (round(start, 9), round(end, 9), row.removeprefix("link "), name)
        for row, track, name, start, end in tracer.spans
        if track == "flows"
    )
