"""The paper's wall-clock formulas as limits of our simulator: nothing overlaps, nothing is shared or lost.

`formulas` holds what the paper prints; everything here runs `simulate`, `cost.layers` and `cost.collective`
on scenarios taken to the limit: codecs, optimizers and gathers that cost nothing, no overlap of reduces with
the backward pass, TCP that starts at full rate, links whose payload rate is the paper's W.
"""

from geosim.cost import Calibration
from geosim.cost.buckets import make_buckets
from geosim.cost.collective import ring_all_reduce
from geosim.cost.compute import step_time
from geosim.cost.layers import cycle_time, make_graph
from geosim.cost.ring import crossing_bytes
from geosim.cost.transport import payload_share
from geosim.params import ParamSpec, ParamTable
from geosim.policy import (
    Blocking,
    Cast,
    Codec,
    Delayed,
    FlatRing,
    Local,
    Overlap,
    Streaming,
    SyncPolicy,
    make_layout,
)
from geosim.scenario import Accelerator, Fabric, Hop, Scenario, Site, WanLink, Workload, models
from geosim.sim import Result, simulate
from papers.diloco_scaling_laws import formulas

_M, _RANKS, _H = 2, 64, 100
_MODEL = models()["mpt-7b"]  # tied and without positions: every parameter multiplies
_N = _MODEL.param_table().numel
_ONE_LAYER = ParamTable((ParamSpec("layers.0.weight", (_N,), "bf16", 0),))
_BF16 = Codec(quantize=Cast(kind="bf16"))
_W0, _EPS0 = formulas.NETWORKS["high"]
_MTU = 65535.0
_FREE = Calibration(
    accumulate_s=0.0,
    optimizer_s=0.0,
    outer_s=0.0,
    flag_s=0.0,
    encode_s_per_element=0.0,
    decode_s_per_value=0.0,
    decode_s_per_element=0.0,
    gather_s_per_byte=0.0,
    backward_share=0.0,
    backend="nccl",
)
_CHIP = Accelerator(
    name="chip",
    bf16_flops=formulas.Q_FLOPS,
    fp32_flops=formulas.Q_FLOPS,
    memory_bytes=1e12,
    memory_bandwidth_bytes_per_s=1e12,
    source="arXiv 2503.09799, appendix A: 300 TFLOP/s",
)


def make_work(sequence: int = 2048, batch: int = 1) -> Workload:
    """Sequences of one token make attention vanish, which the paper's 6 N D leaves out."""
    return Workload(
        model=_MODEL, sequence=sequence, batch_per_accelerator=batch, gradient_dtype="bf16", mfu=1.0
    )


def make_world(wan_bytes_per_s: float, rtt_s: float) -> Scenario:
    """M sites of R / M chips each. Our all-reduces go bucket by bucket: their latencies add up to eps0."""
    each = _RANKS // _M
    hops = 2 * (each - 1) * len(make_buckets(_MODEL.param_table(), "bf16").sizes)
    fabric = Fabric(intra_node=Hop(bandwidth_bytes_per_s=_W0 / 8, latency_s=_EPS0 / hops))
    sites = [
        Site(name=f"s{m}", accelerator=_CHIP, accelerators_per_node=each, fabric=fabric) for m in range(_M)
    ]
    link = WanLink(
        between=("s0", "s1"),
        bandwidth_bytes_per_s=wan_bytes_per_s / payload_share(_MTU),
        rtt_s=rtt_s,
        congestion_control="bbr",  # keeps its window when silent
        window_bytes=1e15,
        initial_window_bytes=1e15,
        queue_bytes=1e18,  # as good as endless: what goes the other way takes nothing
        mtu_bytes=_MTU,
    )
    return Scenario(sites=tuple(sites), wan=(link,), workload=make_work())


def run_data_parallel(w1: float, eps1: float) -> Result:
    """One ring over all chips, whose buckets' delays add up to eps1."""
    buckets = len(make_buckets(_MODEL.param_table(), "bf16").sizes)
    trips = buckets * crossing_bytes(1.0, _RANKS)
    policy = SyncPolicy(topology=FlatRing(), codec=_BF16)
    return simulate(make_world(w1 / 8, eps1 / trips), policy, calibration=_FREE, windows=5)


def run_diloco(w1: float, eps1: float, overlap: Overlap | None = None) -> Result:
    """Two sites exchange each other's update: N crosses once, and 2 N (1 - 1 / R) over a ring's edge."""
    share = crossing_bytes(1.0, _RANKS)
    policy = SyncPolicy(update=Local(), interval=_H, codec=_BF16, overlap=overlap or Blocking())
    return simulate(make_world(w1 / 8 / share, 2 * eps1), policy, calibration=_FREE, windows=5)


def streaming_over_vanilla() -> float:
    """Cycle of streaming over that of DiLoCo on a link so slow that only bytes count."""
    times = []
    for overlap in (Streaming(fragments=16, steps=0), Blocking()):
        policy = SyncPolicy(update=Local(), interval=_H, codec=_BF16, overlap=overlap)
        layout = make_layout(_MODEL.param_table(), policy, 1)
        times.append(float(cycle_time(make_graph(layout, 1.0), layout, 1e3)[0]))
    return times[0] / times[1]


def _off(ours: float, theirs: float) -> float:
    return abs(ours - theirs) / theirs


def reproduce() -> dict[str, float]:
    """Our value of every claim: relative differences, the largest over the paper's networks."""
    n, r, h = _N, _RANKS, _H
    work = make_work(sequence=1, batch=2048)
    tokens = float(r * 2048)
    off: dict[str, list[float]] = {"DP": [], "inner": [], "outer": [], "reduce": [], "alone": [], "graph": []}
    exposed = 0.0
    for w1, eps1 in formulas.NETWORKS.values():
        hop = Hop(bandwidth_bytes_per_s=w1 / 8, latency_s=eps1 / (2 * (r - 1)))
        one = ring_all_reduce(2.0 * n, r, hop)
        off["reduce"].append(_off(one, formulas.all_reduce(n, r, w1, eps1)))
        off["alone"].append(_off(one + one / h, formulas.diloco_alone(n, r, h, w1, eps1)))
        flat = run_data_parallel(w1, eps1)
        waits = flat.step_time_s.mean - flat.parts["compute"]
        off["DP"].append(_off(waits, formulas.data_parallel(n, r, w1, eps1)))
        local = run_diloco(w1, eps1)
        off["inner"].append(_off(local.parts["site_collective"], formulas.diloco_inner(n, r, _M, _W0, _EPS0)))
        off["outer"].append(_off(local.exposed_wan_s_per_step, formulas.diloco_outer(n, r, h, w1, eps1)))
        layout = make_layout(_ONE_LAYER, SyncPolicy(codec=_BF16), 1)
        edge = w1 / 8 / crossing_bytes(1.0, r)
        whole = float(cycle_time(make_graph(layout, 1.0), layout, edge, eps1)[0]) - 1.0
        off["graph"].append(_off(whole, formulas.data_parallel(n, r, w1, eps1)))
        exposed = max(exposed, run_diloco(w1, eps1, Delayed()).exposed_wan_s_per_step)
    even = run_diloco(_W0 / h, 0.0)
    outer = even.exposed_wan_s_per_step
    return {
        "SL-compute": _off(step_time(work, _CHIP), formulas.compute(n, tokens, r)),
        "SL-reduce": max(off["reduce"]),
        "SL-DP": max(off["DP"]),
        "SL-DP-graph": max(off["graph"]),
        "SL-M1": max(off["alone"]),
        "SL-inner": max(off["inner"]),
        "SL-outer": max(off["outer"]),
        "SL-streaming": streaming_over_vanilla(),
        "SL-overlap": exposed,
        "SL-rule": outer / (outer + even.parts["site_collective"]),
    }
