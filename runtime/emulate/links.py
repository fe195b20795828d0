"""One direction of a link at work: admits packets, serialises them, delays them, counts them.

Time is a virtual departure clock that `advance` moves on; nothing here sleeps, reads or writes.
"""

from __future__ import annotations

import math
import random
from collections import deque
from dataclasses import asdict, dataclass, replace
from typing import Any

from runtime.emulate.packets import VNET_BYTES, Buffers, cut, shape
from runtime.emulate.rates import RateClock
from runtime.emulate.spec import LinkSpec

# A superframe leaves in slices of at most this much serialisation time, so that acknowledgements
# come back as they would; below the 2 ms that CUBIC's HyStart takes for the end of an ACK train.
_SLICE_S = 1.5e-3
_JITTER_KNOT = 4.0  # spacing of the jitter path's knots in units of jitter: slopes stay within +- 1/2


@dataclass(slots=True)
class Counters:
    """What became of the traffic, in IP bytes on the wire; `payload_bytes`: TCP's, delivered."""

    offered_segments: int = 0
    offered_bytes: int = 0
    delivered_segments: int = 0
    delivered_bytes: int = 0
    dropped_loss_segments: int = 0
    dropped_loss_bytes: int = 0
    dropped_queue_segments: int = 0
    dropped_queue_bytes: int = 0
    dropped_down_segments: int = 0
    dropped_down_bytes: int = 0
    in_flight_segments: int = 0
    in_flight_bytes: int = 0
    payload_bytes: int = 0
    max_backlog_bytes: int = 0


# Wire bytes, segments, TCP payload bytes, what to write.
_Slice = tuple[int, int, int, Buffers]


class Link:
    """The state of one direction; `wire` holds (due time, slice), delivered from its left."""

    def __init__(self, spec: LinkSpec, seed: str, now: float) -> None:
        self.spec = spec
        self.wire: deque[tuple[float, _Slice]] = deque()
        self._up = True
        self._counters = Counters()
        self._queue: deque[_Slice] = deque()
        self._queued_bytes = 0
        self._head_start = self._head_end = self._head_due = now
        self._last_due = now
        self._random = random.Random(seed)
        self._epoch = now
        self._clock = RateClock(spec, now)
        self._limit = spec.queue_limit_bytes
        self._until_loss = self._draw_until_loss()
        self._knot_at = -math.inf
        self._knots = (0.0, 0.0)

    def counters(self) -> dict[str, int]:
        """The counters so far; offered is delivered, dropped and in flight together."""
        return asdict(self._counters)

    def change(self, changes: dict[str, Any], now: float) -> None:
        """Change fields of the spec, or `up`; what waits in the queue leaves at the new rate."""
        self.advance(now)
        changes = dict(changes)
        self._up = changes.pop("up", self._up)
        if not self._up:
            self._cut_off()
        self.spec = spec = replace(self.spec, **changes)
        self._limit = spec.queue_limit_bytes
        if "loss" in changes:
            self._until_loss = self._draw_until_loss()
        if changes.keys() & {"rate_bytes_per_s", "trace", "trace_period_s"}:
            unsent = self._head_unsent_bytes(now)
            if "trace" in changes:
                self._epoch = now
            self._clock = RateClock(spec, self._epoch)
            if self._queue:
                self._start_head(now, unsent)

    def offer(self, packet: bytes, now: float) -> None:
        """A packet arrives at the near end: lose, drop or queue each of its segments."""
        segments, header, segment = shape(packet)
        tally = self._counters
        size = len(packet) - VNET_BYTES + (segments - 1) * header
        tally.offered_segments += segments
        tally.offered_bytes += size
        if not self._up:
            tally.dropped_down_segments += segments
            tally.dropped_down_bytes += size
            return
        self.advance(now)
        full = header + segment
        payload = len(packet) - VNET_BYTES - header
        first = 0
        while first < segments:
            run = min(segments - first, self._until_loss)
            self._until_loss -= run
            fits = self._admissible(first, run, segments, full, size, now)
            self._enqueue(packet, header, segment, first, first + fits, segments, payload, now)
            if fits < run:
                tally.dropped_queue_segments += run - fits
                tally.dropped_queue_bytes += _span(first + fits, first + run, segments, full, size)
            first += run
            if first < segments:  # the next one is lost
                tally.dropped_loss_segments += 1
                tally.dropped_loss_bytes += _span(first, first + 1, segments, full, size)
                self._until_loss = self._draw_until_loss()
                first += 1

    def advance(self, now: float) -> None:
        """Move what has left the near end by `now` on to the wire."""
        queue = self._queue
        while queue and self._head_end <= now:
            head = queue.popleft()
            self._queued_bytes -= head[0]
            self._last_due = self._head_due
            self.wire.append((self._head_due, head))
            if queue:
                self._start_head(self._head_end, queue[0][0])

    def next_due(self) -> float:
        """When the next slice reaches the far end; infinity if none is under way."""
        if self.wire:
            return self.wire[0][0]
        return self._head_due if self._queue else math.inf

    def empty(self) -> bool:
        """Whether nothing waits or is under way."""
        return not self.wire and not self._queue

    def delivered(self, piece: _Slice) -> None:
        """Count a slice as arrived."""
        tally = self._counters
        tally.delivered_bytes += piece[0]
        tally.delivered_segments += piece[1]
        tally.payload_bytes += piece[2]
        tally.in_flight_bytes -= piece[0]
        tally.in_flight_segments -= piece[1]

    def undeliverable(self, piece: _Slice) -> None:
        """Count a slice that found its link or the far interface down."""
        tally = self._counters
        tally.dropped_down_bytes += piece[0]
        tally.dropped_down_segments += piece[1]
        tally.in_flight_bytes -= piece[0]
        tally.in_flight_segments -= piece[1]

    def _admissible(self, first: int, run: int, segments: int, full: int, size: int, now: float) -> int:
        if not self._queue:
            waiting = 0.0
            least = 1  # an idle link always takes one
        else:
            waiting = self._queued_bytes - self._queue[0][0] + self._head_unsent_bytes(now)
            least = 0
        room = self._limit - waiting
        if _span(first, first + run, segments, full, size) <= room:
            fits = run
        else:
            fits = min(run, max(least, int(max(room, 0) // full)))
        after = waiting + _span(first, first + fits, segments, full, size)
        if after > self._counters.max_backlog_bytes:
            self._counters.max_backlog_bytes = int(after)
        return fits

    def _enqueue(
        self, packet: bytes, header: int, segment: int, first: int, end: int, segments: int,
        payload: int, now: float,
    ) -> None:  # fmt: skip
        if first == end:
            return
        full = header + segment
        budget = self._clock.at(now)[0] * _SLICE_S
        per_slice = segments if budget >= segments * full else max(1, int(budget // full))
        idle = not self._queue
        for start in range(first, end, per_slice):
            stop = min(start + per_slice, end)
            whole = stop - start == segments
            buffers = (packet,) if whole else cut(packet, header, segment, start, stop)
            load = min(stop * segment, payload) - start * segment
            piece = (load + (stop - start) * header, stop - start, load, buffers)
            self._queue.append(piece)
            self._queued_bytes += piece[0]
            self._counters.in_flight_bytes += piece[0]
            self._counters.in_flight_segments += piece[1]
        if idle:
            self._start_head(now, self._queue[0][0])

    def _start_head(self, start: float, size: float) -> None:
        end = self._clock.finish(start, size)
        self._head_start, self._head_end = start, end
        due = end + self.spec.delay_s
        if self.spec.jitter_s and end < math.inf:
            due = max(end, due + self._jitter(end))
        self._head_due = max(due, self._last_due)

    def _head_unsent_bytes(self, now: float) -> float:
        if not self._queue:
            return 0.0
        size = self._queue[0][0]
        length = self._head_end - self._head_start
        if length <= 0 or length == math.inf:
            return size
        return size * min(1.0, (self._head_end - now) / length)

    def _jitter(self, when: float) -> float:
        bound = self.spec.jitter_s
        spacing = bound * _JITTER_KNOT
        draw = self._random.uniform
        if when >= self._knot_at + 2 * spacing:  # idle since: any path will do
            self._knot_at = when
            self._knots = (draw(-bound, bound), draw(-bound, bound))
        elif when >= self._knot_at + spacing:
            self._knot_at += spacing
            self._knots = (self._knots[1], draw(-bound, bound))
        share = (when - self._knot_at) / spacing
        return self._knots[0] + (self._knots[1] - self._knots[0]) * share

    def _draw_until_loss(self) -> int:
        """How many segments pass before the next loss: one draw a loss, not one a segment."""
        loss = self.spec.loss
        if loss <= 0:
            return 1 << 62
        if loss >= 1:
            return 0
        return int(math.log(1.0 - self._random.random()) / math.log1p(-loss))

    def _cut_off(self) -> None:
        for piece in self._queue:
            self.undeliverable(piece)
        for _, piece in self.wire:
            self.undeliverable(piece)
        self._queue.clear()
        self.wire.clear()
        self._queued_bytes = 0


def _span(first: int, end: int, segments: int, full: int, size: int) -> int:
    """Wire bytes of segments `first` up to `end`; the last segment of all may be short."""
    if first >= end:
        return 0
    if end == segments:
        return size - first * full
    return (end - first) * full
