"""What a change is worth: the closed form's derivative beside the engine's difference."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from geosim.cost import build
from geosim.cost.calibration import Calibration
from geosim.errors import UsageError
from geosim.policy import SyncPolicy
from geosim.questions import gradient
from geosim.questions.changes import Change, World, changes
from geosim.scenario import Scenario
from geosim.sim import Result, simulate
from geosim.sim.closed_form import TEXT, Reason, batch_from, steady_state
from geosim.sim.simulate import WINDOWS
from geosim.tune.screen import pairs_first

Method = Literal["gradient", "difference"]

_HALF = 0.25  # share of a unit to each side of a central difference
_KINK = 0.1  # of the larger of both sides' differences, by which they may differ on a smooth law
_NOTHING = 1e-9  # of a step


@dataclass(frozen=True)
class Worth:
    """What one change is worth. Seconds a step; negative: faster.

    Attributes:
        change: in words.
        closed_s: by the closed form; None where it does not tell links apart.
        method: how: "gradient" times the unit; "difference" where the change is discrete, the policy is plain
            data parallelism, or JAX is not installed.
        engine_s: by the engine: of a smooth change a central difference, scaled to the unit.
        tokens_per_s: more tokens a second, by the engine.
        share: of the tokens a second now.
        smooth: whether the engine's differences to both sides agree; a derivative says little where not.
        tokens_per_step_change: whether the change makes a step hold more tokens, so that its time alone
            does not tell.
    """

    change: str
    closed_s: float | None
    method: Method
    engine_s: float
    tokens_per_s: float
    share: float
    smooth: bool
    tokens_per_step_change: bool

    @property
    def disagreement(self) -> float | None:
        """Between both, over the larger; None where there is one only, 0 where both say nothing."""
        if self.closed_s is None:
            return None
        larger = max(abs(self.closed_s), abs(self.engine_s))
        return abs(self.closed_s - self.engine_s) / larger if larger else 0.0


@dataclass(frozen=True)
class Sensitivity:
    """All that changes are worth in one scenario under one policy.

    Attributes:
        result: how things stand, by the engine.
        step_s: a step by the closed form.
        applies: whether the closed form holds; `reason` says why not.
        has_jax: whether derivatives are JAX's.
        worths: one for each change.
    """

    result: Result
    step_s: float
    applies: bool
    reason: str
    has_jax: bool
    worths: tuple[Worth, ...]


class _Bench:
    """One policy in one scenario, by both models; the engine's runs share their seeds."""

    def __init__(self, seeds: int, windows: int, calibration: Calibration | None) -> None:
        self.seeds, self.windows, self.calibration = seeds, windows, calibration

    def engine(self, world: World) -> Result:
        return simulate(*world, seeds=self.seeds, windows=self.windows, calibration=self.calibration)

    def closed(self, world: World) -> float:
        """A step; of the slowest pair of sites where the closed form does not hold for all together."""
        scenario, policy = world
        state = steady_state(batch_from(scenario, [policy], self.calibration))
        if state.applies[0] or not scenario.wan:
            return float(state.step_s[0])
        return max(
            float(steady_state(batch_from(view, [policy], self.calibration)).step_s[0])
            for view in pairs_first(scenario)
        )

    def slope(self, world: World, change: Change) -> float:
        """The closed form's derivative along a knob of all links, for the slowest pair of sites."""
        assert change.knob is not None
        scenario, policy = world
        batches = [(view, batch_from(view, [policy], self.calibration)) for view in pairs_first(scenario)]
        view, batch = max(batches, key=lambda pair: float(steady_state(pair[1]).step_s[0]))
        return gradient.step_gradient(view, build(view, policy, self.calibration), batch, change.knob)


def sensitivity(
    scenario: Scenario,
    policy: SyncPolicy,
    seeds: int = 3,
    windows: int = WINDOWS,
    calibration: Calibration | None = None,
) -> Sensitivity:
    """What each change is worth.

    Raises:
        UsageError: if policy and scenario do not fit each other.
    """
    bench = _Bench(seeds, windows, calibration)
    here = (scenario, policy)
    state = steady_state(batch_from(scenario, [policy], calibration))
    now, has_jax = bench.engine(here), gradient.is_installed()
    worths = []
    for change in changes(scenario, policy):
        try:
            worths.append(_worth(bench, here, now, change, has_jax))
        except UsageError:
            continue  # a change that does not fit, such as a shard more than there are ranks
    return Sensitivity(
        result=now,
        step_s=bench.closed(here),
        applies=bool(state.applies[0]),
        reason=TEXT[Reason(state.reason[0])],
        has_jax=has_jax,
        worths=tuple(worths),
    )


def _worth(bench: _Bench, here: World, now: Result, change: Change, has_jax: bool) -> Worth:
    closed, method = _by_closed_form(bench, here, change, has_jax)
    step = now.step_time_s.mean
    if not change.smooth:
        after = bench.engine(change.world(1.0))
        engine = after.step_time_s.mean - step
        more, smooth = after.tokens_per_s - now.tokens_per_s, True
        longer = not np.isclose(after.tokens_per_s * after.step_time_s.mean, now.tokens_per_s * step)
    else:
        plus, minus = (bench.engine(change.world(share)) for share in (_HALF, -_HALF))
        engine = (plus.step_time_s.mean - minus.step_time_s.mean) / (2 * _HALF)
        more = (plus.tokens_per_s - minus.tokens_per_s) / (2 * _HALF)
        sides = (plus.step_time_s.mean - step, step - minus.step_time_s.mean)
        smooth = abs(sides[0] - sides[1]) <= _KINK * max(map(abs, sides)) + _NOTHING * step
        longer = False
    if abs(engine) < _NOTHING * step:
        engine = 0.0
    if closed is not None and abs(closed) < _NOTHING * step:
        closed = 0.0
    return Worth(change.name, closed, method, engine, more, more / now.tokens_per_s, smooth, bool(longer))


def _by_closed_form(bench: _Bench, here: World, change: Change, has_jax: bool) -> tuple[float | None, Method]:
    if change.knob is not None and change.knob.link is not None:
        return None, "difference"
    if not change.smooth:
        return bench.closed(change.world(1.0)) - bench.closed(here), "difference"
    if change.knob is None or here[1].is_flat or not has_jax:
        sides = bench.closed(change.world(_HALF)) - bench.closed(change.world(-_HALF))
        return sides / (2 * _HALF), "difference"
    return change.unit * bench.slope(here, change), "gradient"
