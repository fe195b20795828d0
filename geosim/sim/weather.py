"""How links change in a run: what varies as the scenario says, and outages that faults add.

Bandwidth changes at once for all that is on the way. Round trip and loss (and what follows from them:
windows, bytes that go twice) are those of the moment at which a transfer starts. A link that is down carries
nothing.
What was on it goes on at TCP's first retransmission after its return: these come one timeout after the stall
and then after twice the last wait, at most 120 s (RFC 6298, 5.5; Linux TCP_RTO_MAX). An outage below a round
trip costs its own length. Both directions of a link share their draws.
"""

import heapq
import math
from collections.abc import Generator, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import simpy

from geosim.cost.problem import LinkPlan
from geosim.cost.transport import make_path, wire_bytes
from geosim.scenario.varying import Condition
from geosim.sim.record import Tracer

if TYPE_CHECKING:
    from geosim.sim.exchange import Wan

_MOST_WAIT_S = 120.0
_STREAM = 2  # of random numbers, beside those of sites (0) and delays (1)
Process = Generator[simpy.Event, Any, None]


@dataclass(frozen=True)
class Patience:
    """How long a stalled exchange is waited for: `after_s` at a time, with `retries` more tries.

    The wait before a try is `backoff_s`, doubling. A try sends everything anew.
    """

    after_s: float = math.inf
    retries: int = 0
    backoff_s: float = 0.0

    @property
    def fails_after_s(self) -> float:
        """Seconds of stall after which the last try has failed."""
        return self.after_s * (self.retries + 1) + self.backoff_s * (2**self.retries - 1)

    def resumes_after(self, stall_s: float) -> float:
        """When a stall that lasts `stall_s` is over: at once, or when the next try begins."""
        start, wait = 0.0, self.backoff_s
        for _ in range(self.retries + 1):
            if stall_s < start + self.after_s:
                return max(stall_s, start)
            start, wait = start + self.after_s + wait, 2 * wait
        return stall_s


FOREVER = Patience()


def retransmits_after(outage_s: float, rtt_s: float, rto_s: float) -> float:
    """Seconds from the beginning of an outage until data flows again."""
    if outage_s < rtt_s:
        return outage_s
    at = wait = rto_s
    while at < outage_s:
        wait = min(2 * wait, _MOST_WAIT_S)
        at += wait
    return at


class Carrier(Protocol):
    """What carries the traffic of a run."""

    def set_rate(self, link: int, bytes_per_s: float) -> None:
        """From now on a link carries this much; 0: nothing."""

    def set_plan(self, link: int, plan: LinkPlan) -> None:
        """From now on transfers start under this plan."""

    def is_busy(self, link: int) -> bool:
        """Whether anything is on its way."""

    def restart(self, link: int) -> None:
        """What is on its way begins anew."""


class Weather:
    """The links of one run as they change.

    Attributes:
        failed_at_s: when a stalled exchange ran out of tries; infinite so far.
    """

    def __init__(
        self,
        env: simpy.Environment,
        links: tuple[LinkPlan, ...],
        names: tuple[str, ...],
        seed: int,
        carrier: Carrier,
        tracer: Tracer | None = None,
    ) -> None:
        self.patience = FOREVER
        self.failed_at_s = math.inf
        self._env, self._links, self._names = env, links, names
        self._carrier, self._tracer = carrier, tracer
        self._rate = [link.path.rate_bytes_per_s for link in links]
        self._plan = list(links)
        self._down = [0] * len(links)
        self._since = [math.inf] * len(links)
        self._down_since = [0.0] * len(links)
        for i, link in enumerate(links):
            if link.trace:
                env.process(self._follow(i, link.trace))
            if link.varying is not None:
                env.process(self._vary(i, seed))

    def fail(self, number: int, outages: tuple[tuple[float, float], ...]) -> None:
        """Take link `number` of the scenario down from each first to each second time, both ways."""
        for i, link in enumerate(self._links):
            if link.number == number and outages:
                self._env.process(self._fail(i, outages))

    def sent(self, link: int) -> None:
        """A transfer starts: on a link that is down it stalls from now on."""
        if self._down[link] and self._since[link] == math.inf:
            self._since[link] = self._env.now

    def _follow(self, i: int, trace: tuple[tuple[float, float], ...]) -> Process:
        for at, rate in trace:
            yield self._env.timeout(at - self._env.now)
            self._rate[i] = rate
            self._set_rate(i)

    def _vary(self, i: int, seed: int) -> Process:
        link = self._links[i]
        assert link.varying is not None
        source, up = self._names[link.source], True
        for at, conditions in _changes(link, seed):
            if at > self._env.now:
                yield self._env.timeout(at - self._env.now)
            now = link.varying.under(conditions)
            plan = replace(
                link,
                path=make_path(now, source, link.two_way),
                wire_per_payload=wire_bytes(1.0, now),
                jitter_s=now.jitter_s,
            )
            was = self._plan[i]
            if (plan.path, plan.wire_per_payload) != (was.path, was.wire_per_payload):
                self._plan[i] = plan
                self._carrier.set_plan(i, plan)
                if not link.trace:
                    self._rate[i] = plan.path.rate_bytes_per_s
                    self._set_rate(i)
            before, up = up, all(condition.up for condition in conditions)
            if before and not up:
                self._goes(i)
            elif up and not before:
                self._env.process(self._returns(i))

    def _fail(self, i: int, outages: tuple[tuple[float, float], ...]) -> Process:
        for start, end in outages:
            yield self._env.timeout(max(0.0, start - self._env.now))
            self._goes(i)
            yield self._env.timeout(max(0.0, end - self._env.now))
            self._env.process(self._returns(i))

    def _goes(self, i: int) -> None:
        self._down[i] += 1
        if self._down[i] == 1:
            self._down_since[i] = self._env.now
            self._since[i] = self._env.now if self._carrier.is_busy(i) else math.inf
            self._set_rate(i)

    def _returns(self, i: int) -> Process:
        """The link is back; what has stalled waits for its next try."""
        env = self._env
        if self._down[i] == 1 and self._since[i] < math.inf:
            path, patience = self._plan[i].path, self.patience
            stall = env.now - self._since[i]
            if stall < patience.after_s:
                over = min(retransmits_after(stall, path.rtt_s, path.rto_s), max(stall, patience.after_s))
            else:
                over = patience.resumes_after(stall)
                self._carrier.restart(i)
            if stall >= patience.fails_after_s:
                self.failed_at_s = min(self.failed_at_s, self._since[i] + patience.fails_after_s)
            if over > stall:
                yield env.timeout(over - stall)
        self._down[i] -= 1
        if self._down[i] == 0:
            self._since[i] = math.inf
            self._set_rate(i)
            if self._tracer is not None:
                name = f"link {self._links[i].name}"
                self._tracer.span(name, "faults", "outage", self._down_since[i], env.now)

    def _set_rate(self, i: int) -> None:
        self._carrier.set_rate(i, 0.0 if self._down[i] else self._rate[i])


def _changes(link: LinkPlan, seed: int) -> Iterator[tuple[float, list[Condition]]]:
    """The conditions of all variations of a link, at every change of one of them."""
    assert link.varying is not None
    kinds = link.varying.varies
    now = [Condition() for _ in kinds]

    def stream(k: int) -> Iterator[tuple[float, int, Condition]]:
        random = np.random.default_rng([seed, _STREAM, link.number, k])
        return ((at, k, condition) for at, condition in kinds[k].changes(random))

    for at, k, condition in heapq.merge(*(stream(k) for k in range(len(kinds))), key=lambda c: c[:2]):
        now[k] = condition
        yield at, list(now)


class WanCarrier:
    """The engine's network and what its transfers start under."""

    def __init__(self, wan: "Wan") -> None:
        self._wan = wan

    def set_rate(self, link: int, bytes_per_s: float) -> None:
        self._wan.network.set_capacity(link, bytes_per_s)

    def set_plan(self, link: int, plan: LinkPlan) -> None:
        self._wan.links[link] = plan
        self._wan.delays[link].delay_s = plan.path.rtt_s / 2

    def is_busy(self, link: int) -> bool:
        return self._wan.network.is_busy(link)

    def restart(self, link: int) -> None:
        self._wan.network.restart(link)
