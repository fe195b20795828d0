"""Codec = select + quantize + residual, and the exact size of what it sends.

A payload is one header and then, in layout order, the pieces of one fragment that one WAN rank owns. Small
tensors' pieces are *plain sections* (dense, `small_dtype`); all others are *coded sections*, or with scope
`fragment` one coded section of all of them end to end. Sizes follow from (numel, codec) alone.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from geosim.errors import UsageError
from geosim.policy.quantize import SCALE_BYTES, Cast, Quantize
from geosim.policy.select import Dense, RandomK, Select, TopK, kept
from geosim.spec import ByKind, Bytes, Spec, not_negative

HEADER_BYTES = 80


class NoResidual(Spec):
    """What is not sent is dropped."""

    kind: Literal["none"] = "none"


class Feedback(Spec):
    """Error feedback: what is not sent is added to the next update, `e <- decay (u - c)`."""

    kind: Literal["feedback"] = "feedback"
    decay: Annotated[float, Field(gt=0, le=1)] = 1.0


Residual = Annotated[NoResidual | Feedback, Field(discriminator="kind"), ByKind]


class Codec(Spec):
    """What happens to an update between a site and the wire.

    `small_below_bytes` is compared with a whole tensor's size in fp32, not with a shard's.
    """

    select: Select = Dense()
    quantize: Quantize = Cast(kind="fp32")
    residual: Residual = NoResidual()
    small_below_bytes: Annotated[Bytes, AfterValidator(not_negative)] = 0.0
    small_dtype: Literal["fp32", "bf16", "fp16"] = "fp32"

    @property
    def block(self) -> int:
        """Alignment of piece bounds in elements: the selection block, or 1."""
        scope = getattr(self.select, "scope", None)
        return scope if isinstance(scope, int) else 1

    def is_small(self, numel: int) -> bool:
        """Whether a tensor of `numel` elements goes as a plain section."""
        return numel * 4 < self.small_below_bytes


def position_bits(numel: int, count: int) -> tuple[int, int]:
    """Elias-Fano code of `count` ascending positions below `numel`: (low bits a position, upper bits in all).

    floor(log2(numel / count)) low bits each; then, for each bucket of equal high parts, one 1 a
    position and a 0, without the last 0. In all at most count (2 + log2(numel / count)) bits.
    """
    low = (numel // count).bit_length() - 1
    return low, count + ((numel - 1) >> low)


def kept_in_section(select: Dense | TopK | RandomK, numel: int) -> int:
    """Values that a selection takes of a section of `numel` elements."""
    if isinstance(select, Dense):
        return numel
    if isinstance(select.scope, int):
        whole, rest = divmod(numel, select.scope)
        return whole * kept(select.scope, select.ratio) + kept(rest, select.ratio)
    return kept(numel, select.ratio)


@lru_cache(maxsize=65536)
def chosen(select: Select, quantize: Quantize, numel: int) -> Dense | TopK | RandomK:
    """What a coded section of `numel` elements is selected by: all travel where that takes no more bytes.

    The positions of top-k cost more than the values they save at high ratios, in few bits or of few elements.
    """
    if isinstance(select, Dense) or _bytes(select, quantize, numel) < _bytes(Dense(), quantize, numel):
        return select
    return Dense()


@lru_cache(maxsize=65536)
def section_bytes(numel: int, codec: Codec) -> int:
    """Bytes of one coded section: positions, then scales, then values, each rounded up to a byte."""
    return _bytes(chosen(codec.select, codec.quantize, numel), codec.quantize, numel)


def _bytes(select: Dense | TopK | RandomK, quantize: Quantize, numel: int) -> int:
    count = kept_in_section(select, numel)
    if count == 0:
        return 0
    positions = 0
    if isinstance(select, TopK) and count < numel:
        low, upper = position_bits(numel, count)
        positions = (count * low + 7) // 8 + (upper + 7) // 8
    return positions + SCALE_BYTES * quantize.scale_count(count) + (count * quantize.bits + 7) // 8


def plain_bytes(numel: int, dtype: str) -> int:
    """Bytes of one plain section."""
    return numel * (4 if dtype == "fp32" else 2)


def wire_bytes(coded: Sequence[int], plain: Sequence[int], codec: Codec) -> int:
    """Exact payload size in bytes.

    Args:
        coded: element counts of the pieces that are coded.
        plain: element counts of the pieces of small tensors.
        codec: the codec.
    """
    if getattr(codec.select, "scope", None) == "fragment":
        coded = (sum(coded),)
    body = sum(section_bytes(n, codec) for n in coded)
    return HEADER_BYTES + body + sum(plain_bytes(n, codec.small_dtype) for n in plain)


def check_codec(codec: Codec) -> None:
    """Refuse combinations that cannot mean anything.

    A residual with nothing lossy to feed back is harmless and allowed.

    Raises:
        UsageError: random-k without a residual, which would lose what it does not draw.
    """
    if (
        isinstance(codec.select, RandomK)
        and isinstance(codec.residual, NoResidual)
        and codec.select.ratio < 1
    ):
        raise UsageError(
            "codec.residual: random-k without a residual loses what it does not draw: use 'feedback'"
        )
