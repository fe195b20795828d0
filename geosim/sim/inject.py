"""Faults at stated times in a run: slow sites and dead links. Losses end a run and are counted elsewhere."""

from dataclasses import dataclass

import simpy

from geosim.cost.problem import Problem, SitePlan
from geosim.sim.engine import Engine
from geosim.sim.jitter import SiteJitter
from geosim.sim.record import Tracer
from geosim.sim.weather import FOREVER, Patience, Weather


@dataclass(frozen=True)
class Slow:
    """A site computes `factor` times as long from `start_s` to `end_s`."""

    start_s: float
    end_s: float
    factor: float


@dataclass(frozen=True)
class Injected:
    """Faults of one run.

    Attributes:
        slow: (site, when and how much).
        down: (link by its number in the scenario, from, until), none of a link overlapping.
        patience: with exchanges that stall.
        save_steps, save_s: all sites pause for `save_s` after every so many steps; 0: never.
    """

    slow: tuple[tuple[int, Slow], ...] = ()
    down: tuple[tuple[int, float, float], ...] = ()
    patience: Patience = FOREVER
    save_steps: int = 0
    save_s: float = 0.0

    def saves(self, start: int, end: int) -> int:
        """Pauses from step `start` on until before step `end`."""
        if not self.save_steps:
            return 0
        return max(0, (end - 1) // self.save_steps) - max(0, (start - 1) // self.save_steps)

    def site(self, m: int) -> tuple[Slow, ...]:
        """What slows one site."""
        return tuple(slow for site, slow in self.slow if site == m)

    def into(self, weather: Weather, links: int) -> None:
        """Take links down in a run's weather."""
        weather.patience = self.patience
        for number in range(links):
            weather.fail(number, tuple((a, b) for link, a, b in self.down if link == number))


def stretched(work_s: float, start_s: float, slow: tuple[Slow, ...]) -> float:
    """Seconds that `work_s` of computing takes from `start_s` on; of faults at once the worst counts."""
    edges = sorted({e for s in slow for e in (s.start_s, s.end_s) if e > start_s})
    now, left = start_s, work_s
    for edge in edges:
        factor = max((s.factor for s in slow if s.start_s <= now < s.end_s), default=1.0)
        if now + left * factor <= edge:
            return now + left * factor - start_s
        left -= (edge - now) / factor
        now = edge
    return now + left - start_s


class FaultySite(SiteJitter):
    """A site's compute times under faults: its own draws, stretched."""

    def __init__(
        self, env: simpy.Environment, seed: int, number: int, site: SitePlan, injected: Injected
    ) -> None:
        super().__init__(seed, number, site.step_s, site.step_cv)
        self._env, self._injected = env, injected
        self._slow = injected.site(number)
        self._steps = 0

    def draw(self, steps: int) -> float:
        """Seconds that the next `steps` steps take together from now on."""
        made, done = self._injected, self._steps
        self._steps += steps
        pause = made.saves(done, done + steps) * made.save_s
        work = super().draw(steps)
        if not self._slow:
            return pause + work
        return pause + stretched(work, self._env.now + pause, self._slow)


def faulty_engine(
    problem: Problem, seed: int, windows: int, injected: Injected, tracer: Tracer | None = None
) -> Engine:
    """An engine, not yet run, in which faults happen."""
    engine = Engine(problem, seed, windows, tracer, at_once=False)
    for m, site in enumerate(problem.sites):
        engine.jitter[m] = FaultySite(engine.env, seed, m, site, injected)
        for slow in injected.site(m) if tracer is not None else ():
            assert tracer is not None
            tracer.span(site.name, "faults", f"straggler x{slow.factor:g}", slow.start_s, slow.end_s)
    injected.into(engine.wan.weather, 1 + max((link.number for link in problem.links), default=-1))
    return engine
