"""What one direction of a WAN link does to packets, as numbers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

from geosim.errors import RunError

_LEAST_QUEUE_BYTES = 256 * 1024


@dataclass(frozen=True)
class LinkSpec:
    """One direction of a link. All bytes are IP bytes on a wire, headers of every segment included.

    `jitter_s`: the delay follows a seeded piecewise-linear path between values drawn uniformly from
    `delay_s` +- `jitter_s` (never below zero), a new one every four `jitter_s`; so packets never
    reorder and the mean stays `delay_s` under load.
    `loss`: probability for each MTU-sized segment, drawn before the queue, so lost segments take no
    capacity.
    `queue_bytes`: drop-tail limit on waiting bytes; None is one bandwidth-delay product of a round
    trip (2 x `delay_s`), at least 256 KiB. An idle link always takes one packet.
    `trace`: (time_s, rate_bytes_per_s) points counted from the moment the trace is set; a rate
    holds until the next point, `rate_bytes_per_s` before the first. Zero is an outage in which
    packets wait. The last rate holds, or the trace repeats every `trace_period_s`.
    """

    rate_bytes_per_s: float
    delay_s: float
    jitter_s: float = 0.0
    loss: float = 0.0
    queue_bytes: int | None = None
    trace: tuple[tuple[float, float], ...] = ()
    trace_period_s: float | None = None

    def __post_init__(self) -> None:
        def demand(holds: bool, field: str, value: object, rule: str) -> None:
            if not holds:
                raise RunError(f"link {field} = {value!r}: {rule}")

        for field in ("delay_s", "jitter_s"):
            value = getattr(self, field)
            demand(0 <= value < math.inf, field, value, "must be zero or more seconds")
        rate = self.rate_bytes_per_s
        demand(
            0 < rate < math.inf,
            "rate_bytes_per_s",
            rate,
            "must be above zero and finite; use up=False to cut a link",
        )
        demand(0 <= self.loss <= 1, "loss", self.loss, "must be a probability")
        queue = self.queue_bytes
        demand(queue is None or queue >= 0, "queue_bytes", queue, "must be zero or more")
        times = [time for time, _ in self.trace]
        ordered = all(a < b for a, b in pairwise(times))
        sound = all(r >= 0 for _, r in self.trace) and all(t >= 0 for t in times)
        demand(ordered and sound, "trace", self.trace, "times must rise from zero, rates be >= 0")
        period = self.trace_period_s
        demand(
            period is None or (bool(times) and period > times[-1]),
            "trace_period_s", period, "must lie after the last point of a trace",
        )  # fmt: skip
        if period is not None:
            moving = any(r > 0 for _, r in self.trace) or times[0] > 0
            demand(moving, "trace", self.trace, "a repeating trace needs a rate above zero")

    @property
    def queue_limit_bytes(self) -> float:
        """The drop-tail limit in force."""
        if self.queue_bytes is not None:
            return self.queue_bytes
        return max(self.rate_bytes_per_s * 2 * self.delay_s, _LEAST_QUEUE_BYTES)
