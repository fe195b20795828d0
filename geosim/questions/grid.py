"""Axes of a grid: which field, and which values, from text such as ``wan.0.rtt=10 ms:300 ms:5log``."""

import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any

from geosim import units
from geosim.errors import UsageError
from geosim.settings import split_settings

MOST_POINTS = 100_000  # without --yes
_MOST_VALUES = 1_000_000
_DIGITS = 6  # of values between the ends of a range
_RANGE = re.compile(r"([^:{}\[\]\"',]+):([^:{}\[\]\"',]+):\s*([^:,]*?)\s*")
_COUNT = re.compile(r"([0-9]+)\s*(log|lin|)")
_NUMBER = re.compile(r"\s*([-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?)\s*(\S*)\s*", re.ASCII)
_DIMENSIONS = (units.TIME, units.SIZE, units.BANDWIDTH, units.COMPUTE)


@dataclass(frozen=True)
class Axis:
    """One field of a grid.

    Attributes:
        field: dotted path as for `--set`; a policy's begins with ``policy.``.
        texts: the values as they are written.
        values: the same as plain data.
        numbers: the same in SI, or None where a value is no number.
        dimension: of the numbers; None for plain ones.
    """

    field: str
    texts: tuple[str, ...]
    values: tuple[Any, ...]
    numbers: tuple[float, ...] | None
    dimension: units.Dimension | None

    def __len__(self) -> int:
        return len(self.texts)


def parse_grid(
    specs: Iterable[str], is_whole: Callable[[str], bool | None], yes: bool = False
) -> tuple[Axis, ...]:
    """The axes of a grid.

    Args:
        specs: ``FIELD=V1,V2,...``, ``FIELD=LOW:HIGH:COUNT`` (evenly spaced) or ``FIELD=LOW:HIGH:COUNTlog``.
        is_whole: whether a field holds whole numbers; None where that is not known. Values of a range are
            then rounded, and left out where they come twice.
        yes: lets an axis have more than `MOST_POINTS` values, each of which takes its time to read.

    Raises:
        UsageError: no axis at all, a field given twice, or values that are none or too many.
    """
    axes: list[Axis] = []
    for spec in specs:
        field, equals, text = spec.partition("=")
        field = field.strip()
        if not equals or not field:
            raise UsageError(f"--grid {spec}: write a field and its values, like policy.interval=1,4,16")
        if any(axis.field == field for axis in axes):
            raise UsageError(f"--grid {field}: given twice: put all its values into one")
        axes.append(_axis(spec, field, text, is_whole(field), yes))
    if not axes:
        raise UsageError("--grid: nothing to vary: give a field and its values, like policy.interval=1,4,16")
    return tuple(axes)


def check_size(axes: Iterable[Axis], yes: bool) -> int:
    """How many points a grid has.

    Raises:
        UsageError: for more than `MOST_POINTS`, unless `yes`.
    """
    return _few_enough(math.prod(len(axis) for axis in axes), yes)


def _few_enough(points: int, yes: bool) -> int:
    if points > MOST_POINTS and not yes:
        raise UsageError(
            f"--grid: {points:,} points are more than {MOST_POINTS:,}: take fewer values, or add --yes"
        )
    return points


def _axis(spec: str, field: str, text: str, whole: bool | None, yes: bool) -> Axis:
    match = _RANGE.fullmatch(text)
    texts = _spread(spec, match[1], match[2], match[3], whole) if match else _split(text)
    if not texts or not all(texts):
        raise UsageError(f"--grid {spec}: an empty value: write them like policy.interval=1,4,16")
    _few_enough(len(texts), yes)
    values = tuple(_value(spec, field, one) for one in texts)
    if len({repr(value) for value in values}) < len(values):
        raise UsageError(f"--grid {spec}: a value is there twice")
    numbers, dimension = _numbers(texts)
    return Axis(field, tuple(texts), values, numbers, dimension)


def _value(spec: str, field: str, text: str) -> Any:
    """Plain data of one value, read as `--set` reads it."""
    try:
        scenario, policy = split_settings([f"{field}={text}"])
    except UsageError as error:
        raise UsageError(f"--grid {spec}: {str(error).partition(': ')[2]}") from None
    (value,) = (scenario | policy).values()
    return value


def _split(text: str) -> list[str]:
    """Values between commas; those inside of brackets or quotes part nothing."""
    out, depth, quote = [""], 0, ""
    for char in text:
        if quote:
            quote = "" if char == quote else quote
        elif char in "\"'":
            quote = char
        else:
            depth += (char in "[{") - (char in "]}")
        if char == "," and depth == 0 and not quote:
            out.append("")
        else:
            out[-1] += char
    return [one.strip() for one in out]


def _spread(spec: str, low: str, high: str, count: str, whole: bool | None) -> list[str]:
    """The values of a range: the ends as written, and between them numbers of six digits in their unit."""
    counted = _COUNT.fullmatch(count)
    if counted is None:
        raise UsageError(f"--grid {spec}: '{count}' is no count: write LOW:HIGH:COUNT or LOW:HIGH:COUNTlog")
    number, log = int(counted[1]), counted[2] == "log"
    if not 2 <= number <= _MOST_VALUES:
        raise UsageError(f"--grid {spec}: {number} values: a range has from 2 to {_MOST_VALUES:,}")
    first, last, unit, scale = _ends(spec, low, high)
    if first == last or (log and min(first, last) <= 0):
        need = "both ends above 0" if log else "two different ends"
        raise UsageError(f"--grid {spec}: this range needs {need}")
    if whole is None:
        whole = not unit and all(end.strip().lstrip("+-").isdecimal() for end in (low, high))
    texts = [low.strip()]
    for i in range(1, number - 1):
        share = i / (number - 1)
        value = first * (last / first) ** share if log else first + (last - first) * share
        digits = f"{value:.0f}" if whole else f"{value / scale:.{_DIGITS}g}"
        texts.append(f"{format(Decimal(digits), 'f')}{unit}")
    return list(dict.fromkeys([*texts, high.strip()]))


def _ends(spec: str, low: str, high: str) -> tuple[float, float, str, float]:
    """Both ends in SI, and the unit between them with its factor: the lower end's, with its blank."""
    numbers, dimension = _numbers([low, high])
    match = _NUMBER.fullmatch(low)
    if numbers is None or match is None:
        raise UsageError(f"--grid {spec}: the ends of a range are two numbers of one kind, units included")
    unit = match[2]
    if unit == "%":
        return numbers[0], numbers[1], " %", 0.01
    if dimension is None:
        return numbers[0], numbers[1], "", 1.0
    return numbers[0], numbers[1], f" {unit}", float(dimension.units[unit])


def _numbers(texts: Iterable[str]) -> tuple[tuple[float, ...] | None, units.Dimension | None]:
    """All values in SI if all are numbers of one kind; and of which."""
    texts = list(texts)
    plain = [_plain(text) for text in texts]
    if all(number is not None for number in plain):
        return tuple(number for number in plain if number is not None), None
    for dimension in _DIMENSIONS:
        try:
            return tuple(units.parse(text, dimension) for text in texts), dimension
        except UsageError:
            continue
    return None, None


def _plain(text: str) -> float | None:
    """A number without a unit, or a percentage; None for anything else."""
    share = units.parse_percent(text)
    if share is not None:
        return share
    match = _NUMBER.fullmatch(text)
    if match is None or match[2]:
        return None
    try:
        value = float(Decimal(match[1]))
    except InvalidOperation:
        return None
    return value if math.isfinite(value) else None
