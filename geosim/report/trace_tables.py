"""What a trace's lanes spent a step, one column a trace."""

from collections.abc import Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from geosim.report.parts import COMPUTE
from geosim.report.trace import PARTS_TRACK
from geosim.report.trace_files import Lane, TraceFile
from geosim.screen import plain_table
from geosim.trace_events import EXCHANGE, TRAIN
from geosim.units import TIME, show

_LEAST = 1e-4  # of a window: lanes that spend less, in every trace, are left out
_TRACKS = (TRAIN, PARTS_TRACK, EXCHANGE)
_NAMES = (
    "compute", "site collective", "update", "encode", "wait", "gather", "apply",
    *(words for words, _, _ in COMPUTE.values()), "transfer", "decode",
)  # fmt: skip


def rows(files: Sequence[TraceFile]) -> list[tuple[Lane, list[float]]]:
    """Lanes with the seconds a step of each trace; 0 where one has none."""
    totals = [file.totals() for file in files]
    steps = [1e-6 * (file.end_us - file.begin_us) / file.steps for file in files]
    lanes = dict.fromkeys(lane for known in totals for lane in known)
    found = [(lane, [known.get(lane, 0.0) for known in totals]) for lane in lanes]
    kept = [row for row in found if any(s > _LEAST * step for s, step in zip(row[1], steps, strict=True))]
    order = list(dict.fromkeys(name for file in files for name in file.processes.values()))
    return sorted(
        kept, key=lambda row: (order.index(row[0][0]), _place(_TRACKS, row[0][1]), _place(_NAMES, row[0][2]))
    )


def data(files: Sequence[TraceFile], named: Sequence[str]) -> dict[str, Any]:
    """For `--json`."""
    return {
        "traces": [
            {"name": name, "kind": file.label, "steps": file.steps, **file.about}
            for file, name in zip(files, named, strict=True)
        ],
        "spans_s_per_step": [
            {"process": p, "track": t, "name": n, **dict(zip(named, seconds, strict=True))}
            for (p, t, n), seconds in rows(files)
        ],
    }


def screen(files: Sequence[TraceFile], named: Sequence[str]) -> RenderableType:
    """The lanes' totals, and of two traces how far the first is from the second."""
    blocks: list[RenderableType] = []
    for file, name in zip(files, named, strict=True):
        extra = "".join(f", {key}: {value}" for key, value in file.about.items() if key in ("clock", "cut"))
        line = f"{file.about['scenario']} under {file.about['policy']}, {file.steps} steps after warm-up"
        blocks.append(Text(f"{name}: {line}{extra}"))
    two = len(files) == 2
    table = plain_table(
        "a step", "", "span", *named, *(["difference"] if two else []), right=range(3, 10), wrapped=[0, 1]
    )
    before: tuple[str, str] = ("", "")
    for (process, track, name), seconds in rows(files):
        shown = process if process != before[0] else ""
        cells = [show(s, TIME) if s else "-" for s in seconds]
        if two:
            cells.append(f"{100 * (seconds[0] / seconds[1] - 1):+.1f} %" if all(seconds) else "")
        table.add_row(Text(shown, style="bold"), "" if (process, track) == before else track, name, *cells)
        before = (process, track)
    return Group(*blocks, "", table)


def _place(order: Sequence[str], name: str) -> int:
    return order.index(name) if name in order else len(order)
