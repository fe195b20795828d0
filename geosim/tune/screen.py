"""The closed form over many policies: what each reaches and sends.

Where the closed form does not hold for all sites together it sees one pair of sites at a time; the slowest
pair then stands for all. Where compute or delays are random it sees their means. The engine has the last word
on whatever matters.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from geosim.cost.calibration import Calibration
from geosim.policy import SyncPolicy
from geosim.scenario import Scenario
from geosim.sim.closed_form import batch_from, steady_state


@dataclass(frozen=True)
class Screen:
    """One entry a policy.

    Attributes:
        step_s: a step, seconds.
        exposed_s: of it, what training waits for the WAN.
        relative: throughput over that of the same accelerators in one room.
        window_bytes: what one site sends another in one window, on the wire.
    """

    step_s: np.ndarray
    exposed_s: np.ndarray
    relative: np.ndarray
    window_bytes: np.ndarray


def screen(
    scenario: Scenario, policies: Sequence[SyncPolicy], calibration: Calibration | None = None
) -> Screen:
    """Evaluate policies in one scenario.

    Raises:
        UsageError: if a policy does not fit the scenario.
    """
    views = pairs_first(scenario)
    batches = [batch_from(view, policies, calibration) for view in views]
    states = [steady_state(batch) for batch in batches]
    steps = np.array([s.step_s for s in states])
    # Views put other sites first, which must not change who is the hub where all is known.
    steps[1:, states[0].applies] = 0.0
    slowest = steps.argmax(axis=0)
    rows = np.arange(len(policies))
    step = steps[slowest, rows]
    # What a step takes in one room depends on all sites, so it is asked of the scenario as it stands.
    room = batches[0].colocated_step_s
    return Screen(
        step_s=step,
        exposed_s=np.array([s.exposed_s for s in states])[slowest, rows],
        relative=room / step,
        window_bytes=batches[0].size_bytes.sum(axis=1),
    )


def pairs_first(scenario: Scenario) -> list[Scenario]:
    """The scenario with each directed pair of linked sites in front, once for each kind of pair."""
    sites = {site.name: site for site in scenario.sites}
    seen = set()
    out = []
    for link in scenario.wan:
        for source, target in (link.between, link.between[::-1]):
            ends = tuple(sites[name].model_copy(update={"name": ""}) for name in (source, target))
            kind = (*ends, link.bandwidth(source), link.model_copy(update={"between": ("", "")}))
            if kind not in seen:
                seen.add(kind)
                rest = [s for s in scenario.sites if s.name not in (source, target)]
                out.append(scenario.model_copy(update={"sites": (sites[source], sites[target], *rest)}))
    return [scenario, *out] if len(out) > 1 else [scenario]
