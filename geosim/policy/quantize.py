"""How the values that travel are written. Scales (fp32) go by groups of values in the order they travel."""

import math
from typing import Annotated, Literal

from pydantic import Field

from geosim.spec import ByKind, Spec

SCALE_BYTES = 4
Group = Annotated[int, Field(ge=8, le=1 << 20)] | Literal["section"]
Rounding = Literal["nearest", "stochastic"]


def groups(count: int, group: int | Literal["section"]) -> int:
    """Number of scale groups of `count` values."""
    if count == 0:
        return 0
    return 1 if group == "section" else math.ceil(count / group)


class Cast(Spec):
    """A plain floating-point format, no scale."""

    kind: Literal["fp32", "bf16", "fp16"] = "fp32"

    @property
    def bits(self) -> int:
        """Bits a value."""
        return 32 if self.kind == "fp32" else 16

    def scale_count(self, count: int) -> int:
        """No scales."""
        return 0


class _Scaled(Spec):
    """A format with one fp32 scale a group of values (`section`: one for everything selected together)."""

    group: Group = 64

    def scale_count(self, count: int) -> int:
        """Number of scales for `count` values."""
        return groups(count, self.group)


class Integer(_Scaled):
    """Two's complement integers.

    int8 and int4: q = rint(v / s), s = max|v| / (2^(bits-1) - 1), decoded q s.
    int2 has no zero, four even levels: q = rint(v / s - 1/2) in -2..1, s = max|v| / 2, decoded (q + 1/2) s.
    """

    kind: Literal["int8", "int4", "int2"] = "int8"
    rounding: Rounding = "nearest"

    @property
    def bits(self) -> int:
        """Bits a value."""
        return int(self.kind[3:])


class E3M0(_Scaled):
    """One sign bit, three exponent bits, no mantissa (arXiv 2501.18512): 0 and 2^-6..2^0 times max|v|."""

    kind: Literal["e3m0"] = "e3m0"
    rounding: Rounding = "nearest"

    @property
    def bits(self) -> int:
        """Bits a value."""
        return 4


class Sign(_Scaled):
    """The sign, with the group's mean magnitude as scale (arXiv 1901.09847)."""

    kind: Literal["sign"] = "sign"

    @property
    def bits(self) -> int:
        """Bits a value."""
        return 1


Quantize = Annotated[Cast | Integer | E3M0 | Sign, Field(discriminator="kind"), ByKind]
