"""The least bandwidth, the longest round trip, the highest loss with which a target is reached.

The closed form says where to look, bisection with the engine says what it is. The laws are monotone but for
slow start's whole round trips and idle timeouts, so each answer is run, and so is what lies 1 % beyond it.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from geosim.cost.calibration import Calibration
from geosim.policy import SyncPolicy
from geosim.questions.knobs import Knob
from geosim.scenario import Scenario
from geosim.sim import Result, simulate
from geosim.sim.simulate import WINDOWS
from geosim.tune.screen import screen
from geosim.units import BANDWIDTH, TIME, parse

BEYOND = 0.01  # how far past the answer the second run of a check lies
_CLOSE = 1e-3  # width of the last bracket
_DIGITS = 4  # of an answer, rounded to the side that passes
_MOST = 400  # runs, should the law not be monotone
_RANGE = {
    "bandwidth": (parse("1 kbit/s", BANDWIDTH), parse("1 Ebit/s", BANDWIDTH)),
    "rtt": (parse("1 us", TIME), parse("1 h", TIME)),
    "loss": (1e-9, 0.5),
}

Measure = Literal["utilization", "relative"]


@dataclass(frozen=True)
class Target:
    """What is to be reached: a compute utilization, or a throughput relative to co-located."""

    measure: Measure
    value: float

    def of(self, result: Result) -> float:
        """What a result reaches."""
        if self.measure == "utilization":
            return result.compute_utilization
        return result.relative_to_colocated


@dataclass(frozen=True)
class Run:
    """A value of a knob and what is reached with it."""

    value: float
    reached: float


@dataclass(frozen=True)
class Answer:
    """What one knob has to be.

    Attributes:
        knob: what was turned; all else stayed as it is.
        now: how things stand.
        found: `value`: a threshold; `any`: the target is reached over the whole range; `none`: nowhere.
        passes: the threshold, or the end of the range that is best (`none`) or worst (`any`).
        fails: what lies 1 % beyond the threshold; None for `any` and `none`.
        settings: what `--set` takes to get `passes`.
    """

    knob: Knob
    now: Run
    found: Literal["value", "any", "none"]
    passes: Run
    fails: Run | None
    settings: tuple[str, ...]


class Trial:
    """A scenario and a policy, run with a target in view; what has been run is remembered."""

    def __init__(
        self,
        scenario: Scenario,
        policy: SyncPolicy,
        target: Target,
        seeds: int = 3,
        windows: int = WINDOWS,
        calibration: Calibration | None = None,
    ) -> None:
        self.scenario, self.policy, self.target = scenario, policy, target
        self._more = (seeds, windows, calibration)
        self._known: dict[Scenario, Result] = {}

    def result(self, scenario: Scenario) -> Result:
        """What the engine says; always from the same seeds."""
        if scenario not in self._known:
            seeds, windows, calibration = self._more
            self._known[scenario] = simulate(
                scenario, self.policy, seeds=seeds, windows=windows, calibration=calibration
            )
        return self._known[scenario]

    def reached(self, scenario: Scenario) -> float:
        """How much of what the target counts."""
        return self.target.of(self.result(scenario))

    def estimate(self, scenario: Scenario) -> float:
        """The same by the closed form."""
        found = screen(scenario, [self.policy], self._more[2])
        if self.target.measure == "relative":
            return float(found.relative[0])
        compute = self.result(self.scenario).parts["compute"]
        return compute / float(found.step_s[0])


def require(trial: Trial, knob: Knob) -> Answer:
    """Find the threshold of one knob."""
    low, high = _RANGE[knob.kind]
    rising = knob.kind == "bandwidth"
    best, worst = (high, low) if rising else (0.0, high)

    def run(value: float) -> Run:
        return Run(value, trial.reached(knob.turned(trial.scenario, value)))

    def passes(value: float) -> bool:
        return run(value).reached >= trial.target.value

    def answer(found: Literal["value", "any", "none"], value: float, fails: float | None = None) -> Answer:
        settings = knob.settings(knob.turned(trial.scenario, value))
        now = run(knob.value(trial.scenario))
        return Answer(knob, now, found, run(value), None if fails is None else run(fails), tuple(settings))

    if not passes(best):
        return answer("none", best)
    if passes(worst):
        return answer("any", worst)
    if not rising and not passes(low):
        return answer("none", best)
    towards = 1 - BEYOND if rising else 1 + BEYOND
    good, bad = (high, low) if rising else (low, high)
    good, bad = _bracket(trial, knob, passes, good, bad)
    for _ in range(_MOST):
        while abs(math.log(good / bad)) > _CLOSE:
            middle = math.sqrt(good * bad)
            good, bad = (middle, bad) if passes(middle) else (good, middle)
        shown = round_up(good, knob) if rising else round_down(good, knob)
        if passes(shown):
            good = shown
        beyond = good * towards
        if not passes(beyond):
            break
        # A dip of the law: the threshold lies farther on.
        good, bad = beyond, _next_failure(passes, beyond, towards, worst)
    return answer("value", good, good * towards)


def _bracket(
    trial: Trial, knob: Knob, passes: Callable[[float], bool], good: float, bad: float
) -> tuple[float, float]:
    """A value that passes and one that fails, close together where the closed form is right."""
    near = _estimated(trial, knob, good, bad)
    for width in (1.02, 1.1, 1.5, 4.0):
        sides = (near * width, near / width) if good > bad else (near / width, near * width)
        inside = [min(max(side, min(good, bad)), max(good, bad)) for side in sides]
        if passes(inside[0]) and not passes(inside[1]):
            return inside[0], inside[1]
    return good, bad


def _estimated(trial: Trial, knob: Knob, good: float, bad: float) -> float:
    """Where the closed form crosses the target."""
    while abs(math.log(good / bad)) > _CLOSE:
        middle = math.sqrt(good * bad)
        if trial.estimate(knob.turned(trial.scenario, middle)) >= trial.target.value:
            good = middle
        else:
            bad = middle
    return good


def _next_failure(passes: Callable[[float], bool], value: float, towards: float, worst: float) -> float:
    """The next value beyond one that passes which does not; `worst` at the latest."""
    while (value - worst) * (1 - towards) > 0:
        value *= towards
        if not passes(value):
            return value
    return worst


def round_up(value: float, knob: Knob) -> float:
    """The next value of four digits in the knob's unit (bits for a bandwidth), not below."""
    return _rounded(value, knob, math.ceil)


def round_down(value: float, knob: Knob) -> float:
    """The next value of four digits in the knob's unit, not above."""
    return _rounded(value, knob, math.floor)


def _rounded(value: float, knob: Knob, towards: Callable[[float], int]) -> float:
    bits = 8.0 if knob.kind == "bandwidth" else 1.0
    place = 10.0 ** (math.floor(math.log10(value * bits)) - _DIGITS + 1)
    return float(f"{towards(value * bits / place) * place:.{_DIGITS}g}") / bits
