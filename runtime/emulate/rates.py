"""When a packet that starts now has left, given a rate that may change over time."""

from __future__ import annotations

import math
from bisect import bisect_right

from runtime.emulate.spec import LinkSpec


class RateClock:
    """The rate of one link over time; `epoch` is when its trace began."""

    def __init__(self, spec: LinkSpec, epoch: float) -> None:
        self._base = spec.rate_bytes_per_s
        self._times = [time for time, _ in spec.trace]
        self._rates = [rate for _, rate in spec.trace]
        self._period = spec.trace_period_s
        self._epoch = epoch

    def at(self, when: float) -> tuple[float, float]:
        """The rate at a time, and the time until which it holds."""
        if not self._times:
            return self._base, math.inf
        offset = when - self._epoch
        lap = 0.0
        end = math.inf
        if self._period is not None:
            lap = offset // self._period * self._period
            offset -= lap
            end = self._period
        index = bisect_right(self._times, offset)
        until = self._times[index] if index < len(self._times) else end
        rate = self._rates[index - 1] if index else self._base
        return rate, self._epoch + lap + until

    def finish(self, start: float, size: float) -> float:
        """When `size` bytes that start at `start` have left; infinity if they never do."""
        if not self._times:
            return start + size / self._base
        while True:
            rate, until = self.at(start)
            if until <= start:  # rounding put `start` a hair before a point: step over it
                until = math.nextafter(start, math.inf)
            if rate > 0 and start + size / rate <= until:
                return start + size / rate
            if until == math.inf:
                return math.inf
            size -= rate * (until - start)
            start = until
