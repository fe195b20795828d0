"""The formats of docs/wire.md: scales, levels and back, and their bits in a body."""

import triton
import triton.language as tl

from geosim.policy.maths.quantize import BF16_MAX, FP16_MAX, FP32_MAX
from geosim.policy.maths.quantize import TINY as TINY_SCALE
from runtime.codec.cuda.kernels.common import ROW, of_section

TINY = tl.constexpr(TINY_SCALE)
HALF_MOST = tl.constexpr(FP16_MAX)
BRAIN_MOST = tl.constexpr(BF16_MAX)
MOST = tl.constexpr(FP32_MAX)
# Adding and taking away 1.5 * 2^23 rounds |x| < 2^22 to an integer, ties to even.
ROUNDER = tl.constexpr(12582912.0)


@triton.jit
def clamp_of(size: tl.tensor) -> tl.tensor:
    """The largest magnitude that enters a mean of `size` (a power of two) values."""
    return tl.div_rn(tl.zeros([1], tl.float32) + MOST, size.to(tl.float32))


@triton.jit
def halves(x: tl.tensor, ROWS: tl.constexpr, LEVELS: tl.constexpr) -> tl.tensor:
    """Sums [ROWS] of x [ROWS, 2^LEVELS]: the upper half is added to the lower one until one is left."""
    for level in tl.static_range(LEVELS):
        x = tl.sum(tl.reshape(x, [ROWS, 2, 1 << (LEVELS - 1 - level)]), axis=1)
    return tl.reshape(x, [ROWS])


@triton.jit
def scale_of(
    peak: tl.tensor,
    mean: tl.tensor,
    KIND: tl.constexpr,
    LEVEL: tl.constexpr,
    LIMIT: tl.constexpr,
    BUMP: tl.constexpr,
) -> tl.tensor:
    """The scales of groups of a largest magnitude and (sign) a mean magnitude."""
    if KIND == "sign":
        scale = tl.minimum(mean, peak)
    elif KIND == "e3m0":
        scale = peak
    else:
        level = tl.zeros_like(peak) + LEVEL
        scale = tl.div_rn(peak, level)
        if BUMP:
            clips = tl.div_rn(peak, tl.where(scale > 0, scale, 1.0)) > level
            above = (scale.to(tl.int32, bitcast=True) + 1).to(tl.float32, bitcast=True)
            scale = tl.where(clips, above, scale)
        scale = tl.minimum(scale, LIMIT)
    return tl.where(scale < TINY, 0.0, scale)


@triton.jit
def scale_slot(
    sections: tl.tensor, section: tl.tensor, first: tl.tensor, i: tl.tensor, GROUP: tl.constexpr
) -> tl.tensor:
    """Where the scales of the travelling values first + i (i below 2^20) of a section are."""
    row = of_section(sections, section, ROW)
    # i * 0: one slot for each i, whatever the group.
    row = row + i * 0
    if GROUP > 0:
        row += first // GROUP + ((first % GROUP).to(tl.int32) + i) // GROUP
    return row


@triton.jit
def _power(code: tl.tensor) -> tl.tensor:
    """Values of e3m0 codes relative to the scale; bit 3 is the sign."""
    exponent = code & 7
    power = ((exponent + 120) << 23).to(tl.float32, bitcast=True)
    return tl.where(exponent == 0, 0.0, tl.where(code >= 8, -power, power))


@triton.jit
def levels(
    v: tl.tensor,
    scale: tl.tensor,
    bits: tl.tensor,
    KIND: tl.constexpr,
    LEVEL: tl.constexpr,
    DITHER: tl.constexpr,
) -> tl.tensor:
    """The integers that values are written as, int32: `geosim.policy.maths.quantize.quantize`.

    `bits`: uint32 for stochastic rounding.
    """
    ratio = tl.div_rn(v, tl.where(scale > 0, scale, 1.0))
    if DITHER:
        # Below 2^24: exact, also by way of signed integers.
        dither = (bits >> 8).to(tl.int32).to(tl.float32) * 0.000000059604644775390625
    if KIND == "sign":
        q = (ratio < 0).to(tl.int32)
    elif KIND == "e3m0":
        size = tl.abs(ratio)
        code = tl.zeros_like(size).to(tl.int32)
        if DITHER:
            for i in tl.static_range(1, 8):
                code += (size >= 1.0 / (1 << (7 - i))).to(tl.int32)
            below = _power(code)
            gap = tl.where(code == 0, 0.015625, below)
            code += (dither < tl.div_rn(size - below, gap)).to(tl.int32)
            code = tl.minimum(code, 7)
        else:
            code += (size > 0.0078125).to(tl.int32)
            for i in tl.static_range(2, 8):
                if i % 2 == 0:
                    code += (size >= 0.75 / (1 << (7 - i))).to(tl.int32)
                else:
                    code += (size > 0.75 / (1 << (7 - i))).to(tl.int32)
        q = code + 8 * ((ratio < 0) & (code > 0)).to(tl.int32)
    else:
        if KIND == "int2":
            ratio = ratio - 0.5
        if DITHER:
            # Not tl.floor, which takes denormal numbers as zero on a GPU.
            floor = (ratio + ROUNDER) - ROUNDER
            floor -= (floor > ratio).to(tl.float32)
            rounded = floor + (dither < ratio - floor).to(tl.float32)
        else:
            rounded = (ratio + ROUNDER) - ROUNDER
        if KIND == "int2":
            rounded = tl.minimum(tl.maximum(rounded, -2.0), 1.0)
        else:
            rounded = tl.minimum(tl.maximum(rounded, -LEVEL), LEVEL)
        q = rounded.to(tl.int32)
    return q


@triton.jit
def meaning(q: tl.tensor, scale: tl.tensor, KIND: tl.constexpr) -> tl.tensor:
    """The values that levels stand for, fp32."""
    if KIND == "sign":
        level = 1.0 - 2.0 * q.to(tl.float32)
    elif KIND == "e3m0":
        level = _power(q)
    elif KIND == "int2":
        level = q.to(tl.float32) + 0.5
    else:
        level = q.to(tl.float32)
    return level * scale


@triton.jit
def to_float(u: tl.tensor, KIND: tl.constexpr) -> tl.tensor:
    """The bits (int32) of values in a floating-point format, rounded to nearest and saturated."""
    if KIND == "fp32":
        bits = u.to(tl.int32, bitcast=True)
    elif KIND == "fp16":
        half = tl.minimum(tl.maximum(u, -HALF_MOST), HALF_MOST).to(tl.float16)
        bits = half.to(tl.int16, bitcast=True).to(tl.int32) & 0xFFFF
    else:
        word = tl.minimum(tl.maximum(u, -BRAIN_MOST), BRAIN_MOST).to(tl.int32, bitcast=True)
        word = word + 0x7FFF + ((word >> 16) & 1)
        bits = (word >> 16) & 0xFFFF
    return bits


@triton.jit
def from_float(bits: tl.tensor, KIND: tl.constexpr) -> tl.tensor:
    """fp32 values of the bits (int32) of a floating-point format."""
    if KIND == "fp32":
        value = bits.to(tl.float32, bitcast=True)
    elif KIND == "fp16":
        value = bits.to(tl.int16).to(tl.float16, bitcast=True).to(tl.float32)
    else:
        value = (bits << 16).to(tl.float32, bitcast=True)
    return value


@triton.jit
def store_values(
    body: tl.tensor,
    at: tl.tensor,
    q: tl.tensor,
    count: tl.tensor,
    BITS: tl.constexpr,
    ALIGNED: tl.constexpr,
    TILE: tl.constexpr,
) -> None:
    """Write the first `count` of q (int32 [TILE]) from byte `at` on; unused bits of the last byte are 0."""
    i = tl.arange(0, TILE)
    if BITS < 8:
        PER: tl.constexpr = 8 // BITS
        q = tl.where(i < count, q & ((1 << BITS) - 1), 0)
        lanes = tl.reshape(q, [TILE // PER, PER]) << (tl.arange(0, PER) * BITS)[None, :]
        byte = tl.arange(0, TILE // PER)
        tl.store(body + at + byte, tl.sum(lanes, axis=1).to(tl.uint8), mask=byte * PER < count)
    elif BITS == 8:
        tl.store(body + at + i, q.to(tl.uint8), mask=i < count)
    elif ALIGNED:
        if BITS == 16:
            halves_at = tl.multiple_of((body + at).to(tl.pointer_type(tl.int16)), ALIGNED)
            tl.store(halves_at + i, q.to(tl.int16), mask=i < count)
        else:
            words_at = tl.multiple_of((body + at).to(tl.pointer_type(tl.int32)), ALIGNED)
            tl.store(words_at + i, q, mask=i < count)
    else:
        store_bytes(body, at, i, q, i < count, BITS // 8)


@triton.jit
def store_bytes(
    body: tl.tensor, at: tl.tensor, i: tl.tensor, word: tl.tensor, mask: tl.tensor, BYTES: tl.constexpr
) -> None:
    """Write words (int32) i from byte `at` on, wherever that is."""
    for j in tl.static_range(BYTES):
        tl.store(body + at + i * BYTES + j, ((word >> (8 * j)) & 255).to(tl.uint8), mask=mask)


@triton.jit
def load_values(
    body: tl.tensor, at: tl.tensor, i: tl.tensor, mask: tl.tensor, BITS: tl.constexpr, ALIGNED: tl.constexpr
) -> tl.tensor:
    """The words i of BITS bits from byte `at` on, int32."""
    if BITS <= 8:
        PER: tl.constexpr = 8 // BITS
        byte = tl.load(body + at + i // PER, mask=mask, other=0).to(tl.int32)
        word = (byte >> ((i % PER) * BITS).to(tl.int32)) & ((1 << BITS) - 1)
    elif ALIGNED:
        if BITS == 16:
            halves_at = tl.multiple_of((body + at).to(tl.pointer_type(tl.int16)), ALIGNED)
            word = tl.load(halves_at + i, mask=mask, other=0).to(tl.int32) & 0xFFFF
        else:
            words_at = tl.multiple_of((body + at).to(tl.pointer_type(tl.int32)), ALIGNED)
            word = tl.load(words_at + i, mask=mask, other=0)
    else:
        word = tl.load(body + at + i * (BITS // 8), mask=mask, other=0).to(tl.int32)
        for j in tl.static_range(1, BITS // 8):
            byte = tl.load(body + at + i * (BITS // 8) + j, mask=mask, other=0).to(tl.int32)
            word = word | (byte << (8 * j))
    return word


@triton.jit
def signed(word: tl.tensor, KIND: tl.constexpr, BITS: tl.constexpr) -> tl.tensor:
    """Levels of words: two's complement for int8, int4 and int2."""
    if KIND == "int8" or KIND == "int4" or KIND == "int2":
        word = (word << (32 - BITS)) >> (32 - BITS)
    return word
