"""What a site's headers say of its time: its longest exchange of the last round, and its mean step."""

from __future__ import annotations

import time

_MOST_US = 2**32 - 1  # a header's field


class Timings:
    """One rank's stopwatch.

    A step's computation runs from the last `zero_grad`, or where none was called since the last step from
    that step's end, until the next step is taken in. What a loop does between a step and the next
    `zero_grad`, validation or a save, is then not in it; what the site's ranks exchange inside the backward
    pass is.
    """

    def __init__(self) -> None:
        self._begun_s: float | None = None  # of the step that computes now
        self._computed_s = 0.0  # in this window, by so many steps
        self._steps = 0
        self._round, self._exchange_us = 0, 0

    def begin_step(self) -> None:
        """Computation begins."""
        self._begun_s = time.perf_counter()

    def end_compute(self) -> None:
        """The gradients are there."""
        if self._begun_s is not None:
            self._computed_s += time.perf_counter() - self._begun_s
            self._steps += 1

    def begin_window(self) -> None:
        """The mean starts again."""
        self._computed_s, self._steps = 0.0, 0

    def note_exchange(self, round_: int, seconds: float) -> None:
        """A fragment's exchange is done; the longest of a round counts."""
        took = round(seconds * 1e6)
        if round_ >= self._round:
            longest = max(took, self._exchange_us) if round_ == self._round else took
            self._round, self._exchange_us = round_, longest

    @property
    def exchange_us(self) -> int:
        """The longest exchange of the last completed round, whole microseconds."""
        return min(self._exchange_us, _MOST_US)

    @property
    def step_us(self) -> int:
        """The window's mean compute time of a step so far, whole microseconds."""
        return min(round(self._computed_s * 1e6 / max(1, self._steps)), _MOST_US)
