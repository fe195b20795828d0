"""What makes a WAN link vary: one family of specs, several of which may act on a link."""

from typing import Annotated

from pydantic import Field

from geosim.scenario.varying.base import Condition, Variation
from geosim.scenario.varying.diurnal import Diurnal
from geosim.scenario.varying.jitter import Jitter, Sample
from geosim.scenario.varying.outages import Down, Outages
from geosim.scenario.varying.range import Range
from geosim.scenario.varying.trace import Trace, VaryingPoint
from geosim.scenario.varying.two_states import CrossTraffic, GilbertElliott

AnyVariation = Annotated[
    Trace | GilbertElliott | Range | Diurnal | CrossTraffic | Jitter | Outages, Field(discriminator="kind")
]

__all__ = [
    "AnyVariation",
    "Condition",
    "CrossTraffic",
    "Diurnal",
    "Down",
    "GilbertElliott",
    "Jitter",
    "Outages",
    "Range",
    "Sample",
    "Trace",
    "Variation",
    "VaryingPoint",
]
