"""Experiments use both sides: the simulator and the real runtime."""
