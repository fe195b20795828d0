"""What `calibrate` prints: files by number, what was read, what they could not tell, what changed."""

from collections.abc import Iterable, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from geosim.calibrate import Combined, Filled, Reading, Value
from geosim.report.tables import listing, plain_table


def data(readings: Sequence[Reading], combined: Combined, filled: Filled | None) -> dict[str, Any]:
    """For `--json`."""
    out: dict[str, Any] = {
        "files": [
            {
                "file": reading.file,
                "kind": reading.kind,
                "version": reading.version,
                "values": [_value(value) for value in reading.values],
                "facts": [{"name": f.name, "text": f.text, "note": f.note} for f in reading.facts],
                "unknown": [item.text for item in reading.unknown],
            }
            for reading in readings
        ],
        "values": [{**_value(choice.value), "files": list(choice.files)} for choice in combined.choices],
        "unknown": _unknown(readings, combined),
    }
    if filled is not None:
        out["changes"] = [
            {"path": c.path, "before": c.before, "after": c.after, "files": list(c.files)}
            for c in filled.changes
        ]
        out["unknown"] += filled.unknown
        out["notes"] = list(filled.notes)
        out["scenario"] = filled.scenario.to_dict()
    return out


def _value(value: Value) -> dict[str, Any]:
    return {
        "field": value.field,
        "value": value.value,
        "text": value.plain,
        "at_least": value.at_least,
        "note": value.note,
    }


def screen(readings: Sequence[Reading], combined: Combined, filled: Filled | None) -> RenderableType:
    """Tables, then what is not known."""
    numbers = {reading.file: str(i) for i, reading in enumerate(readings, 1)}
    files = plain_table("", "file", "kind", "version", wrapped=[1])
    for reading in readings:
        files.add_row(numbers[reading.file], reading.file, reading.kind, reading.version)
    table = plain_table("value", "read as", "from", "note", wrapped=[3])
    for choice in combined.choices:
        value = choice.value
        table.add_row(value.field, value.text, _from(choice.files, numbers), value.note)
    for name, text, file, note in _rest(readings, combined):
        table.add_row(*(Text(cell, style="dim") for cell in (name, text, numbers[file], note)))
    unknown = [*_unknown(readings, combined), *(filled.unknown if filled else ())]
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


def _rest(readings: Sequence[Reading], combined: Combined) -> Iterable[tuple[str, str, str, str]]:
    """What no field takes, and values that another file has better."""
    for reading in readings:
        for value in reading.values:
            if reading.file not in combined.files_of(value.field):
                yield f"({value.field})", value.text, reading.file, f"not taken: {value.note}"
        for fact in reading.facts:
            yield fact.name, fact.text, reading.file, fact.note


def _unknown(readings: Sequence[Reading], combined: Combined) -> list[str]:
    """Each once, without what another file answers."""
    said = [
        item.text
        for reading in readings
        for item in reading.unknown
        if not any(set(combined.files_of(field)) - {reading.file} for field in item.answers)
    ]
    return list(dict.fromkeys([*said, *combined.unknown]))
