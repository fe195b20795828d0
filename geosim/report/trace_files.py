"""Traces from their files: what each lane spent a step, and several in one file side by side."""

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from geosim.errors import UsageError
from geosim.trace_events import FORMAT, WINDOW, WINDOWS

Lane = tuple[str, str, str]  # process, track, span's name


@dataclass(frozen=True)
class TraceFile:
    """A trace that geosim or georun has written.

    Attributes:
        label: "simulated" or "measured".
        about: scenario, policy and so on.
        events: as in the file.
        processes, tracks: names, by number and by (process, thread).
        begin_us, end_us: between the end of the warm-up and of the last window.
        ends_us: of each rank's own last window, by its site's number and its track's ending.
        steps: in between.
    """

    label: str
    about: Mapping[str, str]
    events: Sequence[Mapping[str, Any]]
    processes: Mapping[int, str]
    tracks: Mapping[tuple[int, int], str]
    begin_us: float
    end_us: float
    ends_us: Mapping[tuple[int, str], float]
    steps: int

    def totals(self) -> dict[Lane, float]:
        """Seconds a step in which a lane was busy, between the end of the warm-up and of the last window.

        A lane is what a track's ranks have in common: the mean over them. Where several streams or flows
        are under way at once, the time counts once.
        """
        spans: dict[tuple[str, str, str, str], list[tuple[float, float]]] = defaultdict(list)
        ranks: dict[str, set[str]] = defaultdict(set)
        for event in self.events:
            if event["ph"] == "X":
                track, rank = _without_rank(event["cat"])
                process = self.processes[event["pid"]]
                ranks[process].add(rank)
                start = max(event["ts"], self.begin_us)
                # A rank that is through before the others validates, which is no part of a step.
                last = self.ends_us.get((event["pid"], rank), self.end_us)
                end = min(event["ts"] + event["dur"], last)
                if end > start and track != WINDOWS:
                    spans[process, track, event["name"], rank].append((start, end))
        out: dict[Lane, float] = defaultdict(float)
        for (process, track, name, _), mine in spans.items():
            out[process, track, name] += 1e-6 * _covered(mine) / self.steps / len(ranks[process])
        return dict(out)


def _without_rank(track: str) -> tuple[str, str]:
    """A track's name without rank and stream, and its rank."""
    name, *rest = track.split(", ")
    return name, next((word for word in rest if word.startswith("rank ")), "")


def _covered(spans: Sequence[tuple[float, float]]) -> float:
    """How long at least one of the spans lasts."""
    total, until = 0.0, float("-inf")
    for start, end in sorted(spans):
        total += max(0.0, end - max(start, until))
        until = max(until, end)
    return total


def load(path: Path) -> TraceFile:
    """Read a trace.

    Raises:
        UsageError: if there is none, it is no trace of geosim's, or it has no window after its warm-up.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{path}: cannot read the trace: {error.strerror}") from None
    except ValueError:
        raise UsageError(f"{path}: is no JSON: give a trace of geosim simulate or georun") from None
    about = content.get("otherData", {}) if isinstance(content, dict) else {}
    if about.get("geosim_trace") != FORMAT:
        raise UsageError(
            f"{path}: is no trace of this geosim's: write one with geosim simulate --trace or georun --trace"
        )
    events = content["traceEvents"]
    processes = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    tracks = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    # A site's own windows, one rank's of each.
    windows: dict[int, list[Mapping[str, Any]]] = defaultdict(list)
    for event in events:
        if event["ph"] == "X" and event["cat"] == WINDOWS and event["name"] == WINDOW:
            windows[event["pid"]].append(event)
    if not windows:
        raise UsageError(f"{path}: has no window after its warm-up: trace a longer run")
    ends_us: dict[tuple[int, str], float] = defaultdict(float)
    for event in events:
        if event["ph"] == "X" and event["name"] == WINDOW and _without_rank(event["cat"])[0] == WINDOWS:
            where = event["pid"], _without_rank(event["cat"])[1]
            ends_us[where] = max(ends_us[where], event["ts"] + event["dur"])
    said = {key: value for key, value in about.items() if key not in ("geosim_trace", "kind")}
    return TraceFile(
        label=about["kind"],
        about=said,
        events=events,
        processes=processes,
        tracks=tracks,
        begin_us=max(min(e["ts"] for e in mine) for mine in windows.values()),
        end_us=max(e["ts"] + e["dur"] for mine in windows.values() for e in mine),
        ends_us=ends_us,
        steps=min(sum(e["args"]["steps"] for e in mine) for mine in windows.values()),
    )


def labels(files: Sequence[TraceFile], paths: Sequence[Path]) -> list[str]:
    """What each is called: simulated or measured, or its file's name where that does not tell them apart."""
    kinds = [file.label for file in files]
    return kinds if len(set(kinds)) == len(kinds) else [path.stem for path in paths]


def side_by_side(files: Sequence[TraceFile], named: Sequence[str]) -> dict[str, Any]:
    """One file's content: processes of one name next to each other, each with its run's name.

    Their warm-ups end at the same time; no span begins before 0.
    """
    latest = max(file.begin_us for file in files)
    order = list(dict.fromkeys(name for file in files for name in file.processes.values()))
    out: list[dict[str, Any]] = []
    first_thread = 0
    for place, (file, label) in enumerate(zip(files, named, strict=True)):
        shift = latest - file.begin_us
        numbers = {pid: 1 + place + len(files) * order.index(name) for pid, name in file.processes.items()}
        for event in file.events:
            moved = {**event, "pid": numbers[event["pid"]]}
            moved["tid"] = event["tid"] + (first_thread if event["tid"] else 0)
            if event["ph"] == "M":
                if event["name"] == "process_name":
                    moved["args"] = {"name": f"{event['args']['name']} ({label})"}
                elif event["name"] == "process_sort_index":
                    moved["args"] = {"sort_index": moved["pid"]}
            else:
                moved["ts"] = event["ts"] + shift
            out.append(moved)
        first_thread += max((tid for _, tid in file.tracks), default=0)
    out.sort(key=lambda event: (event["ph"] != "M", event.get("ts", 0.0)))
    about = {label: dict(file.about) for file, label in zip(files, named, strict=True)}
    return {"traceEvents": out, "displayTimeUnit": "ms", "otherData": about}
