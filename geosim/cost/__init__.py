"""What each thing costs: compute, collectives, transport, codecs; and a whole policy as a `Problem`."""

from geosim.cost.assemble import build
from geosim.cost.calibration import Calibration, load_calibration
from geosim.cost.problem import Problem

__all__ = ["Calibration", "Problem", "build", "load_calibration"]
