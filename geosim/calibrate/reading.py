"""What a file was read into: values with their note and source, plain facts, and what it could not tell."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from geosim.units import Dimension, format_exact, parse, show

_DIGITS = 4  # more than any of these tools measures


@dataclass(frozen=True)
class Value:
    """A field of a scenario that a file fixes.

    Attributes:
        field: below ``link.``, ``fabric.`` or ``workload.``, as in YAML (``link.rtt``).
        value: SI number, word, or a model as plain data.
        dimension: of a number with a unit; None: a plain number, word or model.
        note: how it was read.
        at_least: the truth may be more.
        trust: of several files that fix the same field, the most trusted wins.
        law: of a fabric, which collectives it was fitted to: "nccl" or "ring".
        shown: what a table says instead of the value.
    """

    field: str
    value: float | str | Mapping[str, Any]
    dimension: Dimension | None = None
    note: str = ""
    trust: int = 1
    at_least: bool = False
    law: str = ""
    shown: str = ""

    @property
    def plain(self) -> Any:
        """As it goes into YAML: text with a unit, a number, a word or a mapping."""
        if self.dimension is not None and isinstance(self.value, float):
            shown = show(self.value, self.dimension, _DIGITS).replace(",", "")
            return format_exact(parse(shown, self.dimension), self.dimension)
        return float(f"{self.value:.{_DIGITS}g}") if isinstance(self.value, float) else self.value

    @property
    def text(self) -> str:
        """For people."""
        return f"≥ {self._number}" if self.at_least else self._number

    @property
    def _number(self) -> str:
        if self.shown:
            return self.shown
        if isinstance(self.value, float):
            if self.dimension is not None:
                return show(self.value, self.dimension, _DIGITS)
            return f"{self.value:.{_DIGITS}g}"
        return str(self.value)


@dataclass(frozen=True)
class Fact:
    """Something that a file says and no field of a scenario takes."""

    name: str
    text: str
    note: str = ""


@dataclass(frozen=True)
class Unknown:
    """What a file could not tell, in a sentence, and the fields by which another file answers it."""

    text: str
    answers: tuple[str, ...] = ()


@dataclass(frozen=True)
class Reading:
    """One file.

    Attributes:
        kind: of the file.
        file: its name as it was given.
        version: of the tool, as the file has it.
        values, facts: what was read.
        unknown: what it could not tell.
    """

    kind: str
    file: str
    version: str
    values: tuple[Value, ...]
    facts: tuple[Fact, ...] = ()
    unknown: tuple[Unknown, ...] = ()
