"""Round-trip times that vary as samples of them do."""

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from geosim.scenario.ranges import Delay
from geosim.scenario.varying.base import Changes, Condition, Variation
from geosim.spec import Spec

if TYPE_CHECKING:
    import numpy as np


class Sample(Spec):
    """One round trip; in YAML also as bare text, ``30 ms``."""

    rtt_s: Delay


def _written_short(value: Any) -> Any:
    return {"rtt": value} if isinstance(value, str) else value


class Jitter(Variation):
    """Round-trip times fitted to samples, in place of `jitter`: what they deviate from their mean is added.

    Attributes:
        samples: round-trip times, written out or from `file` (CSV or YAML).
        fit: `empirical` draws the samples themselves; `lognormal` and `gamma` are fitted by moments to what
            lies above the least sample. Each way of each message draws anew and takes half.
    """

    kind: Literal["jitter"] = "jitter"
    samples: Annotated[tuple[Annotated[Sample, BeforeValidator(_written_short)], ...], Field(min_length=2)]
    fit: Literal["empirical", "lognormal", "gamma"] = "empirical"

    @property
    def is_random(self) -> bool:
        return True

    @property
    def is_constant(self) -> bool:
        """The condition does not change; only delays are drawn."""
        return True

    @property
    def deviation_s(self) -> float:
        """Standard deviation of the samples."""
        middle = self._mean
        return math.sqrt(math.fsum((s - middle) ** 2 for s in self._times()) / len(self.samples))

    @property
    def _mean(self) -> float:
        return math.fsum(self._times()) / len(self.samples)

    def _times(self) -> Iterator[float]:
        return (sample.rtt_s for sample in self.samples)

    def mean(self) -> Condition:
        return Condition()

    def changes(self, random: "np.random.Generator") -> Changes:
        return iter(())

    def draw(self, random: "np.random.Generator") -> float:
        """A round trip's deviation from the mean, seconds."""
        if self.fit == "empirical":
            return self.samples[int(random.integers(len(self.samples)))].rtt_s - self._mean
        above, variance = self._mean - min(self._times()), self.deviation_s**2
        if variance == 0:
            return 0.0
        if self.fit == "gamma":
            return float(random.gamma(above**2 / variance, variance / above)) - above
        spread = math.log1p(variance / above**2)
        return above * math.expm1(math.sqrt(spread) * random.standard_normal() - spread / 2)
