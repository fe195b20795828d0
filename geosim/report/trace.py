"""A simulated run as a trace file (`geosim.trace_events`).

A site's tracks are windows, train (compute, site collective, update, encode, wait, gather, apply), exchange
(the worker: transfer, then decode) and, where the step model knows them, the parts of compute; a link's are
its flows, with a counter of its use.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from geosim.sim import Result, Tracer
from geosim.trace_events import FLOWS, LINK_RATE, TRAIN, Count, Span, Timeline, document, save

PARTS_TRACK = "parts of compute"
_STEPS = re.compile(r"(.*?) (\d+) steps?")
_ROUND = re.compile(r"(.*?) ?((?:fragment \d+ round|bucket) \d+.*)")
_UNNAMED = {
    FLOWS: "flow",
    "all-reduce": "all-reduce",
}  # what a track's spans are where only the round is told
_EVERY_STEP = ("compute", "site collective", "update")
_MOST_STEPS = 64  # of a stretch that is drawn step by step

Parts = Mapping[str, Mapping[str, float]]


def timeline(tracer: Tracer, about: Mapping[str, str], compute_parts: Parts | None = None) -> Timeline:
    """What `simulate(..., trace=tracer)` took down.

    The simulator draws all steps up to the next event at once; each is shown as their mean.

    Args:
        tracer: of the run.
        about: scenario and policy.
        compute_parts: of each site, words for a part of a step's compute -> seconds; they are drawn one
            after the other, in proportion.
    """
    spans = list(_each_step(_spans(tracer.spans)))
    for process, parts in (compute_parts or {}).items():
        spans += [part for span in spans if _computes(span, process) for part in _shares(span, parts)]
    counts = [Count(f"link {name}", LINK_RATE, at, 8e-6 * rate) for name, at, rate in _last_of_each(tracer)]
    return Timeline("simulated", about, spans, counts)


def write_trace(path: Path, result: Result, tracer: Tracer, compute_parts: Parts | None = None) -> None:
    """Write what `simulate(..., trace=tracer)` took down.

    Raises:
        UsageError: if the file cannot be written.
    """
    about = {"scenario": result.scenario, "policy": result.policy}
    save(path, document(timeline(tracer, about, compute_parts)))


def _spans(rows: Iterable[tuple[str, str, str, float, float]]) -> Iterator[Span]:
    """The tracer's names taken apart: what it is, of which round, or how many steps."""
    for process, track, name, start, end in rows:
        steps, part = _STEPS.fullmatch(name), _ROUND.fullmatch(name)
        if steps:
            yield Span(process, track, steps[1], start, end, steps=int(steps[2]))
        elif part:
            yield Span(process, track, part[1] or _UNNAMED[track], start, end, part[2])
        else:
            yield Span(process, track, name, start, end)


def _each_step(spans: Iterable[Span]) -> Iterator[Span]:
    """Stretches of several steps (compute, site collective, update, end to end) laid out step by step."""
    waiting: dict[str, list[Span]] = {}  # by process, the stretch that may go on
    for span in spans:
        if span.track != TRAIN:
            yield span
            continue
        held = waiting.get(span.process, [])
        if held and span.name in _EVERY_STEP[1:] and abs(span.start_s - held[-1].end_s) < 1e-9:
            held.append(span)
            continue
        yield from _one_by_one(held)
        waiting[span.process] = [span] if span.name == "compute" and span.steps > 1 else []
        if not waiting[span.process]:
            yield span
    for held in waiting.values():
        yield from _one_by_one(held)


def _one_by_one(held: list[Span]) -> Iterator[Span]:
    if not held or held[0].steps > _MOST_STEPS:
        yield from held
        return
    count, at = held[0].steps, held[0].start_s
    for _ in range(count):
        for span in held:
            until = at + (span.end_s - span.start_s) / count
            yield span._replace(start_s=at, end_s=until, steps=1 if span.name == "compute" else 0)
            at = until


def _computes(span: Span, process: str) -> bool:
    return span.process == process and span.track == TRAIN and span.name == "compute"


def _shares(span: Span, parts: Mapping[str, float]) -> Iterator[Span]:
    """A compute span cut in proportion to its parts."""
    total, at = sum(parts.values()), span.start_s
    for name, seconds in parts.items():
        if seconds > 0:
            until = at + (span.end_s - span.start_s) * seconds / total
            yield Span(span.process, PARTS_TRACK, name, at, until)
            at = until


def _last_of_each(tracer: Tracer) -> Iterator[tuple[str, float, float]]:
    """The rates of links as they change: of several at one time the last, and none that only repeats."""
    shown: dict[str, float] = {}
    latest: dict[str, tuple[float, float]] = {}
    for name, at, rate in tracer.samples:
        held = latest.get(name)
        if held is not None and held[0] < at and shown.get(name, 0.0) != held[1]:
            shown[name] = held[1]
            yield name, *held
        latest[name] = (at, rate)
    for name, held in latest.items():
        if shown.get(name, 0.0) != held[1]:
            yield name, *held
