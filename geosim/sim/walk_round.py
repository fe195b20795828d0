"""One exchange of many policies at once, by the rules of `sim.exchange`: one row a policy.

How fast a transfer streams depends on when transfers on the way back are under way, and these on it. Only the
past matters, so that going through all transfers again and again, each time with what the last pass said of
the way back, has every time right after at most as many passes as transfers begin and end, mostly after two
or three.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from geosim.cost import Problem
from geosim.cost.sending import slow_start, window_after, window_pace, window_restart

Moment = list[np.ndarray]
Numbers = dict[str, np.ndarray]
Span = tuple[np.ndarray, np.ndarray]

_TOGETHER = 1e-12  # of the time that has passed: no longer told apart


@dataclass(frozen=True)
class Lines:
    """What rows have in common: for each transfer its link, for each link its transfers and its way back.

    `needed`: the transfers whose payloads are passed on.
    """

    problem: Problem
    link_of: list[int]
    load: Counter[int]
    on_back: list[list[int]]
    needed: frozenset[int]

    @classmethod
    def of(cls, problem: Problem) -> "Lines":
        """Those of a problem."""
        ways = {(link.source, link.target): i for i, link in enumerate(problem.links)}
        link_of = [ways[t.source, t.target] for t in problem.routes]
        backs = [ways.get((link.target, link.source)) for link in problem.links]
        on_back = [[k for k, link in enumerate(link_of) if link == back] for back in backs]
        needed = frozenset(t.need for t in problem.routes if t.need is not None)
        return cls(problem, link_of, Counter(link_of), on_back, needed)


@dataclass(frozen=True)
class LinkState:
    """Of each link, for all rows: TCP's window, the last moment it was not silent, when it is free."""

    window: list[np.ndarray | None]
    silent: Moment
    free: Moment

    def copy(self) -> "LinkState":
        """Lists of its own, of the same arrays."""
        return replace(self, window=list(self.window), silent=list(self.silent), free=list(self.free))


@dataclass
class Round:
    """An exchange: when each site is through with the wire, and how it leaves the links.

    Attributes:
        overtakes: [rows] whether payloads come to a link in another order than they have in the routes.
        found: [rows] whether all times are right.
    """

    done: Moment
    state: LinkState
    overtakes: np.ndarray
    found: np.ndarray


def exchange(lines: Lines, of: Numbers, f: int, entered: Moment, posted: Moment, before: LinkState) -> Round:
    """Fragment f's exchange.

    Args:
        of: the numbers of `Walk.numbers`, rows last.
        entered: by each site. posted: when each site's notices left.
        before: the links.
    """
    spans: list[Span] | None = None
    found = np.zeros(len(entered[0]), dtype=bool)
    coupled = any(
        (of["alone"][f, link] != of["stream"][f, link]).any() for link in lines.load if lines.on_back[link]
    )
    for _ in range(2 * len(lines.link_of) + 2):
        once = _Pass(lines, of, f, entered, posted, before, spans)
        if not coupled or not lines.link_of:
            found[:] = True
        elif spans is not None:
            found = _same(spans, once.spans)
        spans = once.spans
        if found.all():
            break
    return Round(once.done, once.state, once.overtakes, found)


def _same(a: list[Span], b: list[Span]) -> np.ndarray:
    """Whether all transfers leave when they did: [rows]."""
    same = [np.abs(now[1] - then[1]) <= _TOGETHER * now[1] for then, now in zip(a, b, strict=True)]
    return np.asarray(np.logical_and.reduce(same))


class _Pass:
    """All transfers once, with what is known of the way back: this pass's times, or else the last one's."""

    def __init__(
        self,
        lines: Lines,
        of: Numbers,
        f: int,
        entered: Moment,
        posted: Moment,
        before: LinkState,
        known: list[Span] | None,
    ) -> None:
        self.lines, self.of, self.f, self.known = lines, of, f, known
        self.state = before.copy()
        self.done = list(entered)
        self.overtakes = np.zeros(len(entered[0]), dtype=bool)
        self.spans: list[Span] = []
        self.ready: dict[int, np.ndarray] = {}
        self.came = Counter[int]()
        self.acknowledged: dict[tuple[int, int], np.ndarray] = {}
        arrived: Moment = []
        first: Moment = []
        for k, transfer in enumerate(lines.problem.routes):
            link, need = lines.link_of[k], transfer.need
            flight = of["rtt"][link] / 2
            asked = entered[transfer.source]
            if need is not None:
                asked = np.maximum(asked, first[need])
            ready = np.maximum(asked, posted[transfer.target] + flight)
            taken, window = self._send(k, asked, ready)
            begin, end = self.spans[k]
            first.append(begin + self._slice_s(link, window) + flight if k in lines.needed else begin)
            if need is not None:
                last = of["share"][f] * of["payload"][f] * of["wire"][link]
                reached = np.minimum(of["rate"][link], of["alone"][f, link])
                pace = window_pace(of["limit"][f, link], of["rtt"][link])
                end = np.maximum(end, arrived[need] + last / np.minimum(reached, pace))
                self.state.silent[link] = np.maximum(self.state.silent[link], end)
            arrived.append(end + flight)
            self.done[transfer.source] = np.maximum(self.done[transfer.source], taken)
            self.done[transfer.target] = np.maximum(self.done[transfer.target], arrived[k])

    def _send(self, k: int, asked: np.ndarray, ready: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """A transfer over its link: when the kernel has taken it, and TCP's window at its start."""
        link, state, of, f = self.lines.link_of[k], self.state, self.of, self.f
        if link in self.ready:
            # Two that come together but for rounding may leave in either order.
            earlier = self.ready[link]
            self.overtakes |= (ready < earlier + _TOGETHER * earlier) & (ready != earlier)
        self.ready[link] = ready
        begin = np.maximum(ready, state.free[link])
        window = self._window(link, asked)
        size = of["payload"][f] * of["wire"][link]
        left = self._leaves(link, begin, size, window)
        place = self.came[link]
        self.came[link] += 1
        room = of["room"][f, link]
        if (room < self.lines.load[link]).any():
            self._mark(link, place, begin, size, window)
        state.window[link] = window_after(window, size, of["limit"][f, link])
        state.silent[link], state.free[link] = np.maximum(state.silent[link], left), left
        self.spans.append((begin, left))
        return np.maximum(ready, self.acknowledged.get((link, place), ready)), window

    def _slice_s(self, link: int, window: np.ndarray) -> np.ndarray:
        """How long a transfer's first slice takes its link."""
        of, f = self.of, self.f
        size = of["share"][f] * of["payload"][f] * of["wire"][link]
        laws = of["rate"][link], of["rtt"][link], window, of["limit"][f, link], of["stream"][f, link]
        took, rest, pace = slow_start(size, *laws, of["paced"][link])
        reached = np.minimum(of["rate"][link], of["alone"][f, link])
        return np.asarray(took + rest / np.minimum(reached, pace))

    def _window(self, link: int, asked: np.ndarray) -> np.ndarray:
        """TCP's window at a transfer's start."""
        first, window = self.of["first"][self.f, link], self.state.window[link]
        if window is None:
            return first
        idle = asked - self.state.silent[link]
        return np.asarray(
            window_restart(window, idle, first, self.of["rto"][link], self.of["restarts"][link])
        )

    def _mark(self, link: int, place: int, begin: np.ndarray, size: np.ndarray, window: np.ndarray) -> None:
        """When this transfer has made room for the payload that comes `room` places later."""
        whole, part = np.divmod(np.minimum(self.of["room"][self.f, link], self.lines.load[link]), 1.0)
        left = self._leaves(link, begin, (1.0 - part) * size, window)
        for later in range(place, self.lines.load[link]):
            is_it = place + whole == later
            if is_it.any():
                known = self.acknowledged.get((link, later), np.full(len(left), -np.inf))
                self.acknowledged[link, later] = np.where(is_it, left + self.of["rtt"][link], known)

    def _leaves(self, link: int, begin: np.ndarray, size: np.ndarray, window: np.ndarray) -> np.ndarray:
        """When the last of so many bytes leaves."""
        of, f = self.of, self.f
        laws = of["rate"][link], of["rtt"][link], window, of["limit"][f, link], of["stream"][f, link]
        took, rest, pace = slow_start(size, *laws, of["paced"][link])
        at = begin + took
        alone, opposed = (np.minimum(of[name][f, link], pace) for name in ("alone", "stream"))
        if self.lines.on_back[link] and (alone != opposed).any():
            for start, end in self._on_back(link):
                goes = np.minimum(np.maximum(start - at, 0.0), rest / alone)
                at, rest = at + goes, np.maximum(rest - alone * goes, 0.0)
                goes = np.minimum(np.maximum(end - at, 0.0), rest / opposed)
                at, rest = at + goes, np.maximum(rest - opposed * goes, 0.0)
        return np.asarray(at + rest / alone)

    def _on_back(self, link: int) -> Iterator[Span]:
        """When transfers are on the way back; of what is not known: always."""
        for k in self.lines.on_back[link]:
            if k < len(self.spans):
                yield self.spans[k]
            elif self.known is not None:
                yield self.known[k]
            else:
                ever = np.full(self.overtakes.shape, np.inf)
                yield -ever, ever
                return
