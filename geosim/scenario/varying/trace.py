"""A link that follows measured points."""

import math
from itertools import count, pairwise
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, model_validator

from geosim.errors import UsageError
from geosim.scenario.ranges import Delay, Rate, RunTime
from geosim.scenario.varying.base import Changes, Condition, Loss, Stay, Variation
from geosim.spec import Spec

if TYPE_CHECKING:
    import numpy as np


class VaryingPoint(Spec):
    """From `at_s` on these hold; what no point of a trace says is the link's own."""

    at_s: RunTime
    bandwidth_bytes_per_s: Rate | None = None
    rtt_s: Delay | None = None
    loss: Loss | None = None


class Trace(Variation):
    """Measured points, written out or from `file` (CSV or YAML, next to the scenario file).

    Attributes:
        points: the first at 0 s, times rising.
        repeat_s: starts over after so long; None: the last point holds.
    """

    kind: Literal["trace"] = "trace"
    points: Annotated[tuple[VaryingPoint, ...], Field(min_length=1)]
    repeat_s: Stay | None = None

    @model_validator(mode="after")
    def _rising(self) -> "Trace":
        times = [point.at_s for point in self.points]
        if times[0] != 0 or any(b <= a for a, b in pairwise(times)):
            raise UsageError("points: times must start at '0 s' and rise")
        for name in ("bandwidth_bytes_per_s", "rtt_s", "loss"):
            given = [getattr(point, name) is not None for point in self.points]
            if any(given) and not all(given):
                raise UsageError(f"points: give {name.split('_')[0]} at every point or at none")
        if self.repeat_s is not None and self.repeat_s <= times[-1]:
            raise UsageError("repeat: must lie after the last point")
        return self

    @property
    def is_constant(self) -> bool:
        return len(self.points) == 1

    def mean(self) -> Condition:
        """Over a period; without one, the last point, which holds for ever."""
        if self.repeat_s is None:
            return _at(self.points[-1])
        ends = [*(p.at_s for p in self.points[1:]), self.repeat_s]
        lengths = [end - p.at_s for p, end in zip(self.points, ends, strict=True)]

        def average(name: str) -> Any:
            values = [getattr(p, name) for p in self.points]
            if values[0] is None:
                return None
            return sum(v * n for v, n in zip(values, lengths, strict=True)) / math.fsum(lengths)

        return Condition(
            bandwidth_bytes_per_s=average("bandwidth_bytes_per_s"),
            rtt_s=average("rtt_s"),
            own_loss=average("loss"),
        )

    def changes(self, random: "np.random.Generator") -> Changes:
        for period in count():
            for point in self.points:
                yield point.at_s + (period * self.repeat_s if self.repeat_s else 0.0), _at(point)
            if self.repeat_s is None:
                return

    def scaled(self, factor: Any) -> "Trace":
        def scale(point: VaryingPoint) -> VaryingPoint:
            rate = point.bandwidth_bytes_per_s
            if rate is None:
                return point
            return point.model_copy(update={"bandwidth_bytes_per_s": rate * factor})

        return self.model_copy(update={"points": tuple(scale(p) for p in self.points)})


def _at(point: VaryingPoint) -> Condition:
    return Condition(
        bandwidth_bytes_per_s=point.bandwidth_bytes_per_s, rtt_s=point.rtt_s, own_loss=point.loss
    )
