"""Kernels of the decoder: checks, values, and adding one payload."""

from typing import Any

import numpy as np

from geosim.policy.maths.quantize import TINY
from runtime.codec.cpu.casts import widen
from runtime.codec.cpu.forms import (
    AS_BF16,
    AS_E3M0,
    AS_FP16,
    AS_FP32,
    AS_INT4,
    AS_INT8,
    BITS,
    LIMIT,
    RUN,
)
from runtime.codec.cpu.kernel import kernel
from runtime.codec.cpu.lowlevel import prefetch, to_bits
from runtime.codec.cpu.quantize import decode_levels, read_scale

_TINY = np.float32(TINY)
_AHEAD = 128


@kernel
def scales_are_right(scales: Any, form: int, first: int, last: int) -> bool:
    """Whether scales `first` to `last` are 0 or in range."""
    for group in range(first, last):
        scale = read_scale(scales, group)
        if to_bits(scale) != 0 and not (_TINY <= scale <= LIMIT[form]):
            return False
    return True


@kernel
def values_are_right(data: Any, form: int, begin: int, end: int) -> bool:
    """Whether values number `begin` (a multiple of 8) to `end` are ones that an encoder writes."""
    if form <= AS_FP16:
        size = BITS[form] // 8
        return _finite(data[size * begin : size * end], form)
    first, last = begin * BITS[form] // 8, (end * BITS[form] + 7) // 8
    part = data[first:last]
    # As wide as what is looked at, or fewer of them fit into a vector.
    bad = np.uint8(0)
    if form == AS_INT8:
        for i in range(len(part)):
            bad = np.uint8(bad | np.uint8(part[i] == np.uint8(0x80)))
    elif form in (AS_INT4, AS_E3M0):
        # -8, and the negative zero: each is a 1 above zeros.
        for i in range(len(part)):
            low = np.uint8(part[i] & np.uint8(0x0F)) == np.uint8(0x08)
            high = np.uint8(part[i] & np.uint8(0xF0)) == np.uint8(0x80)
            bad = np.uint8(bad | np.uint8(low) | np.uint8(high))
    used = end * BITS[form] % 8
    return bool(bad == 0 and not (used and data[last - 1] >> used))


@kernel
def _finite(part: Any, form: int) -> bool:
    if form == AS_FP32:
        words = part.view(np.uint32)
        worst = np.uint32(0)
        for i in range(len(words)):
            worst = max(worst, np.uint32(words[i] & np.uint32(0x7F800000)))
        return bool(worst < np.uint32(0x7F800000))
    half = part.view(np.uint16)
    exponent = np.uint16(0x7F80) if form == AS_BF16 else np.uint16(0x7C00)
    most = np.uint16(0)
    for i in range(len(half)):
        most = max(most, np.uint16(half[i] & exponent))
    return bool(most < exponent)


@kernel
def all_right(scales: Any, data: Any, form: int, width: int, begin: int, end: int) -> bool:
    """Whether values number `begin` (a multiple of 8, and of `width`) to `end` and their scales are."""
    groups = (begin // width, (end + width - 1) // width) if form > AS_FP16 else (0, 0)
    return scales_are_right(scales, form, *groups) and values_are_right(data, form, begin, end)


@kernel
def read_few(
    scales: Any, data: Any, form: int, width: int, begin: int, end: int, c: Any, levels: Any, scale: Any
) -> None:
    """`read_values` with scratch [RUN] for levels, uint8, and scales, fp32."""
    if form <= AS_FP16:
        size = BITS[form] // 8
        widen(data[size * begin : size * end], form, c[: end - begin])
        return
    at = begin
    while at < end:
        # Up to the end of a group that was begun, or so many whole ones as fit, or a part of a large one.
        inside = at % width
        stop = at + (width - inside if inside else max(width, RUN // width * width))
        stop = min(stop, at + RUN, end)
        n = stop - at
        group = at // width
        for i in range((stop - 1) // width + 1 - group):
            scale[i] = read_scale(scales, group + i)
        if BITS[form] == 8:
            decode_levels(data[at:stop], form, width, scale, c[at - begin : stop - begin])
        else:
            _unpack(data, BITS[form], at, n, levels)
            decode_levels(levels[:n], form, width, scale, c[at - begin : stop - begin])
        at = stop


@kernel
def read_values(scales: Any, data: Any, form: int, width: int, begin: int, end: int, c: Any) -> None:
    """Values number `begin` to `end` of a section, fp32, into c [end - begin]."""
    levels, scale = np.empty(RUN, np.uint8), np.empty(RUN, np.float32)
    read_few(scales, data, form, width, begin, end, c, levels, scale)


@kernel
def _unpack(data: Any, bits: int, at: int, n: int, levels: Any) -> None:
    """Levels of n values of less than 8 bits from number `at` on, one a byte."""
    mask = np.uint8((1 << bits) - 1)
    begun = 0
    if at * bits % 8 == 0:
        each = 8 // bits
        part = data[at * bits // 8 :]
        whole = n // each
        if bits == 4:
            for i in range(whole):
                levels[2 * i] = part[i] & mask
                levels[2 * i + 1] = part[i] >> np.uint8(4)
        else:
            for i in range(whole):
                for j in range(each):
                    levels[each * i + j] = (part[i] >> np.uint8(bits * j)) & mask
        begun = whole * each
    for i in range(begun, n):
        bit = (at + i) * bits
        levels[i] = (data[bit >> 3] >> np.uint8(bit & 7)) & mask


@kernel
def add_dense(scales: Any, data: Any, form: int, width: int, begin: int, end: int, out: Any) -> None:
    """out [end - begin] += values number `begin` to `end` of a dense section."""
    levels, scale = np.empty(RUN, np.uint8), np.empty(RUN, np.float32)
    c = np.empty(RUN, np.float32)
    for at in range(begin, end, RUN):
        stop = min(end, at + RUN)
        read_few(scales, data, form, width, at, stop, c, levels, scale)
        part = out[at - begin : stop - begin]
        for i in range(stop - at):
            part[i] += c[i]


@kernel
def add_sparse(found: Any, c: Any, ends: Any, shifts: Any, out: Any) -> None:
    """Add values at ascending positions of a section; `out` is the fragment's."""
    span = 0
    n = len(found)
    for i in range(n):
        position = np.int64(found[i])
        while position >= ends[span]:
            span += 1
        if i + _AHEAD < n:
            prefetch(out, np.int64(found[i + _AHEAD]) + shifts[span])
        out[np.uint64(position + shifts[span])] += c[i]
