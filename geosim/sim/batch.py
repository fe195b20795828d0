"""Many policies as arrays: what the closed form consumes, one row a policy."""

from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from enum import IntEnum
from typing import Any

import numpy as np

from geosim.cost import Calibration, Problem, build
from geosim.cost.transport import namespace
from geosim.policy import Delayed, Direct, Eager, Ring, Streaming, SyncPolicy
from geosim.policy.adapt import Fixed
from geosim.policy.routes import payload_times
from geosim.scenario import Scenario
from geosim.sim.standing import link_columns, shared_rate, slowest_link


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


TEXT = {
    Reason.APPLIES: "holds",
    Reason.RANDOM: "compute or delay is random",
    Reason.TRACE: "a link's bandwidth varies",
    Reason.UNEQUAL: "sites or links differ",
    Reason.TOPOLOGY: "the topology has hops that wait for each other",
    Reason.GROUPS: "several fragments leave at the same step",
    Reason.ADAPT: "the interval changes",
    Reason.CONTENTION: "exchanges of different fragments may queue",
    Reason.TRUNK: "links share a trunk, or a site's way out or in",
    Reason.UNSETTLED: "TCP windows settle into no single state",
}


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
        receipt. size_bytes: of each fragment over one link and hop; 0 for columns that a policy does not use.
        window_limit, window_first: of TCP for each fragment's flows together. hops: payloads that cross one
        after another on the longest way of an exchange. mutual: whether every pair of sites that exchanges
        does so both ways, so that notices break TCP's silence. link_payloads: payloads that cross a link in
        an exchange, mean over links. stream: rate of each fragment's flows once out of slow start. rate,
        rtt_s, rto_s, restarts: of the links. flat_bytes: over one link, a step of plain data parallelism.
        links: how many directed links there are. reason: a `Reason`; what the steady state finds is added
        there.
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
    flat_bytes: np.ndarray
    links: np.ndarray
    tokens_per_step: np.ndarray
    colocated_step_s: np.ndarray
    ddp_wan_bytes: np.ndarray
    reason: np.ndarray

    def __len__(self) -> int:
        return len(self.interval)

    @property
    def namespace(self) -> Any:
        """The array namespace of the columns: numpy, unless some of them are of another."""
        return namespace(*(getattr(self, f.name) for f in fields(self)))

    def take(self, rows: np.ndarray) -> "Batch":
        """The batch of some rows, also repeated ones: `dataclasses.replace` then sets what a grid varies."""
        return Batch(**{f.name: getattr(self, f.name)[rows] for f in fields(self)})


@dataclass
class _Row:
    """One policy's numbers; fragments' as lists."""

    scalars: dict[str, float] = field(default_factory=dict)
    lists: dict[str, list[float]] = field(default_factory=dict)


_LISTS = ("encode_s", "after_s", "decode_s", "size_bytes", "window_limit", "window_first", "stream")
_WHOLE = {
    "interval": np.int64,
    "delay": np.int64,
    "lag": np.int64,
    "hops": np.int64,
    "restarts": bool,
    "mutual": bool,
    "reason": np.int64,
}


def batch_from(
    scenario: Scenario, policies: Iterable[SyncPolicy], calibration: Calibration | None = None
) -> Batch:
    """A batch of policies in one scenario. Those that differ only in K or in how late they apply share work.

    Raises:
        UsageError: if a policy does not fit the scenario.
    """
    templates: dict[tuple[object, ...], _Row] = {}
    rows = []
    for policy in policies:
        streaming = policy.overlap if isinstance(policy.overlap, Streaming) else None
        key = (
            policy.update, policy.codec, policy.topology, policy.groups, policy.order, policy.streams,
            policy.chunk_bytes, policy.shards, streaming.fragments if streaming else 0,
        )  # fmt: skip
        if key not in templates:
            templates[key] = _template(build(scenario, policy, calibration))
        row = templates[key]
        delay = policy.overlap.windows if isinstance(policy.overlap, Delayed | Eager) else 0
        reason = row.scalars["reason"]
        if not isinstance(policy.adapt, Fixed):
            reason = reason or Reason.ADAPT
        lag = streaming.steps if streaming else -1
        rows.append((row, {"interval": policy.interval, "delay": delay, "lag": lag, "reason": reason}))
    return _stack(rows)


def _stack(rows: list[tuple[_Row, dict[str, float]]]) -> Batch:
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
    return Batch(**columns)


def _template(problem: Problem) -> _Row:
    """What depends neither on K nor on the delay; the slowest site and link stand for all."""
    slow = max(range(len(problem.sites)), key=lambda m: problem.sites[m].steady_s)
    site = problem.sites[slow]
    row = _Row()
    row.scalars = {
        "steady_s": site.steady_s, "compute_s": site.step_s,
        "flat_s": float("nan"), "flat_exposed_s": 0.0, "flat_exchange_s": 0.0, "flat_bytes": 0.0,
        "hops": 0, "link_payloads": 0.0, "rate": 1.0, "rtt_s": 0.0, "rto_s": 1.0, "restarts": False,
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
            "link_payloads": len(problem.routes) / len(problem.links),
        }  # fmt: skip
        scalars, lists = link_columns(problem, slowest_link(problem))
        row.scalars |= scalars
        row.lists |= lists
    else:
        row.lists["size_bytes"] = [0.0] * len(problem.fragments)
        for name in ("window_limit", "window_first", "stream"):
            row.lists[name] = [1.0] * len(problem.fragments)
    return row


def _is_mutual(problem: Problem) -> bool:
    ways = {(t.source, t.target) for t in problem.routes}
    return all((b, a) in ways for a, b in ways)


def _fill_flat(row: _Row, problem: Problem) -> None:
    flat = problem.flat
    assert flat is not None
    compute = max(site.step_s for site in problem.sites)
    update = max(site.update_s for site in problem.sites)
    duration = flat.durations[0][1]
    total = np.cumsum(duration)
    ready = compute * (1 - flat.backward_share * (1 - flat.ready))
    finish = float((ready + total[-1] - total + duration).max())
    row.scalars |= {
        "flat_s": finish + update, "flat_exposed_s": finish - compute, "flat_exchange_s": float(total[-1]),
        "flat_bytes": flat.payload_bytes * problem.links[0].wire_per_payload if problem.links else 0.0,
    }  # fmt: skip


def _structural(problem: Problem) -> Reason:
    """Reasons that follow from scenario and policy alone."""
    first = problem.sites[0]
    if any(site.step_cv > 0 for site in problem.sites) or any(link.jitter_s > 0 for link in problem.links):
        return Reason.RANDOM
    if any(link.trace for link in problem.links):
        return Reason.TRACE
    if any(site.steady_s != first.steady_s or site.step_s != first.step_s for site in problem.sites):
        return Reason.UNEQUAL
    if problem.flat is not None:
        same = len({link.wire_per_payload for link in problem.links}) <= 1
        return Reason.APPLIES if same else Reason.UNEQUAL
    for fragment in problem.fragments:
        for costs in (fragment.encode_s, fragment.decode_s, fragment.gather_s, fragment.apply_s):
            if any(cost != costs[0] for cost in costs):
                return Reason.UNEQUAL
    alike = {(link.path, link.wire_per_payload, shared_rate(problem, link)) for link in problem.links}
    if len(alike) > 1:
        return Reason.UNEQUAL
    if any(shared_rate(problem, link) < link.path.rate_bytes_per_s for link in problem.links):
        return Reason.TRUNK
    if not isinstance(problem.policy.topology, Direct | Ring):
        return Reason.TOPOLOGY
    if problem.policy.groups and len(problem.fragments) > 1:
        return Reason.GROUPS
    return Reason.APPLIES
