"""Several files, one value a field: the most trusted decide, by their median, or the largest lower bound."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median

from geosim.calibrate.reading import Reading, Value
from geosim.errors import UsageError

_MAY_DIFFER = ("link.congestion_control",)  # of the two hosts of a link


@dataclass(frozen=True)
class Choice:
    """A field's value and the files that it came from."""

    value: Value
    files: tuple[str, ...]


@dataclass(frozen=True)
class Combined:
    """What files say together.

    Attributes:
        choices: one a field, in the order in which fields first appear.
        unknown: where they disagree and nobody is wrong, each in a sentence.
    """

    choices: tuple[Choice, ...]
    unknown: tuple[str, ...] = ()

    def files_of(self, field: str) -> tuple[str, ...]:
        """The files that a field's value came from; none if it has no value."""
        return next((choice.files for choice in self.choices if choice.value.field == field), ())


def combine(readings: Sequence[Reading]) -> Combined:
    """One value a field.

    Raises:
        UsageError: if two files are of different models, or of different kinds of accelerators: one line.
    """
    found: dict[str, list[tuple[Value, str]]] = {}
    for reading in readings:
        for value in reading.values:
            found.setdefault(value.field, []).append((value, reading.file))
    choices, unknown = [], []
    for field, values in found.items():
        best = max(value.trust for value, _ in values)
        kept = [(value, file) for value, file in values if value.trust == best]
        quarrel = _quarrel(field, kept)
        if not quarrel:
            choices.append(_choose(kept))
        elif field in _MAY_DIFFER:
            unknown.append(f"{quarrel}: a link has one for both ways")
        else:
            raise UsageError(f"{quarrel}: calibrate with one of them")
    return Combined(tuple(choices), tuple(unknown))


def _quarrel(field: str, kept: list[tuple[Value, str]]) -> str:
    """Two words, models or laws where there can be one; empty if there is no such thing."""
    (first, file), *others = kept
    for other, where in others:
        if other.law != first.law or (not isinstance(first.value, float) and other.value != first.value):
            return f"{field}: {file} says {first.law or first.text}, {where} says {other.law or other.text}"
    return ""


def _choose(kept: list[tuple[Value, str]]) -> Choice:
    first, file = kept[0]
    numbers = [(value.value, at) for at, (value, _) in enumerate(kept) if isinstance(value.value, float)]
    if first.at_least and numbers:
        value, file = kept[max(numbers)[1]]
        return Choice(value, (file,))
    files = tuple(dict.fromkeys(name for _, name in kept))
    if len({number for number, _ in numbers}) < 2:
        return Choice(first, files)
    middle = median(number for number, _ in numbers)
    return Choice(replace(first, value=middle, note=f"median of {len(numbers)}"), files)
