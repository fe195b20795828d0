"""Kernels of the encoder's second half: scales, values, positions and residual, item by item.

An *item* is a range of a section's travelling values: whole groups, and a multiple of 8 values unless it is
the section's last, so that every part of it begins on a byte.
"""

from typing import Any

import numpy as np

from runtime.codec.cpu.add import NOT_FINITE, add
from runtime.codec.cpu.forms import AS_FP16, BITS, RUN
from runtime.codec.cpu.kernel import kernel
from runtime.codec.cpu.lowlevel import LINE, borrowed, look_ahead, prefetch
from runtime.codec.cpu.quantize import flush, scale_of, write_scale, write_values

_AHEAD = 64
_NEAR, _FAR = np.uint64(24), np.uint64(_AHEAD)
_EVERY = np.uint64(3)


@kernel
def write_dense(
    values: Any,
    kind: int,
    weight: Any,
    residual: Any,
    has_residual: bool,
    decay: Any,
    form: int,
    width: int,
    bump: bool,
    stochastic: bool,
    first: Any,
    second: Any,
    begin: int,
    scales: Any,
    data: Any,
) -> int:
    """An item of a dense section whose groups fit into RUN, in one pass over memory.

    Args:
        values, residual: the item's part; without `has_residual` the latter is not touched.
        kind, weight, has_residual: as `add` takes them.
        decay: of the residual.
        form, width, bump, stochastic, first, second: as `write_values` and `scale_of` take them.
        begin: the item's first value in the section.
        scales, data: uint8, the section's.

    Returns:
        How many values are done: all, unless one is not finite.
    """
    u = np.empty(RUN, np.float32)
    c = np.empty(RUN, np.float32)
    scale = np.empty(RUN, np.float32)
    levels = np.empty(RUN, np.uint8)
    dither = np.empty(RUN, np.uint32)
    packer = np.zeros(2, np.int64)
    run = RUN if form <= AS_FP16 else RUN // width * width
    for at in range(0, len(values), run):
        given = values[at : at + run]
        n = len(given)
        kept = residual[at : at + n] if has_residual else residual[:0]
        if add(given, kind, weight, kept, has_residual, u) >= NOT_FINITE:
            flush(packer, data, (begin + at) * BITS[form] // 8)
            return at
        for group, low in enumerate(range(0, n if form > AS_FP16 else 0, width)):
            scale[group] = scale_of(u, low, min(n, low + width), form, width, bump)
            write_scale(scales, (begin + at) // width + group, scale[group])
        write_values(
            u[:n], form, width, scale, stochastic, first, second, begin + at, data, packer, levels, dither,
            c[: n if has_residual or form <= AS_FP16 else 0],
        )  # fmt: skip
        if has_residual:
            for i in range(n):
                kept[i] = np.float32(u[i] - c[i]) * decay
    flush(packer, data, (begin + len(values)) * BITS[form] // 8)
    return len(values)


@kernel
def write_item(
    x: Any,
    found: Any,
    ends: Any,
    shifts: Any,
    residual: Any,
    decay: Any,
    form: int,
    width: int,
    bump: bool,
    stochastic: bool,
    first: Any,
    second: Any,
    begin: int,
    scales: Any,
    data: Any,
    soon: int,
) -> None:
    """An item of values that stand in memory: their scales and bytes out, `residual` <- decay (u - c).

    Args:
        x: fp32, the item's values u; they may lie in `residual`.
        found: their positions in the section, ascending; empty: all travel, and x is what is updated.
        ends, shifts: of the section's spans: position after the last, and what leads from a position to
            the element of the fragment.
        residual: the fragment's; empty where none is kept.
        decay, form, width, bump, stochastic, first, second, begin, scales, data: as `write_dense`.
        soon: -1, or where in `residual` memory is to be asked for meanwhile, as what is updated is in cache.
    """
    _write_item(
        x, found, ends, shifts, residual, decay, form, width, bump, stochastic, first, second, begin, scales,
        data, soon, np.empty(RUN, np.float32), np.empty(RUN, np.float32), np.empty(RUN, np.uint8),
        np.empty(RUN, np.uint32), np.zeros(2, np.int64),
    )  # fmt: skip


@kernel
def _write_item(
    x: Any, found: Any, ends: Any, shifts: Any, residual: Any, decay: Any, form: int, width: int, bump: bool,
    stochastic: bool, first: Any, second: Any, begin: int, scales: Any, data: Any, soon: int,
    c: Any, scale: Any, levels: Any, dither: Any, packer: Any,
) -> None:  # fmt: skip
    x, found, ends, shifts = borrowed(x), borrowed(found), borrowed(ends), borrowed(shifts)
    residual = borrowed(residual)
    scales, data, c, scale = borrowed(scales), borrowed(data), borrowed(c), borrowed(scale)
    levels, dither, packer = borrowed(levels), borrowed(dither), borrowed(packer)
    n = len(x)
    span = 0
    step = width if form > AS_FP16 else RUN
    if step <= RUN:
        step = RUN // step * step
    for low in range(0, n, step):
        high = min(n, low + step)
        for group, at in enumerate(range(low, high if form > AS_FP16 else low, width)):
            scale[group] = scale_of(x, at, min(high, at + width), form, width, bump)
            write_scale(scales, (begin + low) // width + group, scale[group])
        for at in range(low, high, RUN):
            end = min(high, at + RUN)
            write_values(
                x[at:end], form, width, scale, stochastic, first, second, begin + at, data, packer, levels,
                dither, c[: end - at],
            )  # fmt: skip
            if len(residual) == 0:
                continue
            if len(found) == 0:
                for i in range(at, end):
                    x[i] = np.float32(x[i] - c[i - at]) * decay
            elif len(ends) == 1:
                shift, last, distance = shifts[0], np.uint64(n - 1), _FAR if soon < 0 else _NEAR
                for i in range(np.uint64(at), np.uint64(end)):
                    if soon >= 0 and i & _EVERY == 0:
                        look_ahead(residual, soon)
                        soon += LINE
                    place = np.uint64(np.int64(found[i]) + shift)
                    prefetch(residual, np.int64(found[min(i + distance, last)]) + shift)
                    residual[place] = np.float32(x[i] - c[i - np.uint64(at)]) * decay
            else:
                for i in range(at, end):
                    position = np.int64(found[i])
                    while position >= ends[span]:
                        span += 1
                    if i + _AHEAD < n:
                        prefetch(residual, np.int64(found[i + _AHEAD]) + shifts[span])
                    place = np.uint64(position + shifts[span])
                    residual[place] = np.float32(x[i] - c[i - at]) * decay
    flush(packer, data, (begin + n) * BITS[form] // 8)


@kernel
def take_values(residual: Any, found: Any, ends: Any, shifts: Any, words: Any) -> None:
    """The bits of the values at positions of a section."""
    bits = residual.view(np.uint32)
    span = 0
    for i in range(len(found)):
        position = np.int64(found[i])
        while position >= ends[span]:
            span += 1
        words[i] = bits[position + shifts[span]]
