"""What several kernels share: table look-ups, the contribution w v + e, counter bits, bits into a body.

Sums and products round separately: every launch turns the contraction of a * b + c off (`launch`). Offsets of
elements are 64-bit scalars per program plus, inside a tile, lanes of 32 bits.
"""

import triton
import triton.language as tl

from runtime.codec.cuda import tables

START = tl.constexpr(tables.START)
NUMEL = tl.constexpr(tables.NUMEL)
COUNT = tl.constexpr(tables.COUNT)
KEPT = tl.constexpr(tables.KEPT)
LOW = tl.constexpr(tables.LOW)
LOW_AT = tl.constexpr(tables.LOW_AT)
BITS_AT = tl.constexpr(tables.BITS_AT)
SCALE_AT = tl.constexpr(tables.SCALE_AT)
VALUE_AT = tl.constexpr(tables.VALUE_AT)
ROW = tl.constexpr(tables.ROW)
FIRST_SPAN = tl.constexpr(tables.FIRST_SPAN)
SPANS = tl.constexpr(tables.SPANS)
SIZE = tl.constexpr(tables.SIZE)
LAST = tl.constexpr(tables.LAST)
AT = tl.constexpr(tables.AT)
POS = tl.constexpr(tables.POS)
LENGTH = tl.constexpr(tables.LENGTH)
SECTION = tl.constexpr(tables.SECTION)
SCOPE = tl.constexpr(tables.SCOPE)
OWNER = tl.constexpr(tables.OWNER)
BEGIN = tl.constexpr(tables.BEGIN)
WIDTH = tl.constexpr(tables.WIDTH)
SAMPLES = tl.constexpr(tables.SAMPLES)
TAKEN = tl.constexpr(tables.TAKEN)
STRIDE = tl.constexpr(tables.STRIDE)
REGION = tl.constexpr(tables.REGION)
ROOM = tl.constexpr(tables.ROOM)
_SECTIONS = tl.constexpr(tables.SECTION_COLUMNS)
_TILES = tl.constexpr(tables.TILE_COLUMNS)
_SCOPES = tl.constexpr(tables.SCOPE_COLUMNS)
MAGNITUDE = tl.constexpr(0x7FFFFFFF)
INFINITE = tl.constexpr(0x7F800000)


@triton.jit
def of_section(sections: tl.tensor, section: tl.tensor, COLUMN: tl.constexpr) -> tl.tensor:
    """One entry of the section table, int64."""
    return tl.load(sections + section * _SECTIONS + COLUMN)


@triton.jit
def of_tile(tiles: tl.tensor, tile: tl.tensor, COLUMN: tl.constexpr) -> tl.tensor:
    """One entry of the tile table, as int64."""
    return tl.load(tiles + tile * _TILES + COLUMN).to(tl.int64)


@triton.jit
def bounds(tiles: tl.tensor, tile: tl.tensor, EVEN: tl.constexpr) -> tl.tensor:
    """(first offset as int64, length as int32) of a tile, both known to be multiples of EVEN."""
    at = tl.multiple_of(tl.load(tiles + tile * _TILES + AT), EVEN)
    length = tl.multiple_of(tl.load(tiles + tile * _TILES + LENGTH), EVEN)
    return at.to(tl.int64), length.to(tl.int32)


@triton.jit
def of_scope(scopes: tl.tensor, scope: tl.tensor, COLUMN: tl.constexpr) -> tl.tensor:
    """One entry of the scope table, int64."""
    return tl.load(scopes + scope * _SCOPES + COLUMN)


@triton.jit
def number() -> tl.tensor:
    """This program's number, 64-bit."""
    return tl.program_id(0).to(tl.int64)


@triton.jit
def widened(x: tl.tensor) -> tl.tensor:
    """fp32, bf16 or fp16 as fp32, exactly; bf16 by its bits, as triton's interpreter gets denormals wrong."""
    if x.dtype == tl.bfloat16:
        word = (x.to(tl.int16, bitcast=True).to(tl.int32) << 16).to(tl.float32, bitcast=True)
    else:
        word = x.to(tl.float32)
    return word


@triton.jit
def contribution(
    values: tl.tensor,
    residual: tl.tensor,
    at: tl.tensor,
    i: tl.tensor,
    mask: tl.tensor,
    weight: tl.tensor,
    FEEDBACK: tl.constexpr,
) -> tl.tensor:
    """u = weight * values + residual at offsets at + i."""
    u = widened(tl.load(values + at + i, mask=mask, other=0.0)) * weight
    if FEEDBACK:
        u = u + tl.load(residual + at + i, mask=mask, other=0.0)
    return u


@triton.jit
def stored(
    values: tl.tensor,
    residual: tl.tensor,
    at: tl.tensor,
    i: tl.tensor,
    mask: tl.tensor,
    weight: tl.tensor,
    FEEDBACK: tl.constexpr,
) -> tl.tensor:
    """u at offsets at + i once the residual holds it; without a residual it is computed again."""
    if FEEDBACK:
        u = tl.load(residual + at + i, mask=mask, other=0.0)
    else:
        u = widened(tl.load(values + at + i, mask=mask, other=0.0)) * weight
    return u


@triton.jit
def mix(x: tl.tensor) -> tl.tensor:
    """`geosim.policy.maths.counter.mix` of uint32."""
    x = x ^ (x >> 16)
    x = x * 0x21F0AAAD
    x = x ^ (x >> 15)
    x = x * 0xD35A2D97
    return x ^ (x >> 15)


@triton.jit
def draw(words: tl.tensor, section: tl.tensor, i: tl.tensor) -> tl.tensor:
    """Counter bits of the elements i (any integers) of a section, uint32."""
    a = tl.load(words + section * 2).to(tl.uint32, bitcast=True)
    b = tl.load(words + section * 2 + 1).to(tl.uint32, bitcast=True)
    return mix(mix(i.to(tl.uint32) + a) ^ b)


@triton.jit
def magnitude(u: tl.tensor) -> tl.tensor:
    """The bits of |u|, which order as the magnitudes do, uint32."""
    return (u.to(tl.int32, bitcast=True) & MAGNITUDE).to(tl.uint32, bitcast=True)


@triton.jit
def locate(
    spans: tl.tensor, sections: tl.tensor, section: tl.tensor, pos: tl.tensor, STEPS: tl.constexpr
) -> tl.tensor:
    """Offsets in the fragment's values of positions of a section, by halving its spans."""
    first = of_section(sections, section, FIRST_SPAN)
    low = pos * 0
    high = low + of_section(sections, section, SPANS)
    for _ in tl.static_range(STEPS):
        middle = (low + high) // 2
        right = tl.load(spans + (first + middle) * 2 + 1) <= pos
        low = tl.where(right, middle, low)
        high = tl.where(right, high, middle)
    return tl.load(spans + (first + low) * 2) + pos - tl.load(spans + (first + low) * 2 + 1)


@triton.jit
def set_positions(
    body: tl.tensor, sections: tl.tensor, section: tl.tensor, i: tl.tensor, pos: tl.tensor, mask: tl.tensor
) -> tl.tensor:
    """Write the i-th positions (int64 both) of a section in Elias-Fano code into zeros.

    `body` is seen as int32 words. Low bits may straddle two words; positions stay below 2^33 times the count.
    """
    low = of_section(sections, section, LOW)
    bit = of_section(sections, section, BITS_AT) * 8 + (pos >> low) + i
    one = (tl.full(pos.shape, 1, tl.uint32) << (bit & 31).to(tl.uint32)).to(tl.int32, bitcast=True)
    tl.atomic_or(body + (bit >> 5), one, mask=mask, sem="relaxed")
    bit = of_section(sections, section, LOW_AT) * 8 + i * low
    rest = (pos - ((pos >> low) << low)).to(tl.uint64) << (bit & 31).to(tl.uint64)
    left = rest.to(tl.uint32).to(tl.int32, bitcast=True)
    right = (rest >> 32).to(tl.uint32).to(tl.int32, bitcast=True)
    tl.atomic_or(body + (bit >> 5), left, mask=mask & (left != 0), sem="relaxed")
    tl.atomic_or(body + (bit >> 5) + 1, right, mask=mask & (right != 0), sem="relaxed")
