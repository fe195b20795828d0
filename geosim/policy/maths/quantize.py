"""How values that travel are written: the reference of every format in `geosim.policy.quantize`.

Values are quantized in groups in the order in which they travel; each group has one fp32 scale s. Where a
scale would fall below `TINY` it is 0 and the group decodes to zeros, so that every decoded value is a normal
number or zero; where 127 s (7 s for int4) would overflow, s is the largest that does not. Except with the
group `section`, s is rounded up where its own largest value would otherwise come out above the top level. A
residual, where there is one, keeps the difference.
"""

import math

import numpy as np

from geosim.policy.maths import backend, counter
from geosim.policy.maths.backend import Array
from geosim.policy.maths.counter import Key
from geosim.policy.quantize import E3M0, Cast, Integer, Quantize, Sign

TINY = 2.0**-120
FP32_MAX = float(np.finfo(np.float32).max)
BF16_MAX = float(np.asarray(0x7F7F0000, np.int32).view(np.float32))
FP16_MAX = 65504.0


def top_level(how: Quantize) -> int:
    """max|v| over the scale: the largest |q| of int8 and int4; 1 of e3m0 and sign."""
    return {"int8": 127, "int4": 7, "int2": 2}.get(how.kind, 1)


def scale_limit(how: Quantize) -> float:
    """The largest scale of a format: `top_level` times it is still finite in fp32."""
    level = top_level(how)
    limit = np.float32(FP32_MAX / level)
    return float(limit if float(limit) * level <= FP32_MAX else np.nextafter(limit, np.float32(0)))


def quantize(v: Array, how: Quantize, key: Key) -> tuple[Array, Array | None]:
    """One section's values, quantized.

    Args:
        v: fp32 [count], finite, in ascending order of position.
        how: the format.
        key: for stochastic rounding.

    Returns:
        (q, scales). Casts: q is fp32 holding values of the format, saturated to its range; no scales. int8,
        int4, int2: q is the int8 level. e3m0: q is sign << 3 | exponent code. sign: q is 1 for negative
        values, else 0. Scales are fp32 [how.scale_count(count)].
    """
    if isinstance(how, Cast):
        return _cast(v, how.kind), None
    xp = backend.namespace(v)
    grouped = _rows(v, how.group)
    magnitude = xp.abs(grouped)
    scale = _scale(magnitude, how, v.shape[0])
    ratio = backend.divide(grouped, _not_zero(scale))
    bits = None
    if not isinstance(how, Sign) and how.rounding == "stochastic":
        bits = _rows(counter.rounding_bits(v, key, v.shape[0]), how.group)
    if isinstance(how, Sign):
        q = ratio < 0
    elif isinstance(how, E3M0):
        q = _exponent(ratio, bits)
    else:
        q = _integer(ratio, how, bits)
    return xp.reshape(xp.astype(q, xp.int8), (-1,))[: v.shape[0]], xp.reshape(scale, (-1,))


def dequantize(q: Array, scales: Array | None, how: Quantize) -> Array:
    """The values [count] that `quantize` stands for, fp32."""
    if isinstance(how, Cast):
        return q
    xp = backend.namespace(q)
    level = xp.astype(_rows(q, how.group), xp.float32)
    if isinstance(how, Sign):
        level = 1 - 2 * level
    elif isinstance(how, E3M0):
        level = _power(level)
    elif how.kind == "int2":
        level = level + 0.5
    assert scales is not None
    values = backend.settle(level * xp.reshape(scales, (-1, 1)))
    return xp.reshape(values, (-1,))[: q.shape[0]]


def _cast(v: Array, kind: str) -> Array:
    xp = backend.namespace(v)
    if kind == "fp32":
        return v
    if kind == "fp16":
        return backend.to_half(xp.clip(v, -FP16_MAX, FP16_MAX))
    bits = backend.float_bits(xp.clip(v, -BF16_MAX, BF16_MAX))
    bits = (bits + 0x7FFF + ((bits >> 16) & 1)) & -0x10000
    return xp.clip(backend.from_float_bits(bits), -BF16_MAX, BF16_MAX)


def _rows(x: Array, group: int | str) -> Array:
    """[count] as [groups, group], the last one filled up with zeros."""
    xp = backend.namespace(x)
    count = x.shape[0]
    width = max(1, count if group == "section" else min(int(group), count))
    short = -count % width
    if short:
        x = xp.concat([x, xp.zeros_like(x[:short])])
    return xp.reshape(x, (-1, width))


def _scale(magnitude: Array, how: Quantize, count: int) -> Array:
    """Scales [groups, 1] of magnitudes [groups, width]."""
    assert not isinstance(how, Cast)
    xp = backend.namespace(magnitude)
    peak = xp.max(magnitude, axis=-1, keepdims=True)
    if isinstance(how, Sign):
        scale = xp.minimum(_mean(magnitude, count), peak)
    elif isinstance(how, E3M0):
        scale = peak
    else:
        level = backend.constant(magnitude, float(top_level(how)))
        scale = backend.divide(peak, level)
        if how.group != "section":
            clips = backend.divide(peak, _not_zero(scale)) > level
            scale = xp.where(clips, backend.from_float_bits(backend.float_bits(scale) + 1), scale)
        scale = xp.clip(scale, 0.0, scale_limit(how))
    return xp.where(scale < TINY, xp.zeros_like(scale), scale)


def _not_zero(scale: Array) -> Array:
    xp = backend.namespace(scale)
    return xp.where(scale > 0, scale, xp.ones_like(scale))


def _mean(magnitude: Array, count: int) -> Array:
    """Mean [groups, 1]; the sum is by halves, so its rounding is the same everywhere, and cannot overflow."""
    xp = backend.namespace(magnitude)
    rows, width = magnitude.shape
    size = 1 << (width - 1).bit_length()
    magnitude = xp.clip(magnitude, 0.0, FP32_MAX / size)
    if size > width:
        tail = xp.zeros_like(magnitude[:, : size - width])
        magnitude = xp.concat([magnitude, tail], axis=1)
    while size > 1:
        size //= 2
        magnitude = magnitude[:, :size] + magnitude[:, size:]
    members = np.full((rows, 1), width, np.float32)
    members[-1:] = count - (rows - 1) * width
    return backend.divide(magnitude, backend.constant(magnitude, members))


def _dither(bits: Array) -> Array:
    """24-bit fractions in [0, 1) from random bits, exact in fp32."""
    xp = backend.namespace(bits)
    return xp.astype(bits >> 8, xp.float32) * 2.0**-24


def _integer(ratio: Array, how: Integer, bits: Array | None) -> Array:
    xp = backend.namespace(ratio)
    low, high = (-2, 1) if how.kind == "int2" else (-top_level(how), top_level(how))
    if how.kind == "int2":
        ratio = ratio - 0.5
    if bits is None:
        return xp.clip(xp.round(ratio), low, high)
    floor = xp.floor(ratio)
    up = xp.astype(_dither(bits) < ratio - floor, xp.float32)
    return xp.clip(floor + up, low, high)


def _exponent(ratio: Array, bits: Array | None) -> Array:
    """e3m0 codes: 0, or 1 to 7 for 2^-6 to 2^0; ties to the even code; with bit 3 the sign of a non-zero."""
    xp = backend.namespace(ratio)
    size = xp.abs(ratio)
    levels = [math.ldexp(1.0, code - 7) for code in range(1, 8)]
    if bits is None:
        code = xp.zeros_like(size)
        for i, level in enumerate(levels, start=1):
            middle = level * (0.75 if i > 1 else 0.5)
            code = code + xp.astype(size >= middle if i % 2 == 0 else size > middle, xp.float32)
    else:
        code = sum(xp.astype(size >= level, xp.float32) for level in levels)
        below = _power(code)
        gap = xp.where(code == 0, xp.full_like(size, levels[0]), below)
        code = code + xp.astype(_dither(bits) < backend.divide(size - below, gap), xp.float32)
        code = xp.clip(code, 0, 7)
    return code + 8 * xp.astype((ratio < 0) & (code > 0), xp.float32)


def _power(code: Array) -> Array:
    """Values relative to the scale of e3m0 codes given as fp32 (bit 3 is the sign)."""
    xp = backend.namespace(code)
    sign = 1 - 2 * xp.astype(code >= 8, xp.float32)
    exponent = xp.astype(code - 8 * xp.astype(code >= 8, xp.float32), xp.int32)
    power = backend.from_float_bits((exponent + 120) << 23)
    return xp.where(exponent == 0, xp.zeros_like(power), power * sign)
