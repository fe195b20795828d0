"""A link that fluctuates within a range."""

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field, model_validator

from geosim.errors import UsageError
from geosim.scenario.varying.base import Changes, Condition, Stay, Variation

if TYPE_CHECKING:
    import numpy as np


class Range(Variation):
    """Bandwidth drawn anew at random times, evenly from a range: a link that 'fluctuates between A and B'.

    Attributes:
        low, high: shares of the link's bandwidth.
        holds_s: how long a draw holds on average (exponential).
    """

    kind: Literal["range"] = "range"
    low: Annotated[float, Field(gt=0, le=1)]
    high: Annotated[float, Field(gt=0, le=1)] = 1.0
    holds_s: Stay

    @model_validator(mode="after")
    def _ordered(self) -> "Range":
        if self.low >= self.high:
            raise UsageError(f"low: {self.low} must be below high ({self.high})")
        return self

    @property
    def is_random(self) -> bool:
        return True

    def mean(self) -> Condition:
        return Condition(share=(self.low + self.high) / 2)

    def changes(self, random: "np.random.Generator") -> Changes:
        now = 0.0
        while True:
            yield now, Condition(share=self.low + (self.high - self.low) * random.random())
            now += self.holds_s * random.standard_exponential()
