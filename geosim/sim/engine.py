"""The run of a policy in events: a SimPy process a site, an exchange worker a site, a process a transfer.

A site walks `policy.schedule`: it computes (all steps up to the next event in one draw, so the cost does not
grow with K), encodes and hands over what leaves, and waits for what is due. Its worker takes one exchange at
a time, in order, as the runtime's background thread does: the wire, then decoding and the sum.
"""

from collections import deque
from collections.abc import Callable, Generator
from functools import lru_cache
from itertools import count
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import simpy

from geosim.cost.problem import Problem
from geosim.policy import next_interval
from geosim.policy.adapt import Fixed
from geosim.policy.schedule import next_cycle, start
from geosim.sim.exchange import Exchange, Wan
from geosim.sim.jitter import SiteJitter
from geosim.sim.lonely.rule import is_lonely, pays
from geosim.sim.record import PARTS, Record, Tracer

if TYPE_CHECKING:
    from geosim.sim.lonely.exchange import LonelyExchange

Steps = Generator[simpy.Event, Any, None]
Headers = list[tuple[int, int]]
Key = tuple[int, int]


def warm_up(problem: Problem) -> int:
    """Cycles before a run counts: until delays are filled and TCP windows have settled."""
    assert problem.plan is not None
    return 4 + 2 * max((getattr(o, "windows", 1) for o in problem.plan.overlaps), default=1)


class Engine:
    """One run with one seed.

    `at_once`: whether exchanges are worked out in one go (`sim.lonely`); None: where that is possible and
    saves time, and there is no tracer. It changes no number.
    """

    def __init__(
        self,
        problem: Problem,
        seed: int,
        windows: int,
        tracer: Tracer | None = None,
        at_once: bool | None = None,
    ) -> None:
        assert problem.plan is not None
        sites = len(problem.sites)
        self.problem = problem
        self.plan = problem.plan
        self.warm = warm_up(problem)
        self.tracer = tracer
        self.env = simpy.Environment()
        self.wan = Wan(self.env, problem, seed, tracer)
        self.jitter = [SiteJitter(seed, m, s.step_s, s.step_cv) for m, s in enumerate(problem.sites)]
        self.parts = [dict.fromkeys(PARTS, 0.0) for _ in range(sites)]
        self.ends = np.zeros((sites, self.warm + windows))
        self.steps = np.zeros(self.warm + windows, dtype=int)
        self.exchange_s: list[float] = []
        if at_once is None:
            at_once = tracer is None and is_lonely(problem) and pays(problem, len(self.steps))
        self._make: Callable[[Key], Exchange | LonelyExchange]
        self._make, self._carried = self._at_once() if at_once else (self._one_by_one, self.wan.carried)
        self._exchanges: dict[Key, Exchange | LonelyExchange] = {}
        self._results: list[dict[Key, simpy.Event]] = [{} for _ in range(sites)]
        self._jobs: list[deque[Key]] = [deque() for _ in range(sites)]
        self._bells = [self.env.event() for _ in range(sites)]
        self._last_exchange_s = [0.0] * sites
        self._warm_sites = 0
        self._counted: dict[int, dict[str, float]] = {}
        self._all_through = self.env.event()
        self._carried_at_warm: list[float] = []
        # All sites walk the same cycles.
        self._next_cycle = lru_cache(maxsize=64)(lambda state, k: next_cycle(state, self.plan, k))

    def run(self) -> Record:
        """Run to the end of the last window and return what came after the warm-up."""
        sites = range(len(self.problem.sites))
        for m in sites:
            self.env.process(self._worker(m))
            self.env.process(self._site(m))
        self.env.run(until=self._all_through)
        ends = self.ends.max(axis=0)
        base = self.warm - 1
        steps = np.diff(self.steps[base:])
        carried = [b - a for a, b in zip(self._carried_at_warm, self._carried(), strict=True)]
        parts = {p: float(np.mean([self._counted[m][p] for m in sites])) for p in PARTS}
        return Record(
            step_s=np.diff(ends[base:]) / steps,
            exchange_s=np.array(self.exchange_s),
            parts_s=parts,
            steps=int(steps.sum()),
            elapsed_s=float(ends[-1] - ends[base]),
            link_bytes=tuple(carried),
            site_parts_s=tuple(self._counted[m] for m in sites),
        )

    def _site(self, m: int) -> Steps:
        state, interval = start(self.plan), self.problem.policy.interval
        adapt = self.problem.policy.adapt
        done = 0
        for cycle in count():
            state, events = self._next_cycle(state, interval)
            headers: Headers = []
            for event in events:
                if event.step > done:
                    yield from self._compute(m, event.step - done)
                    done = event.step
                key = (event.fragment, event.round)
                if event.kind == "send":
                    yield from self._spend(m, "encode", self.problem.fragments[key[0]].encode_s[m], key)
                    self._hand_over(m, key)
                else:
                    headers = yield from self._apply(m, key)
            if state.step > done:
                yield from self._compute(m, state.step - done)
                done = state.step
            self._close(m, cycle, state.step)
            adapts = headers and not isinstance(adapt, Fixed)
            if adapts and all(exchange for exchange, _ in headers):
                interval = next_interval(adapt, interval, [h[0] for h in headers], [h[1] for h in headers])

    def _close(self, m: int, cycle: int, step: int) -> None:
        """A site is through with a cycle. What counts runs from the slowest's warm-up to its last window."""
        if cycle >= len(self.steps):
            return
        if self.tracer is not None:
            begun, steps = (self.ends[m, cycle - 1], step - self.steps[cycle - 1]) if cycle else (0.0, step)
            what = f"{'warm-up' if cycle < self.warm else 'window'} {steps} steps"
            self.tracer.span(self.problem.sites[m].name, "windows", what, begun, self.env.now)
        self.ends[m, cycle] = self.env.now
        self.steps[cycle] = step
        if cycle == self.warm - 1:
            self.parts[m] = dict.fromkeys(PARTS, 0.0)
            self._warm_sites += 1
            if self._warm_sites == len(self.problem.sites):
                self._carried_at_warm = self._carried()
        if cycle == len(self.steps) - 1:
            self._counted[m] = dict(self.parts[m])
            if len(self._counted) == len(self.problem.sites):
                self._all_through.succeed()

    def _compute(self, m: int, steps: int) -> Steps:
        site, now = self.problem.sites[m], self.env.now
        took = self.jitter[m].draw(steps)
        collective, update = steps * site.collective_s, steps * site.update_s
        parts = self.parts[m]
        parts["compute"] += took
        parts["site_collective"] += collective
        parts["update"] += update
        if self.tracer is not None:
            self.tracer.span(site.name, "train", f"compute {steps} steps", now, now + took)
            self.tracer.span(site.name, "train", "site collective", now + took, now + took + collective)
            self.tracer.span(
                site.name, "train", "update", now + took + collective, now + took + collective + update
            )
        yield self.env.timeout(took + collective + update)

    def _spend(self, m: int, part: str, seconds: float, key: Key) -> Steps:
        if seconds > 0:
            now = self.env.now
            yield self.env.timeout(seconds)
            self.parts[m][part] += seconds
            if self.tracer is not None:
                self.tracer.span(
                    self.problem.sites[m].name, "train", f"{part} {_name(key)}", now, self.env.now
                )

    def _hand_over(self, m: int, key: Key) -> None:
        step_us = round(self.problem.sites[m].step_s * 1e6)
        self._exchange(key).headers[m] = (round(self._last_exchange_s[m] * 1e6), step_us)
        self._results[m][key] = self.env.event()
        self._jobs[m].append(key)
        if not self._bells[m].triggered:
            self._bells[m].succeed()

    def _apply(self, m: int, key: Key) -> Generator[simpy.Event, Any, Headers]:
        fragment, now = self.problem.fragments[key[0]], self.env.now
        result = self._results[m][key]
        if not result.processed:
            yield result
        del self._results[m][key]
        waited = self.env.now - now
        self.parts[m]["wait"] += waited
        if self.tracer is not None:
            self.tracer.span(self.problem.sites[m].name, "train", f"wait {_name(key)}", now, self.env.now)
        yield from self._spend(m, "gather", fragment.gather_s[m], key)
        yield from self._spend(m, "apply", fragment.apply_s[m], key)
        return cast(Headers, result.value)

    def _exchange(self, key: Key) -> "Exchange | LonelyExchange":
        if key not in self._exchanges:
            self._exchanges[key] = self._make(key)
        return self._exchanges[key]

    def _one_by_one(self, key: Key) -> Exchange:
        return Exchange(self.wan, key[0], _name(key))

    def _at_once(self) -> "tuple[Callable[[Key], LonelyExchange], Callable[[], list[float]]]":
        from geosim.sim.lonely.exchange import LonelyExchange, LonelyWan

        lonely = LonelyWan(self.wan)
        return lambda key: LonelyExchange(lonely, key[0]), lonely.carried

    def _worker(self, m: int) -> Steps:
        env, site = self.env, self.problem.sites[m]
        for fragment in range(len(self.problem.fragments)):
            self._exchange((fragment, 0)).post(m)
        while True:
            if not self._jobs[m]:
                self._bells[m] = env.event()
                yield self._bells[m]
            key = self._jobs[m].popleft()
            began = env.now
            exchange = self._exchange(key)
            yield exchange.enter(m)
            arrived = env.now
            yield env.timeout(self.problem.overhead_s + exchange.plan.decode_s[m])
            self._exchange((key[0], key[1] + 1)).post(m)
            exchange.readers -= 1
            if exchange.readers == 0:
                del self._exchanges[key]
            self._last_exchange_s[m] = env.now - began
            if self._carried_at_warm:
                self.exchange_s.append(env.now - began)
            if self.tracer is not None:
                self.tracer.span(site.name, "exchange", f"transfer {_name(key)}", began, arrived)
                self.tracer.span(site.name, "exchange", f"decode {_name(key)}", arrived, env.now)
            self._results[m][key].succeed(exchange.headers)


def _name(key: Key) -> str:
    return f"fragment {key[0]} round {key[1]}"
