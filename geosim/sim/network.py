"""Flows on shared links as a fluid: max-min fair rates that change as flows come, pause and go.

A link is any limit that flows share: one direction between two sites, or a site's way out or in. One `Flow`
stands for n equal TCP flows. In slow start it sends its window in a burst at its share and pauses until a
round trip has passed since the burst began; then the window has doubled. Once a burst takes a round trip, or
the window is at its limit, the rest streams (the law is `cost.transport.send_time`; here shares change under
way). Bytes are on the wire.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

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
        "stream",
        "window",
    )

    def __init__(self, route: tuple[int, ...], size_bytes: float, ramp: "Ramp", done: simpy.Event) -> None:
        self.route = route
        self.left = size_bytes
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
        self._flows: list[Flow] = []
        self._now = 0.0
        self._turn = 0

    def send(self, route: tuple[int, ...], size_bytes: float, ramp: Ramp) -> simpy.Event:
        """Start a transfer of `size_bytes` over links; the event fires when its last byte has left."""
        flow = Flow(route, size_bytes, ramp, self.env.event())
        self._advance()
        self._begin_round(flow)
        self._flows.append(flow)
        self._settle()
        return flow.done

    def set_capacity(self, link: int, bytes_per_s: float) -> None:
        """From now on a link carries this much."""
        self._advance()
        self.capacity[link] = bytes_per_s
        self._settle()

    def settle(self) -> None:
        """Bring `carried` up to now."""
        self._advance()

    def _begin_round(self, flow: Flow) -> None:
        flow.round_start = self.env.now
        flow.paused_until = -1.0
        in_ramp = flow.rtt_s > 0 and flow.window < flow.limit
        flow.burst = flow.window if in_ramp else math.inf

    def _advance(self) -> None:
        """Bring every flow's bytes up to now."""
        passed = self.env.now - self._now
        self._now = self.env.now
        if passed <= 0:
            return
        for flow in self._flows:
            if flow.rate > 0:
                moved = min(flow.rate * passed, flow.left)
                flow.left -= moved
                flow.burst -= moved
                for link in flow.route:
                    self.carried[link] += moved

    def _settle(self) -> None:
        """Let flows whose part is over move on, share the links anew, and set the next alarm."""
        now = self.env.now
        staying = []
        for flow in self._flows:
            tiny = _TINY_BYTES + flow.rate * _TINY_SHARE_OF_TIME * (1 + now)
            if flow.left <= tiny:
                for link in flow.route:
                    self.carried[link] += flow.left
                flow.done.succeed()
                continue
            if flow.paused_until >= 0 and flow.paused_until <= now:
                flow.window = min(2 * flow.window, flow.limit)
                self._begin_round(flow)
            elif flow.paused_until < 0 and flow.burst <= tiny:
                until = flow.round_start + flow.rtt_s
                if now >= until - _TINY * (1 + now):
                    flow.burst = math.inf
                else:
                    flow.paused_until = until
                    flow.burst = math.inf
            staying.append(flow)
        self._flows = staying
        moving = [f for f in staying if f.paused_until < 0]
        if len(moving) == 1:
            only = moving[0]
            only.rate = min(only.cap, *(self.capacity[link] for link in only.route))
        elif moving:
            rates = max_min_rates(
                [f.route for f in moving], [f.n for f in moving], [f.cap for f in moving], self.capacity
            )
            for flow, rate in zip(moving, rates, strict=True):
                flow.rate = rate
        following = math.inf
        for flow in staying:
            if flow.paused_until >= 0:
                flow.rate = 0.0
                following = min(following, flow.paused_until)
            elif flow.rate > 0:
                following = min(following, now + min(flow.left, flow.burst) / flow.rate)
        if self.observe is not None:
            self.observe(now, self._use())
        self._turn += 1
        if following < math.inf:
            alarm = simpy.Timeout(self.env, max(0.0, following - now), self._turn)
            assert alarm.callbacks is not None
            alarm.callbacks.append(self._on_alarm)

    def _on_alarm(self, alarm: simpy.Event) -> None:
        if alarm.value == self._turn:
            self._advance()
            self._settle()

    def _use(self) -> list[float]:
        use = [0.0] * len(self.capacity)
        for flow in self._flows:
            for link in flow.route:
                use[link] += flow.rate
        return use
