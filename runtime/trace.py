"""What one rank takes down for a trace: spans by `time.perf_counter`, transfers, and the residual's norm."""

from __future__ import annotations

import socket
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from geosim.trace_events import EXCHANGE, RESIDUAL, TRAIN, WARM_UP, WINDOW, WINDOWS

if TYPE_CHECKING:
    from torch import Tensor
    from torch.distributed import Work

    from runtime.exchange import Flight
    from runtime.gloo import Stream

Pack = dict[str, Any]

_MOST = 200_000  # spans of a rank; a longer run's trace ends early
_BOOT = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True)
class _Moved:
    """One slice that went to or came from a peer: when it was posted, and when that was seen to be done."""

    sent: bool
    peer: int
    stream: int
    size_bytes: int
    posted_s: float
    done_s: float


class Recorder:
    """One rank's spans and counts. The exchange thread adds transfers, all else is the main thread's."""

    def __init__(self, site: str, rank: int, names: Sequence[str]) -> None:
        """`names`: of the sites, in order."""
        self._pack: Pack = {
            "site": site,
            "rank": rank,
            # All processes of a machine read the same monotonic clock, machines only their wall clocks.
            "machine": _machine(),
            "wall_minus_monotonic_s": time.time() - time.perf_counter(),
            "spans": [],
            "counts": [],
            "transfers": [],
            "reductions": [],
            "cut": False,
        }
        self._names = names
        self._moved: deque[_Moved] = deque()
        self._squares: dict[int, float] = {}
        self._window_s: float | None = None  # when it began

    def span(
        self, track: str, name: str, start_s: float, end_s: float, detail: str = "", steps: int = 0
    ) -> None:
        """Something that took from `start_s` to `end_s`."""
        if len(self._pack["spans"]) >= _MOST:
            self._pack["cut"] = True
        elif end_s > start_s:
            self._pack["spans"].append((track, name, start_s, end_s, detail, steps))

    @contextmanager
    def block(self, name: str) -> Iterator[None]:
        """A span of training around what the block does."""
        begun = time.perf_counter()
        try:
            yield
        finally:
            self.span(TRAIN, name, begun, time.perf_counter())

    def step(self, begun_s: float, computed_s: float, reduced_s: float, collective: str) -> None:
        """A step's computation, and the collective of that name which it ended with."""
        if self._window_s is None:
            self._window_s = begun_s
        self.span(TRAIN, "compute", begun_s, computed_s, steps=1)
        self.span(TRAIN, collective.replace("_", " "), computed_s, reduced_s)

    def window(self, steps: int, warm_up: bool) -> None:
        """A window has ended."""
        if self._window_s is not None:
            what = WARM_UP if warm_up else WINDOW
            self.span(WINDOWS, what, self._window_s, time.perf_counter(), steps=steps)
        self._window_s = None

    def residual(self, fragment: int, residual: Tensor) -> None:
        """The residual after a fragment was sent: one pass over memory, a span of its own."""
        begun = time.perf_counter()
        self._squares[fragment] = float(residual.norm()) ** 2
        now = time.perf_counter()
        self.span(TRAIN, "trace", begun, now)
        if not self._pack["cut"]:
            self._pack["counts"].append((RESIDUAL, now, sum(self._squares.values()) ** 0.5))

    def reduction(self, step: int, start_s: float, end_s: float) -> None:
        """Plain data parallelism's reductions in a step: from the first one's launch to the last's end."""
        if not self._pack["cut"]:
            self._pack["reductions"].append((step, start_s, end_s))

    def moved(self, sent: bool, peer: int, stream: int, size_bytes: int, posted_s: float) -> None:
        """The exchange thread has seen a slice through."""
        self._moved.append(_Moved(sent, peer, stream, size_bytes, posted_s, time.perf_counter()))

    def flight(self, flight: Flight) -> None:
        """A round has its result: what it took, and what of it each peer and stream took."""
        what = f"fragment {flight.fragment} round {flight.round}"
        self.span("hand-over", "hand-over", flight.queued_s, flight.started_s, what)
        self.span(EXCHANGE, "transfer", flight.started_s, flight.received_s, what)
        self.span(EXCHANGE, "decode", flight.received_s, flight.finished_s, what)
        ways: dict[tuple[bool, int, int], list[_Moved]] = {}
        while self._moved and self._moved[0].done_s <= flight.received_s:
            slice_ = self._moved.popleft()
            ways.setdefault((slice_.sent, slice_.peer, slice_.stream), []).append(slice_)
        for (sent, peer, stream), slices in ways.items():
            # Receives are posted a round ahead.
            start = max(flight.started_s, min(s.posted_s for s in slices))
            end = max(s.done_s for s in slices)
            name = self._names[peer]
            track = f"send to {name}" if sent else f"receive from {name}"
            track += f", stream {stream + 1}" if stream else ""
            self.span(track, "send" if sent else "receive", start, end, what)
            if not self._pack["cut"]:
                size = sum(s.size_bytes for s in slices)
                self._pack["transfers"].append((sent, name, stream, what, start, end, size))

    def pack(self) -> Pack:
        """Plain data for `runtime.timeline`, ready for JSON."""
        return self._pack


def noted(trace: Recorder | None, name: str) -> AbstractContextManager[None]:
    """A span around the block where there is a trace."""
    return nullcontext() if trace is None else trace.block(name)


def watched(stream: Stream, number: int, trace: Recorder | None) -> Stream:
    """A stream whose transfers go into the trace, where there is one."""
    return stream if trace is None else _WatchedStream(stream, number, trace)


class _WatchedStream:
    """Passes everything on, and tells when what it carries is through."""

    def __init__(self, stream: Stream, number: int, trace: Recorder) -> None:
        self._stream, self._number, self._trace = stream, number, trace

    def send(self, tensors: list[Tensor], dst: int, tag: int) -> Work:
        """Send one contiguous tensor."""
        return self._watched(self._stream.send(tensors, dst, tag), True, dst, tensors)

    def recv(self, tensors: list[Tensor], src: int, tag: int) -> Work:
        """Receive one contiguous tensor."""
        return self._watched(self._stream.recv(tensors, src, tag), False, src, tensors)

    def barrier(self) -> Work:
        """Wait for all."""
        return self._stream.barrier()

    def _watched(self, work: Work, sent: bool, peer: int, tensors: list[Tensor]) -> Any:
        posted = time.perf_counter()
        size = sum(tensor.nbytes for tensor in tensors)
        return _WatchedWork(work, lambda: self._trace.moved(sent, peer, self._number, size, posted))


class _WatchedWork:
    """A transfer; whoever has waited for it has seen it through."""

    def __init__(self, work: Work, seen: Any) -> None:
        self._work, self._seen = work, seen

    def wait(self, *timeout: timedelta) -> Any:
        """Until it is done."""
        result = self._work.wait(*timeout)
        self._seen()
        return result

    def __getattr__(self, name: str) -> Any:
        return getattr(self._work, name)


def _machine() -> str:
    """What tells this machine from others, for as long as its monotonic clock runs."""
    try:
        return _BOOT.read_text().strip()
    except OSError:
        return socket.gethostname()
