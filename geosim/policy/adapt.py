"""How the interval follows the network: a pure function of the headers that all sites have seen."""

from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import Field, model_validator

from geosim.errors import UsageError
from geosim.spec import ByKind, Spec


class Fixed(Spec):
    """K stays what the policy says."""

    kind: Literal["fixed"] = "fixed"


class HideExchange(Spec):
    """K is the fewest steps that cover the slowest site's last exchange, times `margin`, within bounds."""

    kind: Literal["hide-exchange"] = "hide-exchange"
    least: Annotated[int, Field(ge=1)] = 1
    most: Annotated[int, Field(ge=1)] = 1024
    margin: Annotated[float, Field(ge=1, le=10)] = 1.2

    @model_validator(mode="after")
    def _bounds(self) -> "HideExchange":
        if self.most < self.least:
            raise UsageError(f"most: {self.most} is below least ({self.least})")
        return self


Adapt = Annotated[Fixed | HideExchange, Field(discriminator="kind"), ByKind]


def next_interval(
    adapt: Fixed | HideExchange, interval: int, exchange_us: Sequence[int], step_us: Sequence[int]
) -> int:
    """The next window's K.

    Args:
        adapt: the rule.
        interval: the current K.
        exchange_us: each site's longest exchange of the last completed round, whole microseconds.
        step_us: each site's compute time of a step in that window, whole microseconds.

    Integer arithmetic only, so that every site gets the same answer.
    """
    if isinstance(adapt, Fixed) or not exchange_us or max(step_us, default=0) <= 0:
        return interval
    scaled = max(exchange_us) * round(adapt.margin * 1000)
    wanted = -(-scaled // (max(step_us) * 1000))
    return min(max(wanted, adapt.least), adapt.most)
