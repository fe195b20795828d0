"""A link with a daily rhythm."""

import math
from itertools import count
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from geosim.errors import UsageError
from geosim.scenario.varying.base import Changes, Condition, Variation
from geosim.spec import Seconds, within
from geosim.units import TIME

if TYPE_CHECKING:
    import numpy as np

DAY_S = 86400.0
_STEPS_A_PERIOD = 48
_TimeOfDay = Annotated[Seconds, AfterValidator(within("0 s", "24 h", TIME))]


class Diurnal(Variation):
    """A daily rhythm of the bandwidth: a sinusoid, or a table by the hour.

    Attributes:
        swing: share that is missing at the busiest time; none is half a day from it.
        busiest_s: time of day of that.
        hours: instead, the share of each hour of a day, 24 numbers.
        starts_s: time of day at which a run starts.
    """

    kind: Literal["diurnal"] = "diurnal"
    swing: Annotated[float, Field(gt=0, lt=1)] | None = None
    busiest_s: _TimeOfDay = 20 * 3600.0
    hours: tuple[Annotated[float, Field(gt=0, le=1)], ...] = ()
    starts_s: _TimeOfDay = 0.0

    @model_validator(mode="after")
    def _one_of_both(self) -> "Diurnal":
        if (self.swing is None) == (not self.hours):
            raise UsageError("swing: give either swing or hours")
        if self.hours and len(self.hours) != 24:
            raise UsageError(f"hours: needs 24 shares, one an hour (got {len(self.hours)})")
        return self

    def _table(self) -> tuple[float, ...]:
        """Shares of equal parts of a day; a part of the sinusoid has its mean over that part."""
        if self.swing is None:
            return self.hours
        turn = 2 * math.pi / _STEPS_A_PERIOD
        off = 2 * math.pi * self.busiest_s / DAY_S
        waves = [
            (math.sin((i + 1) * turn - off) - math.sin(i * turn - off)) / turn for i in range(_STEPS_A_PERIOD)
        ]
        return tuple(1 - self.swing * (1 + wave) / 2 for wave in waves)

    def mean(self) -> Condition:
        table = self._table()
        return Condition(share=math.fsum(table) / len(table))

    def changes(self, random: "np.random.Generator") -> Changes:
        table = self._table()
        length = DAY_S / len(table)
        first = int(self.starts_s / length)
        for i in count(first):
            yield max(0.0, i * length - self.starts_s), Condition(share=table[i % len(table)])
