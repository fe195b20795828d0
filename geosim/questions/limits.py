"""What keeps a target out of reach: whatever could be in the way is taken out in turn, and run again."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from geosim.questions.knobs import Knob
from geosim.questions.require import Trial
from geosim.scenario import Scenario

_LEAST_GAIN = 0.01  # of what is reached, that counts as one
_WINDOW_BYTES = 1e18


@dataclass(frozen=True)
class Limit:
    """Why a target is out of reach.

    Attributes:
        reliefs: (key of `RELIEFS`, what is reached without it) of all that is enough, or else of what helps
            most; empty if nothing does. The best first.
        enough: whether the target is then reached.
        part: the largest part of a step besides compute, a key of `Result.parts`.
        share: of the step.
    """

    reliefs: tuple[tuple[str, float], ...]
    enough: bool
    part: str
    share: float


def _links(**update: Any) -> Callable[[Scenario], Scenario]:
    def relieve(scenario: Scenario) -> Scenario:
        return scenario.model_copy(update={"wan": tuple(w.model_copy(update=update) for w in scenario.wan)})

    return relieve


def _unlimited(kind: Any) -> Callable[[Scenario], Scenario]:
    best = 1.25e17 if kind == "bandwidth" else 0.0
    return lambda scenario: Knob(kind).turned(scenario, best)


def _wide_sites(scenario: Scenario) -> Scenario:
    free = {"uplink_bytes_per_s": None, "downlink_bytes_per_s": None}
    return scenario.model_copy(update={"sites": tuple(s.model_copy(update=free) for s in scenario.sites)})


def _steady(scenario: Scenario) -> Scenario:
    work = scenario.workload.model_copy(update={"step_jitter": 0.0})
    return _links(jitter_s=0.0)(scenario.model_copy(update={"workload": work}))


# What could be in the way -> the scenario without it.
RELIEFS: dict[str, Callable[[Scenario], Scenario]] = {
    "bandwidth": _unlimited("bandwidth"),
    "round trips": _unlimited("rtt"),
    "loss": _unlimited("loss"),
    "TCP windows": _links(window_bytes=_WINDOW_BYTES, initial_window_bytes=_WINDOW_BYTES, queue_bytes=None),
    "sites' uplinks": _wide_sites,
    "jitter": _steady,
}


def what_limits(trial: Trial, scenario: Scenario) -> Limit:
    """Why the target of a trial is out of reach in a scenario, the best that a knob can make of it."""
    result = trial.result(scenario)
    before = trial.target.of(result)
    parts = {name: seconds for name, seconds in result.parts.items() if name != "compute"}
    part = max(parts, key=lambda name: parts[name])
    share = parts[part] / result.step_time_s.mean
    reached = {}
    for name, relieve in RELIEFS.items():
        relieved = relieve(scenario)
        if relieved != scenario:
            reached[name] = trial.reached(relieved)
    order = sorted(reached.items(), key=lambda pair: -pair[1])
    enough = tuple(pair for pair in order if pair[1] >= trial.target.value)
    most = tuple(pair for pair in order[:1] if pair[1] >= before * (1 + _LEAST_GAIN))
    return Limit(enough or most, bool(enough), part, share)
