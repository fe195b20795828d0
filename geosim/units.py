"""The only place that parses or prints quantities with units.

Inside geosim every quantity is a plain SI float: seconds, bytes, bytes per second, FLOP/s. Text such as
``"10 Gbit/s"`` is parsed once, at the edge. `Gbit` and `GB` are decimal, `GiB` is binary; a bare number
and an ambiguous `Gb` are errors that say what to write.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal

from geosim.errors import UsageError

_DECIMAL = {"": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 1, "Mi": 2, "Gi": 3, "Ti": 4}
_NOT_FINITE = re.compile(r"\s*[-+]?(inf|infinity|nan)\b.*", re.IGNORECASE)
_PERCENT = re.compile(r"\s*([-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?)\s*%\s*", re.ASCII)
_TEXT = re.compile(r"\s*([-+]?[0-9.]+(?:[eE][-+]?[0-9]+)?)\s*(\S.*?)?\s*")


@dataclass(frozen=True, eq=False)
class Dimension:
    """A kind of quantity: its units as exact factors to SI, and an example for error messages."""

    name: str
    units: Mapping[str, Decimal]
    example: str
    hints: Mapping[str, str]


def _scaled(base: str, to_si: Decimal, binary: bool = False) -> dict[str, Decimal]:
    units = {prefix + base: to_si * Decimal(10) ** exp for prefix, exp in _DECIMAL.items()}
    if binary:
        units |= {prefix + base: to_si * Decimal(1024) ** exp for prefix, exp in _BINARY.items()}
    return units


_BITS_PER_BYTE = Decimal(1) / 8
_BITS_OR_BYTES = [(f"{p}b", p.replace("K", "k")) for p in "kKMGT"]
_SECONDS = {
    "s": Decimal(1),
    "ms": Decimal("1e-3"),
    "us": Decimal("1e-6"),
    "ns": Decimal("1e-9"),
    "min": Decimal(60),
    "h": Decimal(3600),
}

TIME = Dimension("time", _SECONDS, "30 ms", {"sec": "s", "msec": "ms", "m": "min or ms"})
SIZE = Dimension(
    "size",
    _scaled("B", Decimal(1), binary=True),
    "8 MiB",
    {bits: f"{p}B, or divide bits by 8" for bits, p in _BITS_OR_BYTES}
    | {"KB": "kB or KiB", "K": "kB or KiB", "M": "MB or MiB", "G": "GB or GiB"},
)
BANDWIDTH = Dimension(
    "bandwidth",
    _scaled("bit/s", _BITS_PER_BYTE) | _scaled("B/s", Decimal(1), binary=True),
    "10 Gbit/s",
    {bits + end: f"{p}bit/s or {p}B/s" for bits, p in _BITS_OR_BYTES for end in ("", "/s", "ps")}
    | {f"{p}bps": f"{p}bit/s or {p}B/s" for p in "kMGT"}
    | {f"{p}bit": f"{p}bit/s" for p in "kMGT"}
    | {f"{p}B": f"{p}B/s" for p in "kMGT"},
)
COMPUTE = Dimension(
    "compute rate",
    _scaled("FLOP/s", Decimal(1)),
    "312 TFLOP/s",
    {f"{p}FLOPS": f"{p}FLOP/s" for p in "GTP"} | {f"{p}FLOP": f"{p}FLOP/s" for p in "GTP"},
)


def parse(text: object, dimension: Dimension) -> float:
    """Parse ``"<number> <unit>"`` into SI.

    Raises:
        UsageError: for a bare number, an unknown or ambiguous unit, a value that is not finite, or text that
            is no quantity.
    """
    want = f"write it with a unit, like '{dimension.example}'"
    if not isinstance(text, str):
        raise UsageError(f"{text!r} is not a {dimension.name}: {want}")
    if _NOT_FINITE.fullmatch(text):
        raise UsageError(f"{text!r}: must be finite, like '{dimension.example}'")
    match = _TEXT.fullmatch(text)
    if match is None:
        raise UsageError(f"{text!r} is not a {dimension.name}: {want}")
    number, unit = match.groups()
    if unit is None:
        raise UsageError(f"{text!r} has no unit: {want}")
    if unit not in dimension.units:
        if unit in dimension.hints:
            raise UsageError(f"{text!r}: '{unit}' is ambiguous or unknown: write {dimension.hints[unit]}")
        known = ", ".join(dimension.units)
        raise UsageError(f"{text!r}: '{unit}' is no unit of {dimension.name}: use one of {known}")
    try:
        value = float(Decimal(number) * dimension.units[unit])
    except ArithmeticError:
        raise UsageError(f"{text!r} is not a {dimension.name}: {want}") from None
    if not math.isfinite(value):
        raise UsageError(f"{text!r} is too large a {dimension.name}: write one like '{dimension.example}'")
    return value


def parse_percent(text: str) -> float | None:
    """The number that ``"5 %"`` stands for, 0.05; None for text that is no percentage."""
    match = _PERCENT.fullmatch(text)
    try:
        return None if match is None else float(Decimal(match[1]) / 100)
    except ArithmeticError:
        return None


def format_exact(value: float, dimension: Dimension) -> str:
    """The shortest text that `parse` turns back into exactly this float."""
    best = None
    for unit, factor in dimension.units.items():
        number = Decimal(repr(float(value))) / factor
        if number != 0 and not Decimal("0.001") <= abs(number) < Decimal(100_000):
            continue
        digits = format(number.normalize(), "f")
        text = f"{digits} {unit}"
        if float(Decimal(digits) * factor) == value and (best is None or len(digits) < len(best[0])):
            best = (digits, text)
    if best is not None:
        return best[1]
    return f"{float(value)!r} {next(u for u, f in dimension.units.items() if f == 1)}"


_SHOWN = {
    "time": ("ns", "us", "ms", "s", "min", "h"),
    "size": ("B", "kB", "MB", "GB", "TB"),
    "bandwidth": ("bit/s", "kbit/s", "Mbit/s", "Gbit/s", "Tbit/s"),
    "compute rate": ("FLOP/s", "GFLOP/s", "TFLOP/s", "PFLOP/s"),
}


def show(value: float, dimension: Dimension, digits: int = 3) -> str:
    """Text for people: three significant digits in the unit that reads best (not for parsing back)."""
    if value != value or value in (float("inf"), float("-inf")):
        return f"{value} {_SHOWN[dimension.name][0]}"
    if value == 0:
        return f"0 {next(u for u in _SHOWN[dimension.name] if u[0] not in 'nuk')}"
    chosen = _SHOWN[dimension.name][0]
    for unit in _SHOWN[dimension.name]:
        if abs(value) >= float(dimension.units[unit]) * 0.9995:
            chosen = unit
    number = value / float(dimension.units[chosen])
    if abs(number) >= 10**digits - 0.5:
        return f"{number:,.0f} {chosen}"
    return f"{number:.{digits}g} {chosen}"
