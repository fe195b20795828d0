"""What one fault costs a policy: two runs of the engine with the same draws, one of them with the fault.

A straggler that lasts many windows costs in proportion from some length on; the slope is found once for each
site.
"""

import math
from dataclasses import dataclass
from statistics import fmean

import numpy as np

from geosim.cost.problem import Problem
from geosim.scenario.faults import Faults
from geosim.sim import flat_weather
from geosim.sim.engine import Engine, warm_up
from geosim.sim.faults import Fault
from geosim.sim.flat import WARM_STEPS
from geosim.sim.inject import Injected, Slow, faulty_engine
from geosim.sim.record import Tracer
from geosim.sim.weather import FOREVER, Patience

_LONG = 32  # windows from which on a straggler costs in proportion to its time
_OFFSETS = range(-3, 4)  # where in a window a fault ends scatters what it costs by a sixth
_BEFORE, _AFTER = 2, 4  # windows around a fault


@dataclass(frozen=True)
class Course:
    """A run by its windows: when the last site ends each, steps done by then, when an exchange gave up."""

    ends_s: np.ndarray
    steps: np.ndarray
    failed_at_s: float


@dataclass(frozen=True)
class Impact:
    """Time that a fault costs, and how long after its beginning the run gives up on it, if so."""

    lost_s: float
    gives_up_after_s: float = math.inf


def course(
    problem: Problem, seed: int, windows: int, injected: Injected | None, tracer: Tracer | None = None
) -> Course:
    """A run of `windows` windows from a cold start."""
    if problem.flat is not None:
        made = flat_weather.run(problem, seed, windows, injected, tracer)
        return Course(made.ends_s, np.arange(1, windows + 1), made.failed_at_s)
    windows = max(windows, warm_up(problem) + 1)
    if injected is None:
        engine = Engine(problem, seed, windows - warm_up(problem), tracer)
    else:
        engine = faulty_engine(problem, seed, windows - warm_up(problem), injected, tracer)
    engine.run()
    return Course(engine.ends.max(axis=0), engine.steps.copy(), engine.wan.weather.failed_at_s)


def patience_of(faults: Faults) -> Patience:
    """How long exchanges are waited for."""
    out = faults.timeout
    return FOREVER if out is None else Patience(out.after_s, out.retries, out.backoff_s)


class Impacts:
    """What faults cost one policy. `window_s`: of its windows without faults."""

    def __init__(self, problem: Problem, faults: Faults, seed: int, window_s: float) -> None:
        self._problem, self._faults, self._seed = problem, faults, seed
        self._window_s = window_s
        self._patience = patience_of(faults)
        self._delay = max((getattr(o, "windows", 1) for o in problem.plan.overlaps), default=1) if (
            problem.plan is not None
        ) else 1  # fmt: skip
        self._first = (WARM_STEPS if problem.flat is not None else warm_up(problem)) + _BEFORE
        self._plain: Course | None = None
        self._slopes: dict[int, tuple[float, float]] = {}

    def of(self, fault: Fault) -> Impact:
        """The cost of a straggler or an outage."""
        long = _LONG * self._window_s
        if fault.kind == "straggler" and fault.lasts_s > long:
            if fault.where not in self._slopes:
                half, whole = (self._mean_lost(fault, part * _LONG) for part in (0.5, 1.0))
                self._slopes[fault.where] = whole, max(0.0, (whole - half) / (0.5 * long))
            whole, slope = self._slopes[fault.where]
            return Impact(whole + slope * (fault.lasts_s - long))
        return self._run(fault, fault.lasts_s, fault.phase)

    def _mean_lost(self, fault: Fault, windows: float) -> float:
        """Over faults of about so many windows: where sites differ, long and short windows take turns."""
        times = [(windows + offset) * self._window_s for offset in _OFFSETS]
        return fmean(self._run(fault, lasts_s, 0.0).lost_s for lasts_s in times)

    def _run(self, fault: Fault, lasts_s: float, phase: float) -> Impact:
        start = (self._first + phase) * self._window_s
        if fault.kind == "straggler":
            assert self._faults.straggler is not None
            slow = Slow(start, start + lasts_s, self._faults.straggler.slowdown)
            injected = Injected(slow=((fault.where, slow),))
        else:
            injected = Injected(down=((fault.where, start, start + lasts_s),), patience=self._patience)
        spans = min(math.ceil(lasts_s / self._window_s), _LONG)
        hit = course(self._problem, self._seed, self._first + 1 + spans + _AFTER + 2 * self._delay, injected)
        # Not at the run's end: sites that a fault has set apart may go on faster or slower for good.
        after = int(np.searchsorted(hit.ends_s, start + lasts_s)) + _AFTER + 2 * self._delay
        last = min(after, len(hit.ends_s) - 1)
        lost = float(hit.ends_s[last]) - self._without(int(hit.steps[last]))
        return Impact(max(0.0, lost), hit.failed_at_s - start)

    def _without(self, steps: int) -> float:
        """When so many steps are done without faults."""
        windows = 64 if self._plain is None else len(self._plain.ends_s)
        while self._plain is None or self._plain.steps[-1] < steps:
            self._plain = course(self._problem, self._seed, windows, None)
            windows *= 2
        return float(np.interp(steps, self._plain.steps, self._plain.ends_s))
