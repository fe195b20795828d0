"""NCCL's environment for plain data parallelism over all sites, each variable from runs of the model.

The whole grid of algorithm, channels, buffer and what else the way across the WAN takes is evaluated. Of what
is within 1 % of the fastest, the one with the least memory in buffers and the fewest connections is taken.
Then each variable is put back alone: what a step takes then is its reason.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import product

from geosim.cost import Calibration, Problem, build, roce
from geosim.cost.all_reduce import backend, channel_bytes, make_wan
from geosim.cost.buckets import finish_time
from geosim.cost.collective import site_cluster
from geosim.cost.nccl_constants import GB, PCIE_GB_PER_S
from geosim.errors import UsageError
from geosim.policy import load_policy
from geosim.scenario import Nccl, Scenario, WanLink
from geosim.tune.sensitivity import with_bandwidth
from geosim.units import BANDWIDTH, SIZE, TIME, show

MIB = 1024.0 * 1024.0
BUFFERS = tuple(MIB * 2**k for k in range(9))
CHANNELS = (1, 4, 8, 16, 32)
SOCKETS = (1, 2, 4, 8, 16)
ECN_CLASS = 106  # DSCP 26, and ECN's bits say that the sender answers marks
_SLACK = 0.01
_SAME = 5e-4
_LATE = 1e-9
_SOCKET_THREADS = 4
_LARGE = 64 * MIB  # buffers beyond it are taken only where channels do not suffice
_WIDE = 1000.0


@dataclass(frozen=True)
class Variable:
    """One variable of the environment, and why."""

    name: str
    value: str
    reason: str


@dataclass(frozen=True)
class Environment:
    """What to set.

    Attributes:
        nccl: as fields of a scenario.
        variables: to export. left_alone: what stays as NCCL has it, and why, by name.
        before_s, after_s: a step with the scenario's own settings, and so set.
    """

    nccl: Nccl
    variables: tuple[Variable, ...]
    left_alone: tuple[Variable, ...]
    before_s: float
    after_s: float


def step_s(problem: Problem) -> float:
    """Mean seconds of a step of plain data parallelism."""
    flat = problem.flat
    assert flat is not None
    compute = max(site.step_s for site in problem.sites)
    ready = compute * (1 - flat.backward_share * (1 - flat.ready))
    return finish_time(ready, flat.durations[0][1]) + max(site.update_s for site in problem.sites)


class _Case:
    """A scenario whose settings are varied."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.policy = load_policy("ddp")
        self.links: tuple[WanLink, ...] = scenario.wan if len(scenario.sites) > 1 else ()

    def took(self, nccl: Nccl) -> float:
        """A step; endless where the settings cannot run."""
        try:
            return step_s(build(self.scenario.model_copy(update={"nccl": nccl}), self.policy))
        except UsageError:
            return float("inf")

    def without(self, nccl: Nccl, **changes: object) -> str:
        """What a step takes with some settings put otherwise, in words."""
        took = self.took(nccl.model_copy(update=changes))
        return "cannot run" if took == float("inf") else f"takes {show(took, TIME)}"

    def instead(self, nccl: Nccl, **changes: object) -> str:
        """The same beside what a step takes as set, which may be up to a hundredth more."""
        took, here = self.took(nccl.model_copy(update=changes)), self.took(nccl)
        said = self.without(nccl, **changes)
        if abs(took / here - 1) < _SAME:
            return f"{said} too"
        return f"{said}, so {show(here, TIME)}" if took > here else f"{said}, not 1 % less"


def recommend(scenario: Scenario) -> Environment:
    """The environment under which a step of plain data parallelism is fastest.

    Raises:
        UsageError: where NCCL does not run, or the scenario cannot: one line.
    """
    if backend(scenario, Calibration()) != "nccl":
        raise UsageError(
            f"scenario {scenario.name}: its sites are processors: collectives run on gloo, NCCL has no part"
        )
    case = _Case(scenario)
    before = case.took(scenario.nccl)
    patient = max(_needed(case), Nccl().timeout)
    best = _search(case, scenario.nccl.model_copy(update={"timeout": patient}))
    best = best.model_copy(update={"timeout": _timeout(case, best)})
    variables = tuple(_variables(case, best))
    return Environment(best, variables, tuple(_left_alone(case, best)), before, case.took(best))


def _search(case: _Case, base: Nccl) -> Nccl:
    """The cheapest settings within a hundredth of the fastest."""
    found: list[tuple[float, tuple[float, ...], Nccl]] = []
    for changes in _grid(case, base):
        nccl = base.model_copy(update=changes)
        memory = max(2, nccl.min_channels) * channel_bytes(nccl)
        large = max(nccl.buffer_size_bytes, _LARGE)
        cost = (memory, large, nccl.sockets, nccl.traffic_class, nccl.min_channels, nccl.algorithm != "ring")
        found.append((case.took(nccl), cost, nccl))
    fastest = min(took for took, _, _ in found)
    if fastest == float("inf"):
        build(case.scenario, case.policy)
    return min((row for row in found if row[0] <= fastest * (1 + _SLACK)), key=lambda row: row[1])[2]


def _grid(case: _Case, base: Nccl) -> Iterable[dict[str, object]]:
    if not case.links:
        return [{"min_channels": n, "buffer_size_bytes": b} for n, b in product(CHANNELS, BUFFERS)]
    rdma = base.net == "ib"
    ways: list[dict[str, object]] = [{"gid_index": 3, "traffic_class": t} for t in (0, ECN_CLASS)]
    if not rdma:
        ways = [{"sockets": n} for n in SOCKETS]
    return [
        {"algorithm": algorithm, "protocol": "Simple", "min_channels": n, "buffer_size_bytes": b, **way}
        for algorithm, n, b, way in product(("ring", "tree"), CHANNELS, BUFFERS, ways)
    ]


def _needed(case: _Case) -> int:
    """The least timeout that round trips over all links do not outlast."""
    trips = ((w.rtt_s + _queue_s(w), w.jitter_s) for w in case.links)
    return max((roce.least_timeout(rtt_s, jitter_s, _LATE) for rtt_s, jitter_s in trips), default=1)


def _timeout(case: _Case, nccl: Nccl) -> int:
    """The timeout under which steps are fastest, NCCL's own where it makes no difference."""
    needed = _needed(case)
    options = [max(needed, Nccl().timeout), *range(needed, 23)]
    took = [case.took(nccl.model_copy(update={"timeout": t})) for t in options]
    least = min(took)
    return next(t for t, s in zip(options, took, strict=True) if s <= least * (1 + 1e-4))


def _queue_s(link: WanLink) -> float:
    """How long a full queue delays: as in `roce.rates`, a round trip where none is stated."""
    return link.rtt_s if link.queue_bytes is None else link.queue_bytes / link.bandwidth_bytes_per_s


def _variables(case: _Case, nccl: Nccl) -> Iterable[Variable]:
    if case.links:
        yield from _across(case, nccl)
    memory = max(2, nccl.min_channels) * nccl.buffer_size_bytes
    far = max(case.links, key=lambda w: w.bandwidth_bytes_per_s * w.rtt_s, default=None)
    why = "inside the site larger buffers gain less than 1 %"
    if far is not None:
        rate, full = far.bandwidth_bytes_per_s, far.bandwidth_bytes_per_s * far.rtt_s
        held = f"{show(rate, BANDWIDTH)} over {show(far.rtt_s, TIME)} hold {show(full, SIZE)}"
        why = (
            f"{max(2, nccl.min_channels)} channels then have {show(memory, SIZE)} in flight a hop, and in"
            f" memory for each peer, where {held}"
        )
    own = Nccl().buffer_size_bytes
    other, whose = own, ""
    if nccl.buffer_size_bytes == own:
        other, whose = 2 * own, "NCCL's own; "
    against = f"{whose}with {show(other, SIZE)} a step {case.instead(nccl, buffer_size_bytes=other)}"
    yield Variable("NCCL_BUFFSIZE", f"{nccl.buffer_size_bytes:.0f}", f"{why}; {against}")
    if nccl.min_channels > 1:
        fewer = case.instead(nccl, min_channels=1)
        yield Variable("NCCL_MIN_NCHANNELS", str(nccl.min_channels), f"with two a step {fewer}")
    yield Variable(
        "TORCH_NCCL_ASYNC_ERROR_HANDLING",
        "1",
        "changes no step: a collective that fails then ends the process, and does not hang it",
    )


def _across(case: _Case, nccl: Nccl) -> Iterable[Variable]:
    """What goes with the WAN."""
    rdma = nccl.routed_rdma
    other = "tree" if nccl.algorithm == "ring" else "ring"
    share = {}
    for kind in ("ring", "tree"):
        scenario = case.scenario.model_copy(update={"nccl": nccl.model_copy(update={"algorithm": kind})})
        wan = make_wan(scenario, Calibration())
        share[kind] = max(wan.payload(*way, 1.0, scenario.ranks) for way in wan.ways)
    yield Variable("NCCL_NET", "IB" if rdma else "Socket", _net_reason(case, nccl))
    yield Variable(
        "NCCL_ALGO",
        nccl.algorithm.capitalize(),
        f"a {nccl.algorithm} sends {share[nccl.algorithm]:.3g} times the gradients across a link,"
        f" a {other} {share[other]:.3g}; with a {other} a step {case.instead(nccl, algorithm=other)}",
    )
    low = ", ".join(f"with {p} a step {case.without(nccl, protocol=p)}" for p in ("LL", "LL128"))
    yield Variable(
        "NCCL_PROTO", nccl.protocol, f"its buffers are NCCL_BUFFSIZE, the others' are fixed: {low}"
    )
    if not rdma:
        if nccl.sockets > 1:
            threads = min(_SOCKET_THREADS, nccl.sockets)
            alone = case.without(nccl, sockets=1)
            why = f"each TCP flow has a window of its own: with one a channel a step {alone}"
            yield Variable("NCCL_SOCKET_NTHREADS", str(threads), why)
            yield Variable("NCCL_NSOCKS_PERTHREAD", str(nccl.sockets // threads), "the same")
        return
    yield Variable(
        "NCCL_IB_GID_INDEX",
        str(nccl.gid_index),
        "as most NICs have it RoCEv2 over IPv4, which routers pass on; with a RoCEv1 one NCCL takes TCP,"
        f" and a step {case.without(nccl, gid_index=0)}",
    )
    far = max(case.links, key=lambda w: w.rtt_s)
    yield Variable("NCCL_IB_TIMEOUT", str(nccl.timeout), _timeout_reason(case, nccl, far))
    dead = show(roce.gives_up_s(nccl.timeout, nccl.retry_count), TIME)
    yield Variable(
        "NCCL_IB_RETRY_CNT", str(nccl.retry_count), f"changes no step: rides out {dead} without an answer"
    )
    if nccl.traffic_class:
        yield Variable(
            "NCCL_IB_TC",
            str(nccl.traffic_class),
            "DSCP 26 with ECN: queue pairs slow down when the switch marks and do not overflow its buffer;"
            f" give that class the ECN queue. Without it a step {case.without(nccl, traffic_class=0)}",
        )
    yield Variable("NCCL_NET_GDR_LEVEL", "PXB", _gdr_reason(case, nccl, far))


def _net_reason(case: _Case, nccl: Nccl) -> str:
    if nccl.net == "ib":
        return f"nccl.net is ib: over TCP a step {case.instead(nccl, net='socket')}"
    rdma = case.without(nccl, net="ib", gid_index=3)
    return f"nccl.net is socket: with the same over RDMA a step {rdma}; to ask for that, --set nccl.net=ib"


def _timeout_reason(case: _Case, nccl: Nccl, far: WanLink) -> str:
    waits = show(roce.timeout_s(nccl.timeout), TIME)
    needed = roce.least_timeout(far.rtt_s + _queue_s(far), far.jitter_s, _LATE)
    parts = (f"{show(far.rtt_s, TIME)} of round trip", f"{show(_queue_s(far), TIME)} of queue")
    out = f"{waits}: {', '.join(parts)} and {show(far.jitter_s, TIME)} of jitter take at least {needed}"
    if any(w.loss > 0 for w in case.links):
        longer = case.without(nccl, timeout=22)
        return f"{out}; each tail that is lost waits so long, with 22 a step {longer}"
    return out + ("; NCCL's own" if nccl.timeout == Nccl().timeout else "")


def _gdr_reason(case: _Case, nccl: Nccl, far: WanLink) -> str:
    cluster = site_cluster(case.scenario.sites[0], nccl.model_copy(update={"gdr_level": "LOC"}))
    without = case.without(nccl, gdr_level="LOC")
    if cluster is None or cluster.per_node * cluster.nic_bytes_per_s == 0:
        return f"without GPUDirect a step {without}"
    staged = show(cluster.per_node * GB * PCIE_GB_PER_S[cluster.architecture] / 2, BANDWIDTH)
    return (
        "NICs read accelerators' memory across PCIe switches. Through host memory a node would still send"
        f" {staged}, and {show(far.bandwidth_bytes_per_s, BANDWIDTH)} cross the WAN: without it a step"
        f" {without}"
    )


def _more_channels(case: _Case, nccl: Nccl) -> str:
    """What more channels than NCCL's own would do."""
    reason = f"with 4 a step {case.instead(nccl, min_channels=4)}"
    slower = case.took(nccl.model_copy(update={"min_channels": 4})) > case.took(nccl)
    if slower and case.links and not nccl.routed_rdma:
        reason += ": more TCP flows both ways at once leave each other less of a link"
    return reason


def _left_alone(case: _Case, nccl: Nccl) -> Iterable[Variable]:
    yield Variable(
        "NCCL_NTHREADS", str(nccl.threads), "no copy inside an accelerator is slower than its link here"
    )
    if case.links and not nccl.traffic_class and nccl.routed_rdma:
        same = case.without(nccl, traffic_class=ECN_CLASS)
        yield Variable(
            "NCCL_IB_TC", "0", f"what is in flight fits path and buffer; with {ECN_CLASS} a step {same}"
        )
    if nccl.min_channels == 1:
        yield Variable("NCCL_MIN_NCHANNELS", "", _more_channels(case, nccl))
    if case.links:
        yield Variable("bucket_cap_mb", "25", _bucket_reason(case, nccl))


def _bucket_reason(case: _Case, nccl: Nccl) -> str:
    """What is left of a step on a link so wide that only round trips count."""
    wide = _Case(with_bandwidth(case.scenario, _WIDE))
    problem = build(wide.scenario, wide.policy)
    assert problem.flat is not None
    settings = nccl.model_copy(
        update={"buffer_size_bytes": nccl.buffer_size_bytes * _WIDE, "sockets": SOCKETS[-1]}
    )
    took, computes = wide.took(settings), max(site.steady_s for site in problem.sites)
    left = f"on a link {_WIDE:g} times as wide a step still {wide.without(settings)}"
    trips = (
        f"DDP's own, no variable: {len(problem.flat.ready)} buckets wait for round trips one after another"
    )
    if took <= computes * (1 + _SLACK):
        return f"{trips}, but behind compute: {left}, which is compute"
    return f"{trips}: {left}, of which {show(computes, TIME)} compute"
