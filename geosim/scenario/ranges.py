"""Quantities of this world: types whose values lie far beyond what exists, and no farther.

What is outside is a slip of the pen, or makes results that nobody can read.
"""

from typing import Annotated

from pydantic import AfterValidator

from geosim.spec import Bytes, BytesPerSecond, FlopsPerSecond, Seconds, within
from geosim.units import BANDWIDTH, COMPUTE, SIZE, TIME

Rate = Annotated[BytesPerSecond, AfterValidator(within("1 kbit/s", "1 Ebit/s", BANDWIDTH))]
Delay = Annotated[Seconds, AfterValidator(within("0 s", "1 h", TIME))]
Storage = Annotated[Bytes, AfterValidator(within("1 B", "1 EB", SIZE))]
Speed = Annotated[FlopsPerSecond, AfterValidator(within("1 kFLOP/s", "1000 EFLOP/s", COMPUTE))]
StepTime = Annotated[Seconds, AfterValidator(within("1 ns", "1000 h", TIME))]
RunTime = Annotated[Seconds, AfterValidator(within("0 s", "1000000 h", TIME))]
