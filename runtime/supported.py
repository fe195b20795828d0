"""What the runtime carries out today; the simulator prices every policy."""

from __future__ import annotations

from geosim.errors import UsageError
from geosim.policy import Accumulate, Blocking, Delayed, Fixed, SyncPolicy

_REMEDY = "the runtime does not carry this out yet: `geosim simulate` predicts it"


def check_supported(policy: SyncPolicy) -> None:
    """Refuse what only the simulator knows.

    Raises:
        UsageError: one line that names the field and its value.
    """
    if policy.is_flat:
        return
    if not isinstance(policy.overlap, Blocking | Delayed):
        raise UsageError(f"overlap: '{policy.overlap.kind}': {_REMEDY}; it runs 'blocking' and 'delayed'")
    if isinstance(policy.update, Accumulate) and policy.update.send != "gradient":
        raise UsageError(f"update.send: '{policy.update.send}': {_REMEDY}; it runs 'gradient'")
    if not isinstance(policy.adapt, Fixed):
        raise UsageError(f"adapt: '{policy.adapt.kind}': {_REMEDY}; it runs 'fixed'")


def check_steps(steps: int, interval: int) -> None:
    """Refuse a run that ends inside a window.

    Raises:
        UsageError: naming the nearest numbers of steps that fit.
    """
    if steps < 1:
        raise UsageError(f"steps: {steps}: must be 1 or more")
    if steps % interval:
        below, above = steps // interval * interval, -(-steps // interval) * interval
        nearest = f"{below} or {above}" if below else str(above)
        raise UsageError(f"steps: {steps}: the policy exchanges every {interval} steps: use {nearest}")
