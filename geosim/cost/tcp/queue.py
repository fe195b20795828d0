"""One direction of a link: a drop-tail queue in front of a constant rate, then a constant delay.

What a sender hands over at once leaves in slices of at most 1.5 ms, as a receiver sees it that takes packets
off its card in batches and acknowledges each batch (Linux: GRO).
"""

import math
from collections.abc import Callable

SLICE_S = 1.5e-3
_QUIET_S = 1e-3


class Queue:
    """All packets that go one way.

    Attributes:
        busy_until: when the last packet that was taken has left.
        sent_bytes, dropped: so far; dropped segments.
    """

    def __init__(
        self,
        rate_bytes_per_s: float,
        delay_s: float,
        limit_bytes: float,
        segment_bytes: float,
        until_loss: Callable[[], int] | None = None,
        host_s: Callable[[], float] | None = None,
        wake_s: float = 0.0,
    ) -> None:
        """A queue.

        Args:
            rate_bytes_per_s, delay_s: one way.
            limit_bytes: of what waits.
            segment_bytes: of a full segment on the wire.
            until_loss: draws how many segments pass before the next one is lost; None: none is.
            host_s: draws how much later than on the wire a slice is seen, in order all the same; None: not.
        """
        self.rate = rate_bytes_per_s
        self.delay_s = delay_s
        self.limit = limit_bytes
        self.segment_bytes = segment_bytes
        self.busy_until = 0.0
        self.sent_bytes = 0.0
        self.dropped = 0
        self._draw = until_loss
        self._host_s = host_s
        self._wake_s = wake_s
        self._seen = 0.0
        self._until_loss = until_loss() if until_loss else 1 << 62
        whole = SLICE_S * rate_bytes_per_s / segment_bytes
        self._per_slice = max(1, int(whole)) if math.isfinite(whole) else 1 << 62

    def offer(self, now: float, segments: int) -> list[tuple[int, float]]:
        """Full segments, all at once: (how many, when they arrive at the far end; below 0: never)."""
        if self._until_loss >= segments:
            self._until_loss -= segments
            return self._queue(now, segments)
        assert self._draw is not None
        fates: list[tuple[int, float]] = []
        while self._until_loss < segments:
            if self._until_loss:
                fates += self._queue(now, self._until_loss)
            segments -= self._until_loss + 1
            fates.append((1, -1.0))
            self.dropped += 1
            self._until_loss = self._draw()
        self._until_loss -= segments
        return fates + self._queue(now, segments) if segments else fates

    def _queue(self, now: float, segments: int) -> list[tuple[int, float]]:
        waiting = (self.busy_until - now) * self.rate
        start = self.busy_until
        if waiting <= 0:
            waiting, start = 0.0, now
        fit = segments
        if waiting + segments * self.segment_bytes > self.limit:
            least = 0 if waiting > 0 else 1
            fit = min(segments, max(least, int((self.limit - waiting) // self.segment_bytes)))
        fates = []
        left = fit
        while left > 0:
            n = min(left, self._per_slice)
            start += n * self.segment_bytes / self.rate
            fates.append((n, self._arrival(start)))
            left -= n
        self.busy_until = max(start, self.busy_until)
        self.sent_bytes += fit * self.segment_bytes
        if fit < segments:
            self.dropped += segments - fit
            fates.append((segments - fit, -1.0))
        return fates

    def offer_small(self, now: float, size_bytes: float) -> float:
        """One small packet, such as an acknowledgement: when it arrives at the far end; below 0: never."""
        if self._until_loss == 0:
            assert self._draw is not None
            self._until_loss = self._draw()
            return -1.0
        self._until_loss -= 1
        start = max(now, self.busy_until)
        if start > now and (start - now) * self.rate + size_bytes > self.limit:
            return -1.0
        self.busy_until = start + size_bytes / self.rate
        self.sent_bytes += size_bytes
        return self._arrival(self.busy_until)

    def _arrival(self, left_s: float) -> float:
        if self._host_s is None:
            return left_s + self.delay_s
        arrival = left_s + self.delay_s
        late = self._host_s()
        if arrival - self._seen > _QUIET_S:
            late += self._wake_s
        self._seen = max(self._seen, arrival + late)
        return self._seen
