"""From which bandwidth on a less aggressive policy would do."""

from collections.abc import Sequence

from geosim.cost.calibration import Calibration
from geosim.policy import SyncPolicy
from geosim.scenario import Scenario
from geosim.tune.screen import screen
from geosim.tune.sensitivity import threshold, with_bandwidth

_HIGHEST = 1e5


def qualifies_from(
    scenario: Scenario,
    policy: SyncPolicy,
    rivals: Sequence[SyncPolicy],
    tolerance: float,
    calibration: Calibration | None = None,
) -> float | None:
    """The least factor on every WAN bandwidth that brings a policy within `tolerance` of the best rival.

    Returns:
        1 if it qualifies as things are; None if no bandwidth is enough.
    """

    def holds(factor: float) -> bool:
        reached = screen(with_bandwidth(scenario, factor), [policy, *rivals], calibration).relative
        return bool(reached[0] >= (1 - tolerance) * reached.max())

    return threshold(holds, 1.0, _HIGHEST)
