"""Choosing a policy: the space, the order of aggressiveness, the front, the search and its sensitivity."""

from geosim.tune.held import held_fields
from geosim.tune.search import TOLERANCE, Point, Tuned, tune
from geosim.tune.space import default_base

__all__ = ["TOLERANCE", "Point", "Tuned", "default_base", "held_fields", "tune"]
