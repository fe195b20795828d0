"""An exchange in one go: it keeps what sites do until the last one has entered, then lets `lonely_kernel` play.

SimPy learns only when each site is through. What sites do while nothing is worked out yet (notices of the next
rounds, entries) is kept in order and played then, so that a link's random delays are drawn in the same order
as if each payload had gone by itself.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from math import inf, nextafter

import numpy as np
import simpy
from simpy.events import NORMAL

from geosim.cost.problem import FragmentPlan
from geosim.sim.exchange import Wan
from geosim.sim.lonely_kernel import ENTER, POST, play
from geosim.sim.lonely_state import Laws, Net, State, make_play

_AHEAD = 8  # exchanges whose random numbers are drawn together


@dataclass
class _Calls:
    """What sites have done: when, what, who, with which fragment."""

    at: list[float] = field(default_factory=list)
    kind: list[int] = field(default_factory=list)
    site: list[int] = field(default_factory=list)
    of: list[int] = field(default_factory=list)

    def add(self, at: float, kind: int, site: int, of: int) -> None:
        """One more."""
        self.at.append(at)
        self.kind.append(kind)
        self.site.append(site)
        self.of.append(of)

    def arrays(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """For the kernel."""
        return np.array(self.at), *(np.array(of, np.int64) for of in (self.kind, self.site, self.of))


class LonelyWan:
    """The links of a run, a whole exchange at a time."""

    def __init__(self, wan: Wan) -> None:
        problem = wan.problem
        self.env = wan.env
        self.sites = len(problem.sites)
        self.fragments = problem.fragments
        self._delays = wan.delays
        self._net = _net(wan)
        self._laws = [_laws(wan, fragment) for fragment in problem.fragments]
        self._random = np.flatnonzero(self._net.jitter)
        self._state = _fresh(self._net, len(problem.fragments))
        self._calls = _Calls()
        # The last exchange that was worked out, whose bytes may still be on their way: what it began with.
        self._last: tuple[State, int, _Calls] | None = None

    def post(self, site: int, fragment: int) -> None:
        """A site's buffers are free for a fragment's next round."""
        self._calls.add(self.env.now, POST, site, fragment)

    def enter(self, site: int, fragment: int) -> None:
        """A site's payloads leave from now on."""
        self._calls.add(self.env.now, ENTER, site, fragment)

    def work_out(self, fragment: int) -> tuple[list[int], list[float]]:
        """All sites are in: in which order they are through with the exchange, and when each of them is."""
        self._draw_ahead()
        self._last = self._state.copy(), fragment, self._calls
        done = self._play(self._state, fragment, self._calls, inf)
        self._state.missing[fragment] = self._net.missing
        self._calls = _Calls()
        return done

    def carried(self) -> list[float]:
        """Bytes that each link has carried so far."""
        if self._last is None:
            return [0.0] * len(self._net.rate)
        self._draw_ahead()
        begun, fragment, calls = self._last
        past, now = begun.copy(), self._state.copy()
        self._play(past, fragment, calls, self.env.now)
        now.carried[:] = past.carried
        entered = [of for of, kind in zip(self._calls.of, self._calls.kind, strict=True) if kind == ENTER]
        if entered:
            self._play(now, entered[0], self._calls, self.env.now)
        return [float(each) for each in now.carried]

    def _play(self, state: State, fragment: int, calls: _Calls, until: float) -> tuple[list[int], list[float]]:
        under_way = make_play(self._net)
        play(self._net, self._laws[fragment], state, under_way, fragment, calls.arrays(), until)
        return under_way.order.tolist(), under_way.done.tolist()

    def _draw_ahead(self) -> None:
        """See to it that there are random numbers for an exchange and for all notices that are kept."""
        if not len(self._random):
            return
        notices = 1 + max(np.bincount([s for s, k in zip(self._calls.site, self._calls.kind, strict=True) if k == POST], minlength=1))
        need = int(self._net.load.max()) * int(notices)
        if (self._state.drawn + need <= self._state.normals.shape[1]).all():
            return
        more = need * _AHEAD
        normals = np.zeros((len(self._net.rate), more))
        for link in self._random:
            left = self._state.normals[link, self._state.drawn[link] :]
            normals[link, : len(left)] = left
            normals[link, len(left) :] = self._delays[link].normals(more - len(left))
        self._state = self._state._replace(normals=normals, drawn=np.zeros_like(self._state.drawn))


class LonelyExchange:
    """One fragment's round, as `exchange.Exchange`."""

    def __init__(self, wan: LonelyWan, fragment: int) -> None:
        self.plan: FragmentPlan = wan.fragments[fragment]
        self.readers = wan.sites
        self.headers = [(0, 0)] * wan.sites
        self._wan = wan
        self._fragment = fragment
        self._outside = wan.sites
        self._done = [wan.env.event() for _ in range(wan.sites)]

    def post(self, site: int) -> None:
        """A site's buffers are free for this round."""
        self._wan.post(site, self._fragment)

    def enter(self, site: int) -> simpy.Event:
        """A site's payloads leave from now on; the event fires when it is through."""
        self._wan.enter(site, self._fragment)
        self._outside -= 1
        if not self._outside:
            order, done = self._wan.work_out(self._fragment)
            for m in order:
                _succeed_at(self._done[m], done[m])
        return self._done[site]


def _succeed_at(event: simpy.Event, at: float) -> None:
    """Let an event fire at that very time."""
    env = event.env
    delay = at - env.now
    if env.now + delay != at:
        delay = nextafter(delay, inf if env.now + delay < at else 0.0)
    event._ok, event._value = True, None
    env.schedule(event, NORMAL, delay)


def _net(wan: Wan) -> Net:
    links, routes = wan.problem.links, wan.problem.routes
    ways = {(link.source, link.target): i for i, link in enumerate(links)}
    load = [wan.load[i] for i in range(len(links))]
    out_of, into, later = (_flat(lists) for lists in (wan.out_of, wan.into, wan.later))
    return Net(
        rate=np.array([link.path.rate_bytes_per_s for link in links]),
        rtt=np.array([link.path.rtt_s for link in links]),
        rto=np.array([link.path.rto_s for link in links]),
        restarts=np.array([link.path.restarts for link in links]),
        delay=np.array([link.path.rtt_s / 2 for link in links]),
        jitter=np.array([link.jitter_s for link in links], float),
        back=_whole(ways.get((link.target, link.source), -1) for link in links),
        load=_whole(load),
        place=_whole(np.cumsum([0, *load[:-1]])),
        sender=_whole(link.source for link in links),
        link_of=_whole(wan.link_of),
        source=_whole(t.source for t in routes),
        target=_whole(t.target for t in routes),
        missing=_whole(2 if t.need is None else 3 for t in routes),
        out_of=out_of[0],
        out_of_at=out_of[1],
        into=into[0],
        into_at=into[1],
        later=later[0],
        later_at=later[1],
    )


def _laws(wan: Wan, fragment: FragmentPlan) -> Laws:
    paths, flows = [link.path for link in wan.problem.links], fragment.flows
    return Laws(
        flows=flows,
        size=np.array([fragment.payload_bytes * link.wire_per_payload for link in wan.problem.links], float),
        limit=np.array([path.window_limit(flows) for path in paths], float),
        first=np.array([path.initial_window(flows) for path in paths], float),
        stream=np.array([path.stream_rate(flows, alone=True) for path in paths], float),
        opposed=np.array([path.stream_rate(flows) for path in paths], float),
        held=np.array([wan.buffered(i, fragment.payload_bytes, flows) for i in range(len(paths))], float),
    )


def _fresh(net: Net, fragments: int) -> State:
    links = len(net.rate)
    return State(
        window=np.full(links, -1.0),
        silent=np.zeros(links),
        free=np.zeros(links),
        carried=np.zeros(links),
        ready=np.zeros((fragments, len(net.link_of))),
        missing=np.tile(net.missing, (fragments, 1)),
        normals=np.zeros((links, 0)),
        drawn=np.zeros(links, np.int64),
    )


def _whole(numbers: Iterable[int]) -> np.ndarray:
    return np.array(list(numbers), np.int64)


def _flat(lists: list[list[int]]) -> tuple[np.ndarray, np.ndarray]:
    """All entries of lists, and where each begins."""
    return _whole(i for each in lists for i in each), _whole(np.cumsum([0, *map(len, lists)]))
