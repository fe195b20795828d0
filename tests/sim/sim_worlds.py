"""Small scenarios and policies for the simulator's tests, fixed and drawn."""

from hypothesis import strategies as st

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
