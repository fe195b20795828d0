"""Flows on shared links as a fluid: max-min fair rates that change as flows come, pause and go.

A link is any limit that flows share: one direction between two sites, or a site's way out or in. One `Flow`
stands for n equal TCP flows. In slow start it sends its window in a burst at its share and pauses until a
round trip has passed since the burst began; then the window has doubled. Once a burst takes a round trip, or
the window is at its limit, the rest streams (the law is `cost.transport.send_time`; here shares change under
way). A change concerns only the flows that share links with it, directly or through others. Bytes are on the
wire.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import cast

import simpy

_TINY = 1e-12
_TINY_BYTES = 1e-6
_TINY_SHARE_OF_TIME = 1e-15  # a few units in the last place of the clock


@dataclass(frozen=True)
class Ramp:
    """How n equal TCP flows start: round trip, window now and at most (of all), rate once it is full."""

    flows: int = 1
    rtt_s: float = 0.0
    window: float = math.inf
    limit: float = math.inf
    stream: float = math.inf


class Flow:
    """n equal TCP flows with one transfer: what is left of it and how fast it goes now."""

    __slots__ = (
        "burst",
        "done",
        "left",
        "limit",
        "n",
        "paused_until",
        "rate",
        "round_start",
        "route",
        "rtt_s",
        "since",
        "size",
        "stream",
        "turn",
        "window",
    )

    def __init__(self, route: tuple[int, ...], size_bytes: float, ramp: "Ramp", done: simpy.Event) -> None:
        self.route = route
        self.size = self.left = size_bytes
        self.n = ramp.flows
        self.rtt_s = ramp.rtt_s
        self.window = min(ramp.window, ramp.limit)
        self.limit = ramp.limit
        self.stream = ramp.stream
        self.done = done
        self.rate = 0.0
        self.round_start = 0.0
        self.paused_until = -1.0
        self.burst = math.inf
        self.since = 0.0
        self.turn = 0

    @property
    def cap(self) -> float:
        """The most that goes per second once out of slow start; no bound inside a burst."""
        return math.inf if self.burst < math.inf else self.stream


def max_min_rates(
    routes: Sequence[tuple[int, ...]],
    weights: Sequence[float],
    caps: Sequence[float],
    capacity: Sequence[float],
) -> list[float]:
    """Weighted max-min fair rates by progressive filling (Bertsekas and Gallager, Data Networks, 6.5.2).

    Args:
        routes: for each flow the links that it uses.
        weights: a flow counts as this many.
        caps: no flow goes faster than this.
        capacity: of each link.
    """
    rates = [0.0] * len(routes)
    left = list(capacity)
    open_flows = set(range(len(routes)))
    while open_flows:
        load: dict[int, float] = {}
        for f in open_flows:
            for link in routes[f]:
                load[link] = load.get(link, 0.0) + weights[f]
        level = min((left[link] / w for link, w in load.items()), default=math.inf)
        bound = min(caps[f] / weights[f] for f in open_flows)
        if bound <= level:
            fixed = [f for f in open_flows if caps[f] / weights[f] <= bound]
            level = bound
        else:
            full = {link for link, w in load.items() if left[link] / w <= level * (1 + _TINY)}
            fixed = [f for f in open_flows if not full.isdisjoint(routes[f])]
        for f in sorted(fixed):
            rates[f] = weights[f] * level
            open_flows.discard(f)
            for link in routes[f]:
                left[link] = max(0.0, left[link] - rates[f])
    return rates


class Network:
    """Links with capacities, and the flows on them."""

    def __init__(self, env: simpy.Environment, capacity: Sequence[float]) -> None:
        self.env = env
        self.capacity = list(capacity)
        self.carried = [0.0] * len(self.capacity)
        self.observe: Callable[[float, list[float]], None] | None = None
        self._on: list[dict[Flow, None]] = [{} for _ in self.capacity]

    def send(self, route: tuple[int, ...], size_bytes: float, ramp: Ramp) -> simpy.Event:
        """Start a transfer of `size_bytes` over links; the event fires when its last byte has left."""
        flow = Flow(route, size_bytes, ramp, self.env.event())
        flow.since = self.env.now
        self._begin_round(flow)
        for link in route:
            self._on[link][flow] = None
        self._share(self._neighbours(route))
        return flow.done

    def set_capacity(self, link: int, bytes_per_s: float) -> None:
        """From now on a link carries this much."""
        flows = self._neighbours((link,))
        for flow in flows:
            self._advance(flow)
        self.capacity[link] = bytes_per_s
        self._share(flows)

    def is_busy(self, link: int) -> bool:
        """Whether any transfer is on a link."""
        return bool(self._on[link])

    def restart(self, link: int) -> None:
        """Transfers on a link begin again from their first byte; what went before was carried in vain."""
        flows = self._neighbours((link,))
        for flow in flows:
            self._advance(flow)
        for flow in self._on[link]:
            flow.left = flow.size
            self._begin_round(flow)
        self._share(flows)

    def settle(self) -> None:
        """Bring `carried` up to now."""
        for flow in dict.fromkeys(flow for flows in self._on for flow in flows):
            self._advance(flow)

    def _begin_round(self, flow: Flow) -> None:
        flow.round_start = self.env.now
        flow.paused_until = -1.0
        full = flow.rtt_s * min(self.capacity[link] for link in flow.route)
        down = full == 0 < flow.rtt_s
        if flow.window < (flow.limit if down else min(flow.limit, full * (1 - _TINY))):
            flow.burst = flow.window
        else:
            flow.burst = full if flow.limit >= full > 0 else math.inf

    def _neighbours(self, route: tuple[int, ...]) -> list[Flow]:
        """The flows that share links with a route, directly or through others."""
        if len(route) == 1 and all(len(flow.route) == 1 for flow in self._on[route[0]]):
            return list(self._on[route[0]])
        flows: dict[Flow, None] = {}
        links = list(route)
        seen = set(route)
        while links:
            for flow in self._on[links.pop()]:
                if flow not in flows:
                    flows[flow] = None
                    fresh = [link for link in flow.route if link not in seen]
                    seen.update(fresh)
                    links += fresh
        return list(flows)

    def _advance(self, flow: Flow) -> None:
        """Bring a flow's bytes up to now."""
        now = self.env.now
        if flow.rate > 0 and now > flow.since:
            moved = min(flow.rate * (now - flow.since), flow.left)
            flow.left -= moved
            flow.burst -= moved
            for link in flow.route:
                self.carried[link] += moved
        flow.since = now

    def _on_alarm(self, alarm: simpy.Event) -> None:
        flow, turn = cast(tuple[Flow, int], alarm.value)
        if turn == flow.turn:
            flows = self._neighbours(flow.route)
            self._advance(flow)
            if self._is_through(flow):
                flows.remove(flow)
            self._share(flows)

    def _is_through(self, flow: Flow) -> bool:
        """Let a flow whose part is over move on; whether the whole transfer is."""
        now = self.env.now
        tiny = _TINY_BYTES + flow.rate * _TINY_SHARE_OF_TIME * (1 + now)
        if flow.left <= tiny:
            for link in flow.route:
                self.carried[link] += flow.left
                del self._on[link][flow]
            flow.turn += 1
            flow.done.succeed()
            return True
        if flow.paused_until >= 0:
            if flow.paused_until <= now:
                flow.window = min(2 * flow.window, flow.limit)
                self._begin_round(flow)
        elif flow.burst <= tiny:
            until = flow.round_start + flow.rtt_s
            flow.burst = math.inf
            if now < until - _TINY * (1 + now):
                flow.paused_until = until
        return False

    def _share(self, flows: list[Flow]) -> None:
        """Give flows their rates from now on, and set their next alarms."""
        for flow in flows:
            self._advance(flow)
        moving = [f for f in flows if f.paused_until < 0]
        rates: list[float] = []
        if len(moving) == 1:
            only = moving[0]
            rates = [min(only.cap, *(self.capacity[link] for link in only.route))]
        elif moving:
            rates = max_min_rates(
                [f.route for f in moving], [f.n for f in moving], [f.cap for f in moving], self.capacity
            )
        for flow, rate in zip(moving, rates, strict=True):
            flow.rate = rate
            if rate > 0:
                self._set_alarm(flow, min(flow.left, flow.burst) / rate)
            else:  # a link is down: whoever brings it back shares again
                flow.turn += 1
        for flow in flows:
            if flow.paused_until >= 0:
                flow.rate = 0.0
                self._set_alarm(flow, flow.paused_until - self.env.now)
        if self.observe is not None:
            self.observe(self.env.now, [sum(flow.rate for flow in on) for on in self._on])

    def _set_alarm(self, flow: Flow, delay_s: float) -> None:
        flow.turn += 1
        alarm = simpy.Timeout(self.env, max(0.0, delay_s), (flow, flow.turn))
        assert alarm.callbacks is not None
        alarm.callbacks.append(self._on_alarm)
