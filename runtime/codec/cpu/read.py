"""Kernels of the decoder: checks, values, and sums of payloads."""

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
from runtime.codec.cpu.lowlevel import fence, past_line, prefetch, stream, to_bits
from runtime.codec.cpu.quantize import decode_levels, read_scale

_TINY = np.float32(TINY)
_LINE = 16
_AHEAD = 128
_ONE = np.uint64(1)
CHUNK = 4096


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
    bad = 0
    if form == AS_INT8:
        for i in range(len(part)):
            bad |= part[i] == 0x80
    elif form in (AS_INT4, AS_E3M0):
        # -8, and the negative zero: each is a 1 above zeros.
        for i in range(len(part)):
            bad |= (part[i] & 0x0F) == 0x08
            bad |= (part[i] & 0xF0) == 0x80
    used = end * BITS[form] % 8
    if used:
        bad |= (data[last - 1] >> used) != 0
    return bad == 0


@kernel
def _finite(part: Any, form: int) -> bool:
    bad = 0
    if form == AS_FP32:
        words = part.view(np.uint32)
        for i in range(len(words)):
            bad |= (words[i] & np.uint32(0x7F800000)) == np.uint32(0x7F800000)
        return bad == 0
    half = part.view(np.uint16)
    exponent = np.uint16(0x7F80) if form == AS_BF16 else np.uint16(0x7C00)
    for i in range(len(half)):
        bad |= (half[i] & exponent) == exponent
    return bad == 0


@kernel
def read_values(scales: Any, data: Any, form: int, width: int, begin: int, end: int, c: Any) -> None:
    """Values number `begin` to `end` of a section, fp32, into c [end - begin]."""
    if form <= AS_FP16:
        size = BITS[form] // 8
        widen(data[size * begin : size * end], form, c[: end - begin])
        return
    levels = np.empty(RUN, np.uint8)
    scale = np.empty(RUN, np.float32)
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
        _unpack(data, BITS[form], at, n, levels)
        decode_levels(levels[:n], form, width, scale, c[at - begin : stop - begin])
        at = stop


@kernel
def _unpack(data: Any, bits: int, at: int, n: int, levels: Any) -> None:
    """Levels of n values from number `at` on, one a byte."""
    if bits == 8:
        part = data[at : at + n]
        for i in range(n):
            levels[i] = part[i]
        return
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
def add_dense(
    scales: Any, data: Any, form: int, width: int, begin: int, end: int, overwrite: bool, out: Any
) -> None:
    """out [end - begin] += values number `begin` to `end` of a dense section; or 0 + them, to overwrite."""
    c = np.empty(RUN, np.float32)
    zero = np.float32(0.0)
    for at in range(begin, end, RUN):
        stop = min(end, at + RUN)
        read_values(scales, data, form, width, at, stop, c)
        part = out[at - begin : stop - begin]
        if overwrite:
            for i in range(stop - at):
                part[i] = zero + c[i]
        else:
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


@kernel
def sum_sparse(found: Any, rows: Any, c: Any, begin: int, streamed: bool, out: Any) -> None:
    """out <- the sum of sparse payloads, over a range of one section.

    Args:
        found: positions [_, k], ascending in each row.
        rows: which of those is each payload's.
        c: fp32 [payloads, k].
        begin: the range's first position.
        streamed: write past the caches.
        out: fp32: the range.
    """
    count, k = c.shape
    total = np.zeros(CHUNK, np.float32)
    at = np.empty(count, np.uint64)
    stop = np.empty(count, np.uint64)
    positions, values = found.ravel(), c.ravel()
    for m in range(count):
        at[m] = rows[m] * k + np.searchsorted(found[rows[m]], begin)
        stop[m] = (rows[m] + 1) * k
    for low in range(0, len(out), CHUNK):
        high = min(len(out), low + CHUNK)
        first, last = begin + low, begin + high
        for m in range(count):
            i, end = at[m], stop[m]
            to_value = np.uint64((m - rows[m]) * k)
            while i < end and positions[i] < last:
                total[np.uint64(np.int64(positions[i]) - first)] += values[i + to_value]
                i += _ONE
            at[m] = i
        part = out[low:high]
        if streamed:
            _stream_out(total, part)
        else:
            for i in range(len(part)):
                part[i] = total[i]
                total[i] = 0.0
    if streamed:
        fence()


@kernel
def _stream_out(total: Any, out: Any) -> None:
    """Move `total` to `out` past the caches, and leave zeros."""
    n = len(out)
    head = min(n, (-past_line(out, 0) % 64) // 4)
    whole = head + (n - head) // _LINE * _LINE
    for i in range(head):
        out[i] = total[i]
    for i in range(head, whole, _LINE):
        stream(out, i, total, i)
    for i in range(whole, n):
        out[i] = total[i]
    for i in range(n):
        total[i] = 0.0
