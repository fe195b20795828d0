"""Where the time of a step goes, on this rank."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from geosim.trace_events import TRAIN
from runtime.trace import Recorder

# `decode` runs on the exchange thread, beside the others; all else is the main thread's.
PARTS = ("compute", "site_collective", "encode", "wait", "decode", "gather", "apply")


class Clock:
    """Seconds spent in each part since the last `take`.

    Attributes:
        trace: takes down each part as a span; None: nothing does.
    """

    def __init__(self, trace: Recorder | None = None) -> None:
        self.trace = trace
        self._seconds = dict.fromkeys(PARTS, 0.0)

    @contextmanager
    def part(self, name: str, detail: str = "", traced: str = "") -> Iterator[None]:
        """Count the time inside the block.

        Args:
            name: which part.
            detail: of which round, for the trace.
            traced: what the trace calls it, if not by its name.
        """
        begin = time.perf_counter()
        try:
            yield
        finally:
            end = time.perf_counter()
            self._seconds[name] += end - begin
            if self.trace is not None:
                self.trace.span(TRAIN, traced or name, begin, end, detail)

    def add(self, name: str, seconds: float) -> None:
        """Count time that was measured elsewhere."""
        self._seconds[name] += seconds

    def take(self) -> dict[str, float]:
        """The seconds of each part, which start again from zero."""
        taken = self._seconds
        self._seconds = dict.fromkeys(PARTS, 0.0)
        return taken


def percentile(values: Sequence[float], share: float) -> float:
    """Linear interpolation between the sorted values, as numpy's default; 0 of an empty sequence."""
    if not values:
        return 0.0
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def warm_steps(steps: int, interval: int) -> int:
    """Steps that pass before measuring begins: two windows and four steps, so long as one window is left."""
    windows = steps // interval
    return min(max(2, -(-4 // interval)), max(0, windows - 1)) * interval
