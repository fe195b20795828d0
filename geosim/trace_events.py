"""The trace of a run, simulated or real, as a file that https://ui.perfetto.dev opens.

Both write the same kind, Chrome's Trace Event Format (JSON, microseconds), with the same names, so that one
opens beside the other. A process is a site, a link ("link a->b") or the ring of plain data parallelism; its
threads are tracks of spans; a counter is one number over time.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

from geosim.errors import UsageError
from geosim.files import whole_file

FORMAT = 1
WINDOWS, TRAIN, EXCHANGE, FLOWS = "windows", "train", "exchange", "flows"
WARM_UP, WINDOW = "warm-up", "window"
LINK_RATE, RESIDUAL = "Mbit/s", "residual norm"
_MICRO = 1e6
_TOUCH_S = 1e-9  # spans that overlap by less than this only touch, to rounding


class Span(NamedTuple):
    """Something that took from `start_s` to `end_s` on a track; `steps` of training, where it is some."""

    process: str
    track: str
    name: str
    start_s: float
    end_s: float
    detail: str = ""
    steps: int = 0


class Count(NamedTuple):
    """What a counter of a process shows from `at_s` on."""

    process: str
    name: str
    at_s: float
    value: float


@dataclass
class Timeline:
    """A run: what it was, and what happened when. Seconds from whatever its clock began with.

    Attributes:
        kind: where it comes from.
        about: scenario, policy and whatever else is to be known of it.
        spans, counts: in any order.
    """

    kind: Literal["simulated", "measured"]
    about: Mapping[str, str]
    spans: list[Span] = field(default_factory=list)
    counts: list[Count] = field(default_factory=list)


def link(source: str, target: str) -> str:
    """The process of one direction of a link."""
    return f"link {source}->{target}"


def document(timeline: Timeline) -> dict[str, Any]:
    """The file's content: metadata, then spans and counters by time, from 0 on.

    Spans that overlap on a track, as a link's flows may, get tracks of their own.
    """
    origin = min(
        [s.start_s for s in timeline.spans] + [c.at_s for c in timeline.counts], default=0.0
    )  # of the clock, which may have begun when the machine did
    names = _Names()
    for span in timeline.spans:
        names.process(span.process)
    events = []
    for span, lane in _on_lanes(timeline.spans):
        pid, tid = names.thread(span.process, f"{span.track} {lane + 1}" if lane else span.track)
        said = {"what": span.detail} if span.detail else {}
        events.append(
            {
                "ph": "X", "name": span.name, "cat": span.track, "pid": pid, "tid": tid,
                "ts": (span.start_s - origin) * _MICRO, "dur": (span.end_s - span.start_s) * _MICRO,
                "args": {**said, **({"steps": span.steps} if span.steps else {})},
            }
        )  # fmt: skip
    for count in timeline.counts:
        events.append(
            {
                "ph": "C", "name": count.name, "pid": names.process(count.process), "tid": 0,
                "ts": (count.at_s - origin) * _MICRO, "args": {"value": count.value},
            }
        )  # fmt: skip
    events.sort(key=lambda event: float(str(event["ts"])))
    return {
        "traceEvents": [*names.metadata(), *events],
        "displayTimeUnit": "ms",
        "otherData": {"geosim_trace": FORMAT, "kind": timeline.kind, **timeline.about},
    }


def save(path: Path, content: Mapping[str, Any]) -> None:
    """Write a trace.

    Raises:
        UsageError: if the file cannot be written.
    """
    try:
        with whole_file(path) as part:
            part.write_text(json.dumps(content, allow_nan=False), encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{path}: cannot write the trace: {error.strerror}") from None


class _Names:
    """Numbers of processes and threads, by name, and the events that tell the names."""

    def __init__(self) -> None:
        self._processes: dict[str, int] = {}
        self._threads: dict[tuple[str, str], int] = {}

    def process(self, name: str) -> int:
        return self._processes.setdefault(name, 1 + len(self._processes))

    def thread(self, process: str, track: str) -> tuple[int, int]:
        """Threads' numbers are unique over all processes: some readers know a thread by it alone."""
        pid = self.process(process)
        return pid, self._threads.setdefault((process, track), 1 + len(self._threads))

    def metadata(self) -> Iterable[dict[str, Any]]:
        for name, pid in self._processes.items():
            yield _named("process_name", pid, 0, name=name)
            yield _named("process_sort_index", pid, 0, sort_index=pid)
        for (process, track), tid in self._threads.items():
            yield _named("thread_name", self._processes[process], tid, name=track)
            yield _named("thread_sort_index", self._processes[process], tid, sort_index=_place(track, tid))


def _named(what: str, pid: int, tid: int, **said: Any) -> dict[str, Any]:
    return {"ph": "M", "name": what, "pid": pid, "tid": tid, "args": said}


def _place(track: str, tid: int) -> int:
    """Windows on top, then training, then the rest as it comes."""
    return {WINDOWS: -2, TRAIN: -1}.get(track, tid)


def _on_lanes(spans: Iterable[Span]) -> list[tuple[Span, int]]:
    """Spans by start, each with the first lane of its track that is free then."""
    busy: dict[tuple[str, str], list[float]] = {}
    out = []
    for span in sorted(spans, key=lambda s: (s.start_s, s.end_s)):
        ends = busy.setdefault((span.process, span.track), [])
        lane = next((i for i, until in enumerate(ends) if until <= span.start_s + _TOUCH_S), len(ends))
        if lane == len(ends):
            ends.append(span.end_s)
        ends[lane] = span.end_s
        out.append((span, lane))
    return out
