"""Links with a good and a bad state, and links that others use now and then."""

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field, model_validator

from geosim.errors import UsageError
from geosim.scenario.varying.base import Changes, Condition, Loss, Stay, Variation, alternate

if TYPE_CHECKING:
    import numpy as np


class GilbertElliott(Variation):
    """Two states that last exponentially long (Gilbert 1960, Elliott 1963, in continuous time).

    Attributes:
        mean_good_s, mean_bad_s: how long each lasts.
        bad_loss: further loss in the bad state.
        bad_share: of the bandwidth that is left in it.
    """

    kind: Literal["gilbert-elliott"] = "gilbert-elliott"
    mean_good_s: Stay
    mean_bad_s: Stay
    bad_loss: Loss = 0.0
    bad_share: Annotated[float, Field(gt=0, le=1)] = 1.0

    @property
    def is_random(self) -> bool:
        return True

    def mean(self) -> Condition:
        bad = self.mean_bad_s / (self.mean_good_s + self.mean_bad_s)
        return Condition(share=1 - bad * (1 - self.bad_share), loss=bad * self.bad_loss)

    def changes(self, random: "np.random.Generator") -> Changes:
        return alternate(
            random,
            (Condition(), Condition(share=self.bad_share, loss=self.bad_loss)),
            (self.mean_good_s, self.mean_bad_s),
        )


class CrossTraffic(Variation):
    """Others use a share of the link: always, or now and then.

    Attributes:
        share: that they use.
        mean_on_s, mean_off_s: how long they come and stay away (exponential means); neither: always.
    """

    kind: Literal["cross-traffic"] = "cross-traffic"
    share: Annotated[float, Field(gt=0, lt=1)]
    mean_on_s: Stay | None = None
    mean_off_s: Stay | None = None

    @model_validator(mode="after")
    def _both(self) -> "CrossTraffic":
        if (self.mean_on_s is None) != (self.mean_off_s is None):
            raise UsageError("mean_on: goes with mean_off: give both or neither")
        return self

    @property
    def is_random(self) -> bool:
        return self.mean_on_s is not None

    @property
    def is_constant(self) -> bool:
        return self.mean_on_s is None

    def mean(self) -> Condition:
        if self.mean_on_s is None or self.mean_off_s is None:
            return Condition(share=1 - self.share)
        return Condition(share=1 - self.share * self.mean_on_s / (self.mean_on_s + self.mean_off_s))

    def changes(self, random: "np.random.Generator") -> Changes:
        busy = Condition(share=1 - self.share)
        if self.mean_on_s is None or self.mean_off_s is None:
            return iter([(0.0, busy)])
        return alternate(random, (Condition(), busy), (self.mean_off_s, self.mean_on_s))
