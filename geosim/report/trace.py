"""A run as a Chrome trace (JSON), which Perfetto opens: https://ui.perfetto.dev.

One process a site with the tracks train (compute, collective, encode, wait, gather, apply) and exchange (the
worker); one process a link with its flows and a counter of its use. Times are microseconds, as the Trace
Event Format wants.
"""

import json
from pathlib import Path
from typing import Any

from geosim.errors import UsageError
from geosim.sim import Result, Tracer

_MICRO = 1e6


def trace_events(tracer: Tracer) -> list[dict[str, Any]]:
    """Metadata, complete and counter events."""
    rows: dict[str, int] = {}
    tracks: dict[tuple[str, str], int] = {}
    events: list[dict[str, Any]] = []

    def process(row: str) -> int:
        if row not in rows:
            rows[row] = len(rows) + 1
            events.append(
                {"ph": "M", "name": "process_name", "pid": rows[row], "tid": 0, "args": {"name": row}}
            )
            events.append(
                {
                    "ph": "M",
                    "name": "process_sort_index",
                    "pid": rows[row],
                    "tid": 0,
                    "args": {"sort_index": rows[row]},
                }
            )
        return rows[row]

    def thread(row: str, track: str) -> int:
        pid = process(row)
        if (row, track) not in tracks:
            tracks[row, track] = 1 + sum(1 for r, _ in tracks if r == row)
            events.append(
                {
                    "ph": "M",
                    "name": "thread_name",
                    "pid": pid,
                    "tid": tracks[row, track],
                    "args": {"name": track},
                }
            )
        return tracks[row, track]

    for row, name, start, end in _lanes(tracer):
        lane, track = row
        tid = thread(lane, track)
        events.append(
            {
                "ph": "X", "name": name, "cat": track, "pid": rows[lane], "tid": tid,
                "ts": start * _MICRO, "dur": (end - start) * _MICRO,
            }
        )  # fmt: skip
    for link, at, rate in tracer.samples:
        pid = process(f"link {link}")
        events.append(
            {
                "ph": "C",
                "name": "Mbit/s",
                "pid": pid,
                "tid": 0,
                "ts": at * _MICRO,
                "args": {"used": rate * 8e-6},
            }
        )
    return events


def _lanes(tracer: Tracer) -> list[tuple[tuple[str, str], str, float, float]]:
    """Spans by start; where two of a track overlap, as a link's flows may, the later gets its own track."""
    busy: dict[tuple[str, str], list[float]] = {}
    out = []
    for row, track, name, start, end in sorted(tracer.spans, key=lambda s: (s[3], s[4])):
        ends = busy.setdefault((row, track), [])
        lane = next((i for i, until in enumerate(ends) if until <= start + 1e-12), len(ends))
        if lane == len(ends):
            ends.append(end)
        ends[lane] = end
        out.append(((row, track if lane == 0 else f"{track} {lane + 1}"), name, start, end))
    return out


def write_trace(path: Path, result: Result, tracer: Tracer) -> None:
    """Write what `simulate(..., trace=tracer)` took down.

    Raises:
        UsageError: if the file cannot be written.
    """
    about = {"scenario": result.scenario, "policy": result.policy}
    data = {"traceEvents": trace_events(tracer), "displayTimeUnit": "ms", "otherData": about}
    try:
        path.write_text(json.dumps(data), encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{path}: cannot write the trace: {error.strerror}") from None
