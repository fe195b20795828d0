"""Several files, one value a field: the most trusted files decide, their median if they are several."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median

from geosim.calibrate.reading import Reading, Value
from geosim.errors import UsageError


@dataclass(frozen=True)
class Choice:
    """A field's value and the files that it came from."""

    value: Value
    files: tuple[str, ...]


def combine(readings: Sequence[Reading]) -> tuple[Choice, ...]:
    """One choice a field, in the order in which fields first appear.

    Raises:
        UsageError: if two files name different models, words or laws: one line with both.
    """
    found: dict[str, list[tuple[Value, str]]] = {}
    for reading in readings:
        for value in reading.values:
            found.setdefault(value.field, []).append((value, reading.file))
    return tuple(_choose(field, values) for field, values in found.items())


def _choose(field: str, values: list[tuple[Value, str]]) -> Choice:
    best = max(value.trust for value, _ in values)
    kept = [(value, file) for value, file in values if value.trust == best]
    first, file = kept[0]
    numbers = [value.value for value, _ in kept if isinstance(value.value, float)]
    for other, where in kept[1:]:
        if other.law != first.law or (not isinstance(first.value, float) and other.value != first.value):
            raise UsageError(
                f"{field}: {file} says {first.text}, {where} says {other.text}: calibrate with one of them"
            )
    files = tuple(dict.fromkeys(name for _, name in kept))
    if len(set(numbers)) < 2:
        return Choice(first, files)
    return Choice(replace(first, value=median(numbers), note=f"median of {len(numbers)}"), files)
