"""A link that is down at times."""

from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import AfterValidator, model_validator

from geosim.errors import UsageError
from geosim.scenario.ranges import RunTime
from geosim.scenario.varying.base import Changes, Condition, Stay, Variation
from geosim.spec import Seconds, Spec, within
from geosim.units import TIME

if TYPE_CHECKING:
    import numpy as np


class Down(Spec):
    """One outage."""

    at_s: RunTime
    lasts_s: Annotated[Seconds, AfterValidator(within("1 ms", "1000000 h", TIME))]


class Outages(Variation):
    """The link carries nothing for a time: at stated times, or at random ones.

    Attributes:
        times: each with `at` and `lasts`.
        mean_between_s, mean_lasts_s: how long it is up and down on average (exponential).
    """

    kind: Literal["outages"] = "outages"
    times: tuple[Down, ...] = ()
    mean_between_s: Stay | None = None
    mean_lasts_s: Stay | None = None

    @model_validator(mode="after")
    def _one_of_both(self) -> "Outages":
        if bool(self.times) == (self.mean_between_s is not None):
            raise UsageError("times: give either times or mean_between and mean_lasts")
        if (self.mean_between_s is None) != (self.mean_lasts_s is None):
            raise UsageError("mean_between: goes with mean_lasts: give both or neither")
        if any(b.at_s < a.at_s + a.lasts_s for a, b in pairwise(self.times)):
            raise UsageError("times: an outage must be over before the next begins")
        return self

    @property
    def is_random(self) -> bool:
        return self.mean_between_s is not None

    def mean(self) -> Condition:
        """Stated outages are over at some time."""
        if self.mean_between_s is None or self.mean_lasts_s is None:
            return Condition()
        return Condition(share=self.mean_between_s / (self.mean_between_s + self.mean_lasts_s))

    def changes(self, random: "np.random.Generator") -> Changes:
        if self.mean_between_s is not None and self.mean_lasts_s is not None:
            now = 0.0
            while True:
                now += self.mean_between_s * random.standard_exponential()
                yield now, Condition(up=False)
                now += self.mean_lasts_s * random.standard_exponential()
                yield now, Condition()
        for outage in self.times:
            yield outage.at_s, Condition(up=False)
            yield outage.at_s + outage.lasts_s, Condition()
