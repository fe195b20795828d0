"""How values that travel are written, a run of a group at a time, and what they decode to."""

from typing import Any

import numpy as np

from geosim.policy.maths.quantize import FP32_MAX, TINY
from runtime.codec.cpu.casts import cast
from runtime.codec.cpu.counter import counter_bits
from runtime.codec.cpu.forms import AS_E3M0, AS_FP16, AS_INT2, AS_INT8, AS_SIGN, BITS, LIMIT, TOP
from runtime.codec.cpu.kernel import kernel
from runtime.codec.cpu.lowlevel import from_bits, to_bits

_ZERO, _HALF, _ONE = np.float32(0.0), np.float32(0.5), np.float32(1.0)
_TINY = np.float32(TINY)
_LARGEST = np.float64(FP32_MAX)
# Adding and taking off 1.5 * 2^23 rounds a small fp32 number to an integer, ties to even.
_ROUNDER = np.float32(12582912.0)
_FRACTION = np.float32(2.0**-24)


@kernel
def write_values(
    x: Any,
    form: int,
    width: int,
    scale: Any,
    stochastic: bool,
    first: Any,
    second: Any,
    begin: int,
    data: Any,
    packer: Any,
    levels: Any,
    dither: Any,
    c: Any,
) -> None:
    """Quantize at most RUN values of one group, or of several whole ones (the last may be short).

    Args:
        x: fp32 [n], finite.
        form: an AS_ number.
        width: values of a group.
        scale: fp32, of each group; casts have none.
        stochastic, first, second: whether rounding is, and its key.
        begin: number of x[0] among the section's values.
        data: uint8, the section's values.
        packer: int64 [2]: bits of a byte begun, and how many; zeros where a whole byte begins.
        levels, dither: scratch [RUN].
        c: fp32 [n]: what they decode to; empty where nobody asks, except of casts.
    """
    n = len(x)
    if form <= AS_FP16:
        size = BITS[form] // 8
        cast(x, form, c, data[size * begin : size * (begin + n)])
        return
    if stochastic:
        counter_bits(first, second, begin, dither[:n])
    _levels(x, form, width, scale, stochastic, dither, levels)
    if len(c) > 0:
        decode_levels(levels[:n], form, width, scale, c)
    _pack(levels[:n], BITS[form], begin, data, packer)


@kernel
def flush(packer: Any, data: Any, at: int) -> None:
    """Write the byte begun, if one is, as number `at`."""
    if packer[1] > 0:
        data[at] = packer[0]
        packer[:] = 0


@kernel
def write_scale(scales: Any, group: int, scale: Any) -> None:
    """Little-endian fp32 at any address."""
    word = to_bits(scale)
    for i in range(4):
        scales[4 * group + i] = (word >> np.uint32(8 * i)) & np.uint32(0xFF)


@kernel
def read_scale(scales: Any, group: int) -> Any:
    """What `write_scale` wrote."""
    word = np.uint32(0)
    for i in range(4):
        word = np.uint32(word | np.uint32(scales[4 * group + i]) << np.uint32(8 * i))
    return from_bits(word)


@kernel
def scale_of(x: Any, low: int, high: int, form: int, width: int, bump: bool) -> Any:
    """A group's scale.

    Args:
        x: fp32; the group is x[low:high]. The last group may have fewer than `width`.
        form, width: as `write_values` takes them.
        bump: whether scales are rounded up so that nothing clips.
    """
    top = np.uint32(0)
    # An unsigned index cannot be negative, which lets the compiler vectorise; slices would cost more.
    for i in range(np.uint64(low), np.uint64(high)):
        top = max(top, np.uint32(to_bits(x[i]) & np.uint32(0x7FFFFFFF)))
    peak = from_bits(top)
    scale = peak
    if form == AS_SIGN:
        scale = min(_mean(x[low:high], width), peak)
    elif form != AS_E3M0:
        level = TOP[form]
        scale = np.float32(peak / level)
        if bump:
            divisor = scale if scale > _ZERO else _ONE
            if np.float32(peak / divisor) > level:
                scale = from_bits(np.uint32(to_bits(scale) + np.uint32(1)))
        scale = min(scale, LIMIT[form])
    return scale if scale >= _TINY else _ZERO


@kernel
def _mean(x: Any, width: int) -> Any:
    """Mean magnitude; the sum is by halves of a power of two, as `geosim.policy.maths.quantize` has it."""
    size = 1
    while size < width:
        size *= 2
    most = np.float32(_LARGEST / size)
    half = max(1, size // 2)
    sums = np.zeros(half, np.float32)
    n = len(x)
    for i in range(min(n, half)):
        sums[i] = min(abs(x[i]), most)
    if size > 1:
        for i in range(half, n):
            sums[i - half] += min(abs(x[i]), most)
    while half > 1:
        half //= 2
        for i in range(half):
            sums[i] += sums[i + half]
    return sums[0] / np.float32(n)


@kernel
def _levels(x: Any, form: int, width: int, scale: Any, stochastic: bool, dither: Any, out: Any) -> None:
    """Levels as they are stored, one a byte."""
    n = len(x)
    mask = np.uint8((1 << BITS[form]) - 1)
    low = np.float32(-2.0) if form == AS_INT2 else -TOP[form]
    high = _ONE if form == AS_INT2 else TOP[form]
    shift = _HALF if form == AS_INT2 else _ZERO
    for group, at in enumerate(range(0, n, width)):
        divisor = scale[group] if scale[group] > _ZERO else _ONE
        indices = range(np.uint64(at), np.uint64(min(n, at + width)))
        if form == AS_SIGN:
            for i in indices:
                out[i] = np.uint8(np.float32(x[i] / divisor) < _ZERO)
        elif form == AS_E3M0:
            for i in indices:
                out[i] = _exponent(np.float32(x[i] / divisor), stochastic, dither[i])
        elif stochastic:
            for i in indices:
                ratio = np.float32(np.float32(x[i] / divisor) - shift)
                floor = np.float32(np.floor(ratio))
                up = np.float32(dither[i] >> np.uint32(8)) * _FRACTION < np.float32(ratio - floor)
                level = floor + _ONE if up else floor
                out[i] = np.uint8(np.int32(min(max(level, low), high))) & mask
        else:
            for i in indices:
                ratio = np.float32(np.float32(x[i] / divisor) - shift)
                level = np.float32(ratio + _ROUNDER) - _ROUNDER
                out[i] = np.uint8(np.int32(min(max(level, low), high))) & mask


@kernel
def _exponent(ratio: Any, stochastic: bool, bits: Any) -> Any:
    """An e3m0 code; ties to the even one; bit 3 is the sign of what is not 0."""
    size = abs(ratio)
    code = 0
    if stochastic:
        level = np.float32(2.0**-6)
        while code < 7 and size >= level:
            code += 1
            level = level * np.float32(2.0)
        below = level * _HALF if code > 0 else _ZERO
        gap = below if code > 0 else np.float32(2.0**-6)
        if np.float32(bits >> np.uint32(8)) * _FRACTION < np.float32(size - below) / gap:
            code += 1
        code = min(code, 7)
    else:
        middle = np.float32(2.0**-7)
        for i in range(1, 8):
            if size > middle or (i % 2 == 0 and size == middle):
                code = i
            # From 2^-7, half of the lowest level, to 0.75 * 2^-5 and then by doubling.
            middle = np.float32(0.75 * 2.0**-5) if i == 1 else middle * np.float32(2.0)
    if ratio < _ZERO and code > 0:
        code += 8
    return np.uint8(code)


@kernel
def decode_levels(levels: Any, form: int, width: int, scale: Any, c: Any) -> None:
    """Values of stored levels, one a byte; `scale[0]` is that of the first `width` of them, and so on."""
    n = len(c)
    half = 1 << (BITS[form] - 1)
    shift = _HALF if form == AS_INT2 else _ZERO
    signed = levels.view(np.int8)
    for group, low in enumerate(range(0, n, width)):
        s = scale[group]
        indices = range(np.uint64(low), np.uint64(min(n, low + width)))
        if form == AS_INT8:
            for i in indices:
                c[i] = np.float32(signed[i]) * s
        elif form == AS_SIGN:
            for i in indices:
                c[i] = np.float32(1 - 2 * np.int32(levels[i])) * s
        elif form == AS_E3M0:
            for i in indices:
                c[i] = _power(levels[i]) * s
        else:
            for i in indices:
                level = np.int32((np.int32(levels[i]) ^ half) - half)
                c[i] = np.float32(np.float32(level) + shift) * s


@kernel
def _power(code: Any) -> Any:
    """2^(c - 7), with its sign, of an e3m0 code; 0 of code 0."""
    size = np.uint32(code & np.uint8(7))
    word = np.uint32(0) if size == 0 else np.uint32(size + np.uint32(120)) << np.uint32(23)
    return from_bits(np.uint32(word | (np.uint32(code & np.uint8(8)) << np.uint32(28))))


@kernel
def _pack(levels: Any, bits: int, at: int, data: Any, packer: Any) -> None:
    """Append levels as number `at` and on; `packer` holds the bits of a byte begun, and how many."""
    n = len(levels)
    if bits == 8:
        out = data[at : at + n]
        for i in range(n):
            out[i] = levels[i]
        return
    begun = 0
    if packer[1] == 0:
        # The rest is rarely any: groups are mostly whole bytes.
        each = 8 // bits
        whole = n // each
        out = data[at * bits // 8 :]
        if bits == 4:
            for i in range(whole):
                out[i] = levels[2 * i] | (levels[2 * i + 1] << np.uint8(4))
        else:
            for i in range(whole):
                byte = np.uint8(0)
                for j in range(each):
                    byte |= levels[each * i + j] << np.uint8(bits * j)
                out[i] = byte
        begun = whole * each
    for i in range(begun, n):
        packer[0] |= np.int64(levels[i]) << packer[1]
        packer[1] += bits
        if packer[1] == 8:
            data[(at + i) * bits // 8] = packer[0]
            packer[:] = 0
