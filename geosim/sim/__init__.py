"""The simulator: `simulate` one policy; `closed_form` has the steady state of many at once."""

from geosim.sim.record import Tracer
from geosim.sim.result import Result
from geosim.sim.simulate import simulate

__all__ = ["Result", "Tracer", "simulate"]
