"""Measured logs in, scenario values out: iperf3, ping, nccl-tests, torch.profiler, config.json."""

from geosim.calibrate.combine import Choice, Combined, combine
from geosim.calibrate.fill import Filled, fill
from geosim.calibrate.kinds import KINDS, read_file
from geosim.calibrate.reading import Fact, Reading, Value

__all__ = [
    "KINDS",
    "Choice",
    "Combined",
    "Fact",
    "Filled",
    "Reading",
    "Value",
    "combine",
    "fill",
    "read_file",
]
