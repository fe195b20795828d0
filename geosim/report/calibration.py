"""What `calibrate` prints: files by number, what was read, what they could not tell, what changed."""

from collections.abc import Iterable, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from geosim.calibrate import Choice, Filled, Reading
from geosim.report.tables import listing, plain_table


def data(readings: Sequence[Reading], choices: Sequence[Choice], filled: Filled | None) -> dict[str, Any]:
    """For `--json`."""
    out: dict[str, Any] = {
        "files": [
            {
                "file": reading.file,
                "kind": reading.kind,
                "version": reading.version,
                "values": [
                    {"field": v.field, "value": v.value, "text": v.plain, "note": v.note}
                    for v in reading.values
                ],
                "facts": [{"name": f.name, "text": f.text, "note": f.note} for f in reading.facts],
                "unknown": [u.text for u in reading.unknown],
            }
            for reading in readings
        ],
        "values": [
            {"field": c.value.field, "value": c.value.value, "text": c.value.plain, "note": c.value.note,
             "files": list(c.files)}
            for c in choices
        ],
        "unknown": _unknown(readings, choices),
    }  # fmt: skip
    if filled is not None:
        out["changes"] = [
            {"path": c.path, "before": c.before, "after": c.after, "files": list(c.files)}
            for c in filled.changes
        ]
        out["unknown"] += filled.unknown
        out["notes"] = list(filled.notes)
        out["scenario"] = filled.scenario.to_dict()
    return out


def screen(readings: Sequence[Reading], choices: Sequence[Choice], filled: Filled | None) -> RenderableType:
    """Tables, then what is not known."""
    numbers = {reading.file: str(i) for i, reading in enumerate(readings, 1)}
    files = plain_table("", "file", "kind", "version", wrapped=[1])
    for reading in readings:
        files.add_row(numbers[reading.file], reading.file, reading.kind, reading.version)
    table = plain_table("value", "read as", "from", "note", wrapped=[3])
    for choice in choices:
        value = choice.value
        table.add_row(value.field, value.text, _from(choice.files, numbers), value.note)
    for name, text, file, note in _rest(readings, choices):
        table.add_row(*(Text(cell, style="dim") for cell in (name, text, numbers[file], note)))
    unknown = [*_unknown(readings, choices), *(filled.unknown if filled else ())]
    blocks: list[RenderableType] = [files, "", table]
    if unknown:
        blocks.append(listing("Could not tell", unknown))
    if filled is not None:
        changes = plain_table("scenario", "was", "is", "from", wrapped=[1, 2])
        for change in filled.changes:
            changes.add_row(change.path, change.before, change.after, _from(change.files, numbers))
        blocks += ["", changes, *([listing("Notes", filled.notes)] if filled.notes else [])]
    return Group(*blocks)


def _from(files: Iterable[str], numbers: dict[str, str]) -> str:
    return ", ".join(numbers[file] for file in files)


def _rest(readings: Sequence[Reading], choices: Sequence[Choice]) -> Iterable[tuple[str, str, str, str]]:
    """What no field takes, and values that another file has better."""
    taken = {choice.value.field: choice.files for choice in choices}
    for reading in readings:
        for value in reading.values:
            if reading.file not in taken[value.field]:
                yield f"({value.field})", value.text, reading.file, f"not taken: {value.note}"
        for fact in reading.facts:
            yield fact.name, fact.text, reading.file, fact.note


def _unknown(readings: Sequence[Reading], choices: Sequence[Choice]) -> list[str]:
    """Each once, without what another file answers."""
    taken = {choice.value.field: choice.files for choice in choices}
    said = [
        item.text
        for reading in readings
        for item in reading.unknown
        if not any(set(taken.get(field, ())) - {reading.file} for field in item.answers)
    ]
    return list(dict.fromkeys(said))
