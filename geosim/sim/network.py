"""Flows on shared links as a fluid: max-min fair rates that change as flows come, pause and go.

A link is any limit that flows share: one direction between two sites, or a site's way out or in. One `Flow`
stands for n equal TCP flows. In slow start it sends its window in a burst at its share and pauses until a
round trip has passed since the burst began; then the window has doubled. Once a burst takes a round trip, or
the window is at its limit, the rest streams (the law is `cost.transport.send_time`; here shares change under
way). A link may have another for the way back: its flows stream at another rate while anything is on that
one, from its first byte's leaving to its last byte's. Bytes are on the wire.

Flows that share links, directly or through others, have one alarm, for the first of them whose part is over;
a flow that meets no other goes through its bursts at once and has one alarm, at its mark or
its end. What happens at one instant is followed by one new sharing, of the flows that it concerns.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from copy import copy
from dataclasses import dataclass
from functools import lru_cache
from typing import cast

import simpy
from simpy.events import EventPriority

_TINY = 1e-12
_TINY_BYTES = 1e-6
_TINY_SHARE_OF_TIME = 1e-15  # a few units in the last place of the clock
_LAST = EventPriority(2)  # of an instant, after SimPy's own 0 and 1


@dataclass(frozen=True)
class Ramp:
    """How n equal TCP flows start: round trip, window now and at most (of all), rate once it is full.

    `opposed` is that rate while flows are on the way back.
    """

    flows: int = 1
    rtt_s: float = 0.0
    window: float = math.inf
    limit: float = math.inf
    stream: float = math.inf
    opposed: float = math.inf


class Flow:
    """n equal TCP flows with one transfer: what is left of it and how fast it goes now.

    Attributes:
        full: bytes that the narrowest of its links carries in a round trip.
        since: when `left` and `burst` were true.
        alone: whether it meets no other flow and goes through its bursts without further alarms.
        is_opposed: whether flows are on the way back.
        mark: an event that fires once no more than `mark_left` is left; None once it has.
    """

    __slots__ = (
        "alarm",
        "alone",
        "burst",
        "done",
        "full",
        "is_opposed",
        "left",
        "limit",
        "mark",
        "mark_left",
        "n",
        "opposed",
        "paused_until",
        "rate",
        "round_start",
        "route",
        "rtt_s",
        "since",
        "size",
        "stream",
        "window",
    )

    def __init__(
        self, route: tuple[int, ...], size_bytes: float, ramp: Ramp, full: float, now: float
    ) -> None:
        self.route = route
        self.size = self.left = size_bytes
        self.n = ramp.flows
        self.rtt_s = ramp.rtt_s
        self.window = min(ramp.window, ramp.limit)
        self.limit = ramp.limit
        self.stream = ramp.stream
        self.opposed = min(ramp.stream, ramp.opposed)
        self.is_opposed = False
        self.mark: simpy.Event | None = None
        self.mark_left = 0.0
        self.full = full
        self.done: simpy.Event | None = None
        self.alarm: simpy.Event | None = None
        self.alone = False
        self.rate = 0.0
        self.since = now
        self.begin_round(now)

    @property
    def cap(self) -> float:
        """The most that goes per second once out of slow start; no bound inside a burst."""
        if self.burst < math.inf:
            return math.inf
        return self.opposed if self.is_opposed else self.stream

    def begin_round(self, now: float) -> None:
        """From now on a window leaves at once, or what fills the path, or all that is left."""
        self.round_start = now
        self.paused_until = -1.0
        down = self.full == 0 < self.rtt_s
        if self.window < (self.limit if down else min(self.limit, self.full * (1 - _TINY))):
            self.burst = self.window
        else:
            self.burst = self.full if self.limit >= self.full > 0 else math.inf

    def advance(self, now: float) -> float:
        """Bring the bytes up to now; how many have moved."""
        moved = 0.0
        if self.rate > 0 and now > self.since:
            moved = min(self.rate * (now - self.since), self.left)
            self.left -= moved
            self.burst -= moved
        self.since = now
        return moved

    def reach_mark(self, now: float) -> None:
        """Fire the mark if what it stands for has left."""
        if self.mark is not None and self.left - self.mark_left <= self._tiny(now):
            self.mark.succeed()
            self.mark = None

    def _tiny(self, now: float) -> float:
        """Bytes that are as good as none."""
        return _TINY_BYTES + self.rate * _TINY_SHARE_OF_TIME * (1 + now)

    def is_through(self, now: float) -> bool:
        """Let a flow whose part is over move on; whether the whole transfer is."""
        tiny = self._tiny(now)
        if self.left <= tiny:
            return True
        if self.paused_until >= 0:
            if self.paused_until <= now:
                self.window = min(2 * self.window, self.limit)
                self.begin_round(now)
        elif self.burst <= tiny:
            until = self.round_start + self.rtt_s
            self.burst = math.inf
            if now < until - _TINY * (1 + now):
                self.paused_until = until
        return False

    def part_ends(self, rate: float) -> float:
        """When the burst, the pause or the transfer is over at a rate from `since` on; the rate is set."""
        if self.paused_until >= 0:
            self.rate = 0.0
            return self.paused_until
        self.rate = rate
        ahead = min(self.left, self.burst)
        if self.mark is not None and not self.alone and self.left > self.mark_left:
            ahead = min(ahead, self.left - self.mark_left)
        return self.since + ahead / rate if rate > 0 else math.inf

    def run(self, rate: float, until: float) -> None:
        """Go through bursts and pauses at the rate of links without other flows, to a time or the end."""
        while True:
            end = self.part_ends(min(self.cap, rate))
            if end > until or end == math.inf:
                self.advance(until)
                return
            self.advance(end)
            if self.is_through(end):
                return


@lru_cache(maxsize=4096)
def time_alone(size_bytes: float, ramp: Ramp, rate: float, is_opposed: bool) -> float:
    """Seconds of a transfer over links without other flows."""
    flow = Flow((), size_bytes, ramp, ramp.rtt_s * rate, 0.0)
    flow.is_opposed = is_opposed
    flow.run(rate, math.inf)
    return flow.since


def max_min_rates(
    routes: Sequence[tuple[int, ...]],
    weights: Sequence[float],
    caps: Sequence[float],
    capacity: Sequence[float],
) -> list[float]:
    """Weighted max-min fair rates by progressive filling (Bertsekas and Gallager, Data Networks, 6.5.2).

    Each round fixes the flows that reach their own cap, or those on the links that are full first; what they
    take leaves the links that they use.

    Args:
        routes: for each flow the links that it uses.
        weights: a flow counts as this many.
        caps: no flow goes faster than this.
        capacity: of each link.
    """
    rates = [0.0] * len(routes)
    load: dict[int, float] = {}
    users: dict[int, list[int]] = {}
    for f, route in enumerate(routes):
        for link in route:
            load[link] = load.get(link, 0.0) + weights[f]
            users.setdefault(link, []).append(f)
    left = {link: capacity[link] for link in load}
    is_open = [True] * len(routes)
    bounds = [cap / weight for cap, weight in zip(caps, weights, strict=True)]
    by_bound = sorted(range(len(routes)), key=bounds.__getitem__, reverse=True)
    while by_bound:
        level = min((left[link] / w for link, w in load.items()), default=math.inf)
        bound = bounds[by_bound[-1]]
        if bound <= level:
            level, fixed = bound, [f for f in by_bound if bounds[f] == bound]
        else:
            full = [link for link, w in load.items() if left[link] / w <= level * (1 + _TINY)]
            fixed = list(dict.fromkeys(f for link in full for f in users[link] if is_open[f]))
        for f in fixed:
            rates[f] = rate = weights[f] * level
            is_open[f] = False
            for link in routes[f]:
                left[link] = max(0.0, left[link] - rate)
                load[link] -= weights[f]
        by_bound = [f for f in by_bound if is_open[f]]
        load = {link: w for link, w in load.items() if any(is_open[f] for f in users[link])}
    return rates


class Network:
    """Links with capacities, and the flows on them.

    `backs`: of the first links the number of the way back, or None; flows start on those alone.
    """

    def __init__(
        self, env: simpy.Environment, capacity: Sequence[float], backs: Sequence[int | None] = ()
    ) -> None:
        self.env = env
        self._backs = [*backs, *[None] * (len(capacity) - len(backs))]
        self.capacity = list(capacity)
        self.carried = [0.0] * len(self.capacity)
        self.observe: Callable[[float, list[float]], None] | None = None
        self._on: list[dict[Flow, None]] = [{} for _ in self.capacity]
        self._changed: dict[Flow, None] = {}
        self._is_due = False

    def send(
        self,
        route: tuple[int, ...],
        size_bytes: float,
        ramp: Ramp,
        mark: tuple[float, simpy.Event] | None = None,
    ) -> simpy.Event:
        """Start a transfer of `size_bytes` over links; the event fires when its last byte has left.

        `mark`: after how many bytes another event fires.
        """
        rate = self._narrowest(route)
        flow = Flow(route, size_bytes, ramp, ramp.rtt_s * rate, self.env.now)
        flow.done = self.env.event()
        if mark is not None:
            flow.mark_left, flow.mark = size_bytes - mark[0], mark[1]
        back = self._backs[route[0]]
        if back is not None:
            flow.is_opposed = bool(self._on[back])
            if not self._on[route[0]]:
                self._oppose(back, True)
        meets = False
        for link in route:
            meets = meets or bool(self._on[link])
            self._on[link][flow] = None
        if meets or self.observe is not None:
            self._change((flow,))
        else:
            flow.alone = True
            self._set_alarm([flow], time_alone(size_bytes - flow.mark_left, ramp, rate, flow.is_opposed))
        return flow.done

    def _oppose(self, link: int, is_opposed: bool) -> None:
        """Something is on the way back of a link from now on, or nothing any more."""
        changed = [flow for flow in self._on[link] if flow.opposed != flow.stream]
        for flow in changed:
            self._advance(flow)
            flow.is_opposed = is_opposed
        if changed:
            self._change(changed)

    def set_capacity(self, link: int, bytes_per_s: float) -> None:
        """From now on a link carries this much."""
        for flow in self._on[link]:
            self._advance(flow)
        self.capacity[link] = bytes_per_s
        for flow in self._on[link]:
            flow.full = flow.rtt_s * self._narrowest(flow.route)
        self._change(self._on[link])

    def is_busy(self, link: int) -> bool:
        """Whether any transfer is on a link."""
        return bool(self._on[link])

    def restart(self, link: int) -> None:
        """Transfers on a link begin again from their first byte; what went before was carried in vain."""
        for flow in self._on[link]:
            self._advance(flow)
            flow.left = flow.size
            flow.begin_round(self.env.now)
        self._change(self._on[link])

    def carried_by_now(self) -> list[float]:
        """Bytes that each link has carried so far. Asking changes nothing, not even by rounding."""
        carried = list(self.carried)
        for flow in dict.fromkeys(flow for flows in self._on for flow in flows):
            moved = self._moved(copy(flow))
            for link in flow.route:
                carried[link] += moved
        return carried

    def _narrowest(self, route: tuple[int, ...]) -> float:
        return min([self.capacity[link] for link in route])

    def _moved(self, flow: Flow) -> float:
        """Bring a flow's bytes up to now; how many have moved."""
        if not flow.alone:
            return flow.advance(self.env.now)
        before = flow.left
        flow.run(self._narrowest(flow.route), self.env.now)
        return before - flow.left

    def _advance(self, flow: Flow) -> None:
        """Bring a flow's bytes, and those that its links have carried, up to now."""
        moved = self._moved(flow)
        for link in flow.route:
            self.carried[link] += moved
        flow.reach_mark(self.env.now)

    def _change(self, flows: Iterable[Flow]) -> None:
        """Share anew between some flows and all that they meet, once all else of this instant is done."""
        self._changed.update(dict.fromkeys(flows))
        if not self._is_due:
            self._is_due = True
            instant_ends = _InstantEnds(self.env)
            instant_ends.callbacks.append(self._share_all)

    def _share_all(self, _: simpy.Event) -> None:
        changed, self._changed, self._is_due = self._changed, {}, False
        shared: set[Flow] = set()
        for flow in changed:
            if flow not in shared and flow in self._on[flow.route[0]]:
                flows = self._neighbours(flow)
                shared.update(flows)
                self._share(flows)
        if self.observe is not None:
            self.observe(self.env.now, [sum(flow.rate for flow in on) for on in self._on])

    def _neighbours(self, flow: Flow) -> list[Flow]:
        """A flow and those that share links with it, directly or through others."""
        flows: dict[Flow, None] = {}
        links = list(flow.route)
        seen = set(links)
        while links:
            for other in self._on[links.pop()]:
                if other not in flows:
                    flows[other] = None
                    if len(other.route) > 1:
                        fresh = [link for link in other.route if link not in seen]
                        seen.update(fresh)
                        links += fresh
        return list(flows)

    def _share(self, flows: list[Flow]) -> None:
        """Give flows their rates from now on, and set their next alarm."""
        now = self.env.now
        for flow in flows:
            self._advance(flow)
            if flow.alarm is not None and flow.alarm.callbacks is not None:
                flow.alarm.callbacks.clear()
            flow.alone = False
        if len(flows) == 1 and self.observe is None:
            flows[0].alone = True
            self._look_ahead(flows[0])
            return
        moving = [f for f in flows if f.paused_until < 0]
        rates = max_min_rates(
            [f.route for f in moving], [f.n for f in moving], [f.cap for f in moving], self.capacity
        )
        ends = [f.part_ends(rate) for f, rate in zip(moving, rates, strict=True)]
        ends += [f.part_ends(0.0) for f in flows if f.paused_until >= 0]
        self._set_alarm(flows, min(ends) - now)

    def _look_ahead(self, flow: Flow) -> None:
        """Set the alarm of a flow that meets no other: at its mark, or at its end."""
        ahead = copy(flow)
        if ahead.mark is not None:
            ahead.mark = None
            ahead.left -= ahead.mark_left
        ahead.run(self._narrowest(flow.route), math.inf)
        self._set_alarm([flow], ahead.since - self.env.now)

    def _set_alarm(self, flows: list[Flow], delay_s: float) -> None:
        if delay_s == math.inf:
            return
        alarm = simpy.Timeout(self.env, max(0.0, delay_s), flows)
        alarm.callbacks.append(self._on_alarm)
        for flow in flows:
            flow.alarm = alarm

    def _on_alarm(self, alarm: simpy.Event) -> None:
        flows = cast(list[Flow], alarm.value)
        alone = flows[0] if flows[0].alone else None
        if alone is not None and alone.mark is None:
            self._end(alone)
            return
        for flow in flows:
            self._advance(flow)
        if alone is not None:
            self._look_ahead(alone)
            return
        now = self.env.now
        through = [flow for flow in flows if flow.is_through(now)]
        for flow in through:
            self._end(flow)
        self._change(flows)

    def _end(self, flow: Flow) -> None:
        """A transfer is through."""
        for link in flow.route:
            self.carried[link] += flow.left
            del self._on[link][flow]
        back = self._backs[flow.route[0]]
        if back is not None and not self._on[flow.route[0]]:
            self._oppose(back, False)
        assert flow.done is not None
        flow.done.succeed()


class _InstantEnds(simpy.Event):
    """Happens now, after all else that happens now."""

    def __init__(self, env: simpy.Environment) -> None:
        super().__init__(env)
        self._ok, self._value = True, None
        env.schedule(self, _LAST)
