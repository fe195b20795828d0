"""Many policies as arrays: what the closed form consumes, one row a policy."""

from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from enum import IntEnum
from typing import Any

import numpy as np

from geosim.cost import Calibration, Problem, build
from geosim.cost.sending import namespace
from geosim.policy import Delayed, Direct, Eager, Overlap, Ring, Streaming, SyncPolicy
from geosim.policy.adapt import Fixed
from geosim.policy.routes import payload_times
from geosim.policy.schedule import Plan
from geosim.scenario import Scenario
from geosim.sim.standing import link_columns, slowest_link
from geosim.sim.walk import Walk


class Reason(IntEnum):
    """Why the closed form does not hold for a policy; `TEXT` says it in words."""

    APPLIES = 0
    RANDOM = 1
    TRACE = 2
    UNEQUAL = 3
    TOPOLOGY = 4
    GROUPS = 5
    ADAPT = 6
    CONTENTION = 7
    UNSETTLED = 8
    TRUNK = 9
    SHARED = 10


TEXT = {
    Reason.APPLIES: "holds",
    Reason.RANDOM: "compute or delay is random",
    Reason.TRACE: "a link varies in time",
    Reason.UNEQUAL: "sites or links differ",
    Reason.TOPOLOGY: "the topology has hops that wait for each other",
    Reason.GROUPS: "several fragments leave at the same step",
    Reason.ADAPT: "the interval changes",
    Reason.CONTENTION: "exchanges of different fragments may queue",
    Reason.TRUNK: "links share a trunk, or a site's way out or in",
    Reason.UNSETTLED: "it settles into no state that repeats",
    Reason.SHARED: "payloads overtake each other on the way to a link",
}
WALKED = (Reason.UNEQUAL, Reason.TOPOLOGY, Reason.GROUPS, Reason.CONTENTION, Reason.UNSETTLED)


@dataclass(frozen=True)
class Batch:
    """One row a policy. Seconds, and bytes on the wire; arrays of shape [n], fragments' of shape [n, F].

    Attributes:
        interval: K.
        delay: windows between sending and applying (0: blocking).
        lag: steps between them for streaming, else -1.
        steady_s: a step without any WAN.
        flat_s: a step of plain data parallelism, else NaN; flat_exposed_s, flat_exchange_s: of that.
        encode_s, after_s, decode_s: of each fragment, before sending, when applied (gather, update), after
        receipt. size_bytes, slice_bytes: of each fragment, and of the part after which it is passed on, over
        one link and hop; 0 for columns that a policy does not use.
        window_limit, window_first: of TCP for each fragment's flows together. hops: payloads that cross one
        after another on the longest way of an exchange. mutual: whether every pair of sites that exchanges
        does so both ways, so that notices break TCP's silence. link_payloads: payloads that cross a link in
        an exchange, mean over links. stream: what each fragment's flows reach of a link. rate,
        rtt_s, rto_s, restarts, paced: of the links. flat_bytes: over one link, a step of plain data
        parallelism. links: how many directed links there are. reason: a `Reason`; what the steady state finds
        is added there. walk: which of `walks` a row is; where sites, links or hops differ, the steady state
        follows from it and from `interval` alone.
    """

    interval: np.ndarray
    delay: np.ndarray
    lag: np.ndarray
    steady_s: np.ndarray
    compute_s: np.ndarray
    flat_s: np.ndarray
    flat_exposed_s: np.ndarray
    flat_exchange_s: np.ndarray
    encode_s: np.ndarray
    after_s: np.ndarray
    decode_s: np.ndarray
    size_bytes: np.ndarray
    slice_bytes: np.ndarray
    window_limit: np.ndarray
    window_first: np.ndarray
    stream: np.ndarray
    hops: np.ndarray
    mutual: np.ndarray
    link_payloads: np.ndarray
    rate: np.ndarray
    rtt_s: np.ndarray
    rto_s: np.ndarray
    restarts: np.ndarray
    paced: np.ndarray
    flat_bytes: np.ndarray
    links: np.ndarray
    tokens_per_step: np.ndarray
    colocated_step_s: np.ndarray
    ddp_wan_bytes: np.ndarray
    reason: np.ndarray
    walk: np.ndarray
    walks: tuple[Walk, ...]

    def __len__(self) -> int:
        return len(self.interval)

    @property
    def namespace(self) -> Any:
        """The array namespace of the columns: numpy, unless some of them are of another."""
        return namespace(*self._columns().values())

    def take(self, rows: np.ndarray | slice) -> "Batch":
        """The batch of some rows, also repeated ones: `dataclasses.replace` then sets what a grid varies."""
        return Batch(**{name: column[rows] for name, column in self._columns().items()}, walks=self.walks)

    def _columns(self) -> dict[str, Any]:
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name != "walks"}


@dataclass
class _Row:
    """One policy's numbers; fragments' as lists."""

    scalars: dict[str, float] = field(default_factory=dict)
    lists: dict[str, list[float]] = field(default_factory=dict)


_LISTS = (
    "encode_s", "after_s", "decode_s", "size_bytes", "slice_bytes", "window_limit", "window_first", "stream",
)  # fmt: skip
_WHOLE = {
    "interval": np.int64,
    "delay": np.int64,
    "lag": np.int64,
    "hops": np.int64,
    "restarts": bool,
    "paced": bool,
    "mutual": bool,
    "reason": np.int64,
    "walk": np.int64,
}


def batch_from(
    scenario: Scenario, policies: Iterable[SyncPolicy], calibration: Calibration | None = None
) -> Batch:
    """A batch of policies in one scenario. Those that differ only in K or in how late they apply share work.

    Raises:
        UsageError: if a policy does not fit the scenario.
    """
    templates: dict[tuple[object, ...], tuple[_Row, Problem]] = {}
    walks: dict[tuple[int, Overlap], tuple[int, Walk]] = {}
    rows = []
    for policy in policies:
        streaming = policy.overlap if isinstance(policy.overlap, Streaming) else None
        key = (
            policy.update, policy.codec, policy.topology, policy.groups, policy.order, policy.streams,
            policy.chunk_bytes, policy.shards, streaming.fragments if streaming else 0,
            policy.overlap if policy.groups else None,
        )  # fmt: skip
        if key not in templates:
            problem = build(scenario, policy, calibration)
            templates[key] = (_template(problem), problem)
        row, problem = templates[key]
        place, _ = walks.setdefault((id(row), policy.overlap), (len(walks), _walk(problem, policy.overlap)))
        delay = policy.overlap.windows if isinstance(policy.overlap, Delayed | Eager) else 0
        reason = row.scalars["reason"]
        if not isinstance(policy.adapt, Fixed) and (not reason or reason in WALKED):
            reason = Reason.ADAPT
        lag = streaming.steps if streaming else -1
        own = {"interval": policy.interval, "delay": delay, "lag": lag, "reason": reason, "walk": place}
        rows.append((row, own))
    return _stack(rows, tuple(one for _, one in walks.values()))


def _walk(problem: Problem, overlap: Overlap) -> Walk:
    """A template's walk with an overlap of its own; those of groups are in the template."""
    plan = problem.plan or Plan((), ())
    if problem.policy.groups:
        return Walk(problem, plan)
    return Walk(problem, Plan((overlap,) * len(plan.overlaps), plan.order))


def _stack(rows: list[tuple[_Row, dict[str, float]]], walks: tuple[Walk, ...]) -> Batch:
    if not rows:
        raise ValueError("a batch needs at least one policy")
    names = {**rows[0][0].scalars, **rows[0][1]}
    columns = {
        name: np.array(
            [own.get(name, row.scalars.get(name)) for row, own in rows], dtype=_WHOLE.get(name, float)
        )
        for name in names
    }
    width = max(1, *(len(row.lists["size_bytes"]) for row, _ in rows))
    for name in _LISTS:
        empty = 1.0 if name in ("window_limit", "window_first", "stream") else 0.0
        columns[name] = np.array(
            [row.lists[name] + [empty] * (width - len(row.lists[name])) for row, _ in rows]
        )
    return Batch(**columns, walks=walks)


def _template(problem: Problem) -> _Row:
    """What depends neither on K nor on the delay; the slowest site and link stand for all."""
    slow = max(range(len(problem.sites)), key=lambda m: problem.sites[m].steady_s)
    site = problem.sites[slow]
    row = _Row()
    row.scalars = {
        "steady_s": site.steady_s,
        "compute_s": sum(s.step_s for s in problem.sites) / len(problem.sites),
        "flat_s": float("nan"), "flat_exposed_s": 0.0, "flat_exchange_s": 0.0, "flat_bytes": 0.0,
        "hops": 0, "link_payloads": 0.0, "rate": 1.0, "rtt_s": 0.0, "rto_s": 1.0, "restarts": False,
        "paced": False,
        "mutual": False,
        "links": len(problem.links), "tokens_per_step": problem.tokens_per_step,
        "colocated_step_s": problem.colocated_step_s, "ddp_wan_bytes": problem.ddp_wan_bytes,
        "reason": _structural(problem),
    }  # fmt: skip
    row.lists = {name: [] for name in _LISTS}
    if problem.flat is not None:
        _fill_flat(row, problem)
    for fragment in problem.fragments:
        row.lists["encode_s"].append(fragment.encode_s[slow])
        row.lists["after_s"].append(fragment.gather_s[slow] + fragment.apply_s[slow])
        row.lists["decode_s"].append(fragment.decode_s[slow] + problem.overhead_s)
    if problem.links and problem.flat is None:
        row.scalars |= {
            "mutual": _is_mutual(problem), "hops": payload_times(problem.routes),
            "link_payloads": _link_payloads(problem),
        }  # fmt: skip
        scalars, lists = link_columns(problem, slowest_link(problem))
        row.scalars |= scalars
        row.lists |= lists
    else:
        row.lists["size_bytes"] = row.lists["slice_bytes"] = [0.0] * len(problem.fragments)
        for name in ("window_limit", "window_first", "stream"):
            row.lists[name] = [1.0] * len(problem.fragments)
    return row


def _is_mutual(problem: Problem) -> bool:
    ways = {(t.source, t.target) for t in problem.routes}
    return all((b, a) in ways for a, b in ways)


def _link_payloads(problem: Problem) -> float:
    """Payloads over a link in an exchange, mean over links, as long as over the one that stands for all."""
    wire = {(link.source, link.target): link.wire_per_payload for link in problem.links}
    total = sum(wire[t.source, t.target] for t in problem.routes)
    return total / len(problem.links) / slowest_link(problem).wire_per_payload


def _fill_flat(row: _Row, problem: Problem) -> None:
    flat = problem.flat
    assert flat is not None
    compute = np.array([site.step_s for site in problem.sites])
    update = np.array([site.update_s for site in problem.sites])
    duration = flat.durations[0][1]
    total = np.cumsum(duration)
    done = 1 - flat.backward_share * (1 - flat.ready)
    ready = (update[:, None] + compute[:, None] * done).max(axis=0)
    took = float((ready + total[-1] - total + duration).max())
    links = zip(flat.payload_bytes, problem.links, strict=True)
    crossing = [payload * link.wire_per_payload for payload, link in links]
    row.scalars |= {
        "flat_s": took, "flat_exposed_s": took - float((compute + update).mean()),
        "flat_exchange_s": float(total[-1]), "flat_bytes": float(np.mean(crossing)) if crossing else 0.0,
    }  # fmt: skip


def _structural(problem: Problem) -> Reason:
    """Reasons that follow from scenario and policy alone."""
    first = problem.sites[0]
    if any(site.step_cv > 0 for site in problem.sites) or any(link.is_random for link in problem.links):
        return Reason.RANDOM
    if not all(link.is_steady for link in problem.links):
        return Reason.TRACE
    if problem.flat is not None:
        return Reason.APPLIES
    if _has_trunk(problem):
        return Reason.TRUNK
    if any(site.steady_s != first.steady_s or site.step_s != first.step_s for site in problem.sites):
        return Reason.UNEQUAL
    for fragment in problem.fragments:
        for costs in (fragment.encode_s, fragment.decode_s, fragment.gather_s, fragment.apply_s):
            if any(cost != costs[0] for cost in costs):
                return Reason.UNEQUAL
    if len({(link.path, link.wire_per_payload) for link in problem.links}) > 1:
        return Reason.UNEQUAL
    if not isinstance(problem.policy.topology, Direct | Ring):
        return Reason.TOPOLOGY
    if problem.policy.groups and len(problem.fragments) > 1:
        return Reason.GROUPS
    return Reason.APPLIES


def _has_trunk(problem: Problem) -> bool:
    """Whether a trunk, or a site's way out or in, may be narrower than the links that share it."""
    out = [0.0] * len(problem.sites)
    back = [0.0] * len(problem.sites)
    for link in problem.links:
        out[link.source] += link.path.rate_bytes_per_s
        back[link.target] += link.path.rate_bytes_per_s
    over = [0.0] * len(problem.trunks)
    for link in problem.links:
        for trunk in link.trunks:
            over[trunk] += link.path.rate_bytes_per_s
    return any(rate < asked for rate, asked in zip(problem.trunks, over, strict=True)) or any(
        site.uplink_bytes_per_s < out[m] or site.downlink_bytes_per_s < back[m]
        for m, site in enumerate(problem.sites)
    )
