"""An exchange in one go: it keeps what sites do until the last one has entered, then lets `play` play.

SimPy learns only when each site is through. What sites do while nothing is worked out yet (notices of the
next rounds, entries) is kept in order and played then, so that a link's random delays are drawn in the same
order as if each payload had gone by itself.
"""

from collections import Counter
from math import inf

import numpy as np
import simpy
from simpy.events import NORMAL

from geosim.cost.problem import FragmentPlan
from geosim.sim.exchange import Wan
from geosim.sim.lonely.play import ENTER, POST, play
from geosim.sim.lonely.state import State, laws_of, make_state

_AHEAD = 8  # exchanges whose random numbers are drawn together

Call = tuple[float, int, int, int]  # when, what, who, with which fragment


class LonelyWan:
    """The links of a run, a whole exchange at a time."""

    def __init__(self, wan: Wan) -> None:
        self.env = wan.env
        self.sites = len(wan.problem.sites)
        self.fragments = wan.problem.fragments
        self._delays = wan.delays
        self._laws = [laws_of(wan, fragment) for fragment in self.fragments]
        self._state = make_state(wan)
        self._random = np.flatnonzero(self._state.links["jitter"])
        self._calls: list[Call] = []
        # The last exchange that was worked out, whose bytes may still be on their way: what it began with.
        self._last: tuple[State, int, list[Call]] | None = None

    def call(self, kind: int, site: int, fragment: int) -> None:
        """A site's buffers are free for a fragment's next round, or its payloads leave from now on."""
        self._calls.append((self.env.now, kind, site, fragment))

    def work_out(self, fragment: int) -> list[tuple[int, float]]:
        """All sites are in: they and when they are through, in the order in which they are."""
        self._draw_ahead()
        state, calls = self._state, self._calls
        self._last, self._calls = (state.copy(), fragment, calls), []
        self._play(state, fragment, calls, inf)
        state.notices["missing"][fragment] = state.transfers["needs"]
        done = state.sites["done"].tolist()
        return [(m, done[m]) for m in np.argsort(state.sites["order"]).tolist()]

    def carried(self) -> list[float]:
        """Bytes that each link has carried so far."""
        self._draw_ahead()
        now = self._state.copy()
        if self._last is not None:
            begun, fragment, calls = self._last
            past = begun.copy()
            self._play(past, fragment, calls, self.env.now)
            now.links["carried"] = past.links["carried"]
        entered = [fragment for _, kind, _, fragment in self._calls if kind == ENTER]
        if entered:
            self._play(now, entered[0], self._calls, self.env.now)
        return now.links["carried"][:-1].tolist()

    def _play(self, state: State, fragment: int, calls: list[Call], until: float) -> None:
        for name, values in self._laws[fragment].items():
            state.links[name][:-1] = values
        at, *who = (np.array(column) for column in zip(*calls, strict=True))
        play(state, fragment, at, *who, until)

    def _draw_ahead(self) -> None:
        """See to it that there are random numbers for an exchange and for all notices that are kept."""
        if not len(self._random):
            return
        drawn, normals = self._state.links["drawn"], self._state.normals
        notices = Counter(site for _, kind, site, _ in self._calls if kind == POST)
        need = int(self._state.links["load"].max()) * (1 + max(notices.values(), default=0))
        if int(drawn.max()) + need <= normals.shape[1]:
            return
        fresh = np.zeros((len(normals), max(need * _AHEAD, normals.shape[1])))
        for link in self._random:
            left = normals[link, drawn[link] :]
            fresh[link, : len(left)] = left
            fresh[link, len(left) :] = self._delays[link].normals(fresh.shape[1] - len(left))
        drawn[:] = 0
        self._state = self._state._replace(normals=fresh)


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
        self._wan.call(POST, site, self._fragment)

    def enter(self, site: int) -> simpy.Event:
        """A site's payloads leave from now on; the event fires when it is through."""
        self._wan.call(ENTER, site, self._fragment)
        self._outside -= 1
        if not self._outside:
            for m, done in self._wan.work_out(self._fragment):
                _succeed_at(self._done[m], done)
        return self._done[site]


def _succeed_at(event: simpy.Event, at: float) -> None:
    """Let an event fire at that very time, not where rounding puts now and what is left until then."""
    env = event.env
    delay = at - env.now
    if env.now + delay != at:
        # What is left of less than the time that has passed is exact (Sterbenz).
        nearer = env.timeout(0.75 * delay)
        assert nearer.callbacks is not None
        nearer.callbacks.append(lambda _: _succeed_at(event, at))
        return
    event._ok, event._value = True, None
    env.schedule(event, NORMAL, delay)
