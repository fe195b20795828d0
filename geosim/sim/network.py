"""Flows on shared links as a fluid: max-min fair rates that change as flows come, pause and go.

A link is any limit that flows share: one direction between two sites, or a site's way out or in. A link may
have another for the way back: its flows stream at another rate while anything is on that one, from its first
byte's leaving to its last byte's. What a flow does alone is in `sim.flow`.

Flows that share links, directly or through others, have one alarm, for the first of them whose part is over;
a flow that meets no other goes through its bursts at once and has one alarm, at its mark or
its end. What happens at one instant is followed by one new sharing, of the flows that it concerns.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from copy import copy
from typing import cast

import simpy
from simpy.events import EventPriority

from geosim.sim.flow import TINY, Flow, Ramp, time_alone

_LAST = EventPriority(2)  # of an instant, after SimPy's own 0 and 1


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
            full = [link for link, w in load.items() if left[link] / w <= level * (1 + TINY)]
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
            flow.fit(flow.rtt_s * self._narrowest(flow.route))
        self._change(self._on[link])

    def is_busy(self, link: int) -> bool:
        """Whether any transfer is on a link."""
        return bool(self._on[link])

    def restart(self, link: int) -> None:
        """Transfers on a link begin again from their first byte; what went before was carried in vain."""
        for flow in self._on[link]:
            self._advance(flow)
            flow.left = flow.size
            flow.begin(self.env.now)
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
        if len(route) == 1:
            return self.capacity[route[0]]
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
        if len(flows) > 1:
            for flow in flows:
                flow.give_up_bursts()
        moving = [f for f in flows if f.paused_until < 0]
        rates = max_min_rates(
            [f.route for f in moving], [f.n for f in moving], [f.cap for f in moving], self.capacity
        )
        ends = [f.part_ends(rate) for f, rate in zip(moving, rates, strict=True)]
        ends += [f.part_ends(0.0) for f in flows if f.paused_until >= 0]
        self._set_alarm(flows, min(ends) - now)

    def _look_ahead(self, flow: Flow) -> None:
        """Set the alarm of a flow that meets no other: at its mark, or at its end."""
        left = flow.left if flow.mark is None else flow.left - flow.mark_left
        ends = flow.ends(left, self._narrowest(flow.route))
        self._set_alarm([flow], ends - self.env.now)

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
