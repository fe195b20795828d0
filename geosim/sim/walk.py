"""The steady state where sites, links or hops differ: cycle after cycle, for many policies at once.

Without chance, trunks and payloads that overtake each other, all follows from maxima and sums: a site waits
for the last of what it needs, a transfer for its source, its link, the receiver's notice and what it passes
on (`sim.walk_round`). So one cycle of `policy.schedule` is a few passes over arrays, one row a policy, and
the same model as the engine's. Such systems mostly become periodic (max-plus linear systems: Baccelli, Cohen,
Olsder and Quadrat, Synchronization and Linearity, chapter 3); once everything that the next cycle depends on
is what it was P cycles ago, only later, it stays so, and the mean of these P cycles is the steady state.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import pairwise

import numpy as np

from geosim.cost import Problem
from geosim.policy.schedule import Plan, next_cycle, start
from geosim.sim.walk_round import Lines, LinkState, Moment, exchange

_PERIOD = 12  # the longest period that is looked for, in cycles
_CYCLES = (24, 240)  # most rows are periodic soon; what is not gets more
_SAME = 1e-9  # of a cycle
_CLOCK = 4e-15  # of the time that has passed: rounding

Events = tuple[tuple[str, int, int], ...]
Shape = tuple[object, ...]


@dataclass(frozen=True)
class Walk:
    """One policy as the walk needs it: its costs, and when which fragment leaves and is applied."""

    problem: Problem
    plan: Plan

    @property
    def shape(self) -> Shape:
        """What rows that are walked together have in common."""
        links = tuple((link.source, link.target) for link in self.problem.links)
        return len(self.problem.sites), links, self.problem.routes

    @cached_property
    def numbers(self) -> dict[str, np.ndarray]:
        """Of sites [M], fragments [F], fragments and sites [F, M], links [L], fragments and links [F, L]."""
        p = self.problem
        return {
            "steady": np.array([s.steady_s for s in p.sites]),
            "encode": np.array([f.encode_s for f in p.fragments]),
            "decode": np.array([f.decode_s for f in p.fragments]) + p.overhead_s,
            "after": np.array([np.add(f.gather_s, f.apply_s) for f in p.fragments]),
            "payload": np.array([f.payload_bytes for f in p.fragments]),
            "share": np.array([f.slice_share for f in p.fragments]),
            "rate": np.array([link.path.rate_bytes_per_s for link in p.links]),
            "rtt": np.array([link.path.rtt_s for link in p.links]),
            "rto": np.array([link.path.rto_s for link in p.links]),
            "restarts": np.array([link.path.restarts for link in p.links], dtype=bool),
            "paced": np.array([link.path.paced for link in p.links], dtype=bool),
            "wire": np.array([link.wire_per_payload for link in p.links]),
            "limit": np.array([[k.path_of(f).window_limit(f.flows) for k in p.links] for f in p.fragments]),
            "first": np.array([[k.path_of(f).initial_window(f.flows) for k in p.links] for f in p.fragments]),
            "stream": np.array([[k.path_of(f).share_rate(f.flows) for k in p.links] for f in p.fragments]),
            "alone": np.array(
                [[k.path_of(f).share_rate(f.flows, True) for k in p.links] for f in p.fragments]
            ),
            "room": np.array([[k.payloads_buffered(f) for k in p.links] for f in p.fragments]),
        }


@dataclass(frozen=True)
class Found:
    """What became of rows.

    Attributes:
        seconds: [3, rows] of a cycle, of an exchange (mean over sites and fragments), and of what a cycle
        waits (mean over sites); where it is periodic.
        settled: whether it is periodic. overtakes: whether payloads come to a link in another order than they
        have in the routes, which the walk cannot follow.
    """

    seconds: np.ndarray
    settled: np.ndarray
    overtakes: np.ndarray

    @classmethod
    def nothing(cls, rows: int) -> "Found":
        """To be filled in."""
        return cls(np.zeros((3, rows)), np.zeros(rows, dtype=bool), np.zeros(rows, dtype=bool))


def walk(walks: list[Walk], interval: np.ndarray) -> Found:
    """The steady state of each of `walks` with its interval."""
    out = Found.nothing(len(walks))
    together: dict[tuple[Shape, Events], list[int]] = {}
    gaps = []
    for i, (one, k) in enumerate(zip(walks, interval, strict=True)):
        events, steps = _cycle(one.plan, int(k))
        gaps.append(steps)
        together.setdefault((one.shape, events), []).append(i)
    for (_, events), members in together.items():
        rows = np.array(members)
        for cycles in _CYCLES:
            found = _Rows([walks[i] for i in rows], events, np.array([gaps[i] for i in rows])).run(cycles)
            out.seconds[:, rows] = found.seconds
            out.settled[rows], out.overtakes[rows] = found.settled, found.overtakes
            rows = rows[~found.settled & ~found.overtakes]
            if not len(rows):
                break
    return out


@lru_cache(maxsize=65536)
def _cycle(plan: Plan, interval: int) -> tuple[Events, tuple[int, ...]]:
    """A steady cycle: (kind, fragment, rounds that left after the one applied), and the steps before each and
    after the last."""
    state = start(plan)
    for _ in range(2 + max((getattr(o, "windows", 1) for o in plan.overlaps), default=1)):
        base = state.step
        state, events = next_cycle(state, plan, interval)
    latest = {f: state.rounds[f] - 2 for f in range(len(plan.overlaps))}
    out = []
    for event in events:
        if event.kind == "send":
            latest[event.fragment] = event.round
        out.append((event.kind, event.fragment, latest[event.fragment] - event.round))
    at = [base, *(event.step for event in events), state.step]
    return tuple(out), tuple(b - a for a, b in pairwise(at))


class _Rows:
    """Rows of one shape on their way from cycle to cycle; each time is a list over sites or links of [n]."""

    def __init__(self, walks: list[Walk], events: Events, gaps: np.ndarray) -> None:
        problem = walks[0].problem
        self.n, self.events, self.gaps = len(walks), events, gaps
        self.sites = range(len(problem.sites))
        self.lines = Lines.of(problem)
        ways = {(link.source, link.target): i for i, link in enumerate(problem.links)}
        self.back = {ways[t.target, t.source] for t in problem.routes if (t.target, t.source) in ways}
        self.source = [link.source for link in problem.links]
        # Rows last, so that `x[..., i]` of one site, fragment or link is an array of all rows.
        self.of = {name: np.stack([w.numbers[name] for w in walks], axis=-1) for name in walks[0].numbers}
        fragments, links = range(len(problem.fragments)), range(len(problem.links))
        self.now = self._zeros()
        self.free = self._zeros()
        self.posted = [self._zeros() for _ in fragments]
        zeros = [np.zeros(self.n) for _ in links]
        self.links = LinkState([None for _ in links], zeros, zeros)
        self.lost = np.zeros(self.n, dtype=bool)
        ages = [1 + max((age for kind, g, age in events if g == f), default=0) for f in fragments]
        self.results = [deque((self._zeros() for _ in range(age)), maxlen=age) for age in ages]
        self.found = Found.nothing(self.n)
        self.waited = np.zeros(self.n)
        self.exchanged = np.zeros(self.n)

    def _zeros(self) -> Moment:
        return [np.zeros(self.n) for _ in self.sites]

    def run(self, cycles: int) -> Found:
        """Walk until all rows are periodic, or for so many cycles."""
        seen: deque[tuple[np.ndarray, np.ndarray, np.ndarray]] = deque(maxlen=_PERIOD + 1)
        for _ in range(cycles):
            self._walk_cycle()
            sums = np.stack([self.exchanged, self.waited])
            seen.append((np.stack(list(self._times())), np.array(self.links.window), sums))
            self._look_back(seen)
            if (self.found.settled | self.found.overtakes).all():
                break
        return self.found

    def _look_back(self, seen: "deque[tuple[np.ndarray, np.ndarray, np.ndarray]]") -> None:
        """Mark rows that stand as they stood some cycles ago."""
        times, window, sums = seen[-1]
        for period in range(1, len(seen)):
            before, window_before, sums_before = seen[-1 - period]
            later = times - before
            mean = later.mean(axis=0)
            spread = later.max(axis=0) - later.min(axis=0)
            same = spread <= _SAME * mean + _CLOCK * times.max(axis=0)
            rows = same & (window == window_before).all(axis=0) & ~self.found.settled & ~self.lost
            self.found.seconds[0, rows] = mean[rows] / period
            self.found.seconds[1:, rows] = (sums - sums_before)[:, rows] / period
            self.found.settled[rows] = True

    def _times(self) -> Iterator[np.ndarray]:
        """All moments that the next cycle depends on."""
        yield from self.now
        yield from self.free
        yield from self.links.silent
        yield from self.links.free
        for posted in self.posted:
            yield from posted
        for results in self.results:
            for result in results:
                yield from result

    def _walk_cycle(self) -> None:
        of = self.of
        for i, (kind, f, age) in enumerate(self.events):
            self._compute(i)
            if kind == "send":
                self.now = [now + of["encode"][f, m] for m, now in enumerate(self.now)]
                self._exchange(f)
                continue
            for m in self.sites:
                result = np.maximum(self.now[m], self.results[f][-1 - age][m])
                self.waited = self.waited + (result - self.now[m]) / len(self.sites)
                self.now[m] = result + of["after"][f, m]
        self._compute(len(self.events))

    def _compute(self, i: int) -> None:
        steps = self.gaps[:, i]
        if steps.any():
            self.now = [now + steps * self.of["steady"][m] for m, now in enumerate(self.now)]

    def _exchange(self, f: int) -> None:
        """One round of fragment f, from its sites' handing it over until its sums are ready."""
        of = self.of
        entered = [np.maximum(now, free) for now, free in zip(self.now, self.free, strict=True)]
        round_ = exchange(self.lines, of, f, entered, self.posted[f], self.links)
        self.links = round_.state
        self.found.overtakes[:] |= round_.overtakes
        self.lost |= ~round_.found
        result = [end + of["decode"][f, m] for m, end in enumerate(round_.done)]
        for a, b in zip(result, entered, strict=True):
            self.exchanged = self.exchanged + (a - b) / (len(self.sites) * len(self.results))
        self.free = self.posted[f] = result
        for link in self.back:
            silent = self.links.silent
            silent[link] = np.maximum(silent[link], result[self.source[link]])
        self.results[f].append(result)
