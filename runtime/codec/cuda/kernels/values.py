"""Scales and values of what travels, once it has been chosen, and what the residual keeps of it."""

import triton
import triton.language as tl

from runtime.codec.cuda.kernels.common import (
    COUNT,
    KEPT,
    ROW,
    SCALE_AT,
    SIZE,
    START,
    VALUE_AT,
    draw,
    number,
    of_section,
    stored,
)
from runtime.codec.cuda.kernels.formats import (
    clamp_of,
    from_float,
    halves,
    levels,
    meaning,
    scale_of,
    scale_slot,
    store_bytes,
    store_values,
    to_float,
)


@triton.jit
def _travelling(
    chosen: tl.tensor,
    values: tl.tensor,
    residual: tl.tensor,
    weight: tl.tensor,
    sections: tl.tensor,
    section: tl.tensor,
    first: tl.tensor,
    i: tl.tensor,
    mask: tl.tensor,
    CHOSEN: tl.constexpr,
    FEEDBACK: tl.constexpr,
) -> tl.tensor:
    """The travelling values first + i of a section, from `chosen` or, where everything travels, from u."""
    if CHOSEN:
        v = tl.load(chosen + of_section(sections, section, KEPT) + first + i, mask=mask, other=0.0)
    else:
        at = of_section(sections, section, START) + first
        v = stored(values, residual, at, i, mask, weight, FEEDBACK)
    return v


@triton.jit
def narrow_scales(
    chosen: tl.tensor,
    values: tl.tensor,
    residual: tl.tensor,
    weight: tl.tensor,
    programs: tl.tensor,
    sections: tl.tensor,
    scales: tl.tensor,
    body: tl.tensor,
    CHOSEN: tl.constexpr,
    FEEDBACK: tl.constexpr,
    KIND: tl.constexpr,
    LEVEL: tl.constexpr,
    LIMIT: tl.constexpr,
    GROUP: tl.constexpr,
    LEVELS: tl.constexpr,
    ROWS: tl.constexpr,
) -> None:
    """Scales of ROWS groups of GROUP <= 2^LEVELS values."""
    p = number()
    section = tl.load(programs + p * 2)
    first = tl.load(programs + p * 2 + 1)
    count = of_section(sections, section, COUNT)
    start = first * GROUP
    left = tl.minimum(count - start, ROWS * GROUP).to(tl.int32)
    row = tl.arange(0, ROWS)
    column = tl.arange(0, 1 << LEVELS)[None, :]
    i = row[:, None] * GROUP + column
    inside = (column < GROUP) & (i < left)
    v = _travelling(chosen, values, residual, weight, sections, section, start, i, inside, CHOSEN, FEEDBACK)
    size = tl.abs(v)
    peak = tl.max(size, axis=1)
    mean = peak
    if KIND == "sign":
        total = halves(tl.minimum(size, clamp_of(of_section(sections, section, SIZE))), ROWS, LEVELS)
        members = tl.maximum(tl.minimum(left - row * GROUP, GROUP), 1).to(tl.float32)
        mean = tl.div_rn(total, members)
    scale = scale_of(peak, mean, KIND, LEVEL, LIMIT, True)
    real = row * GROUP < left
    tl.store(scales + of_section(sections, section, ROW) + first + row, scale, mask=real)
    word = scale.to(tl.int32, bitcast=True)
    store_bytes(body, of_section(sections, section, SCALE_AT) + first * 4, row, word, real, 4)


@triton.jit
def peaks(
    chosen: tl.tensor,
    values: tl.tensor,
    residual: tl.tensor,
    weight: tl.tensor,
    parts: tl.tensor,
    sections: tl.tensor,
    out: tl.tensor,
    CHOSEN: tl.constexpr,
    FEEDBACK: tl.constexpr,
    GROUP: tl.constexpr,
    TILE: tl.constexpr,
) -> None:
    """Bits of the largest magnitude of large groups (GROUP 0: the section), into zeros."""
    p = number()
    section = tl.load(parts + p * 3)
    row = tl.load(parts + p * 3 + 1)
    first = tl.load(parts + p * 3 + 2)
    stop = of_section(sections, section, COUNT)
    if GROUP > 0:
        stop = tl.minimum(stop, (row + 1) * GROUP)
    i = tl.arange(0, TILE)
    inside = i < tl.minimum(stop - first, TILE).to(tl.int32)
    v = _travelling(chosen, values, residual, weight, sections, section, first, i, inside, CHOSEN, FEEDBACK)
    peak = tl.max(tl.abs(v).to(tl.int32, bitcast=True), axis=0)
    tl.atomic_max(out + of_section(sections, section, ROW) + row, peak, sem="relaxed")


@triton.jit(do_not_specialize=["section", "width", "lanes"])
def halve(
    chosen: tl.tensor,
    values: tl.tensor,
    residual: tl.tensor,
    weight: tl.tensor,
    sections: tl.tensor,
    section: tl.tensor,
    sums: tl.tensor,
    out: tl.tensor,
    width: tl.tensor,
    lanes: tl.tensor,
    CHOSEN: tl.constexpr,
    FEEDBACK: tl.constexpr,
    FIRST: tl.constexpr,
    LEVELS: tl.constexpr,
    COLUMNS: tl.constexpr,
) -> None:
    """2^LEVELS * `lanes` summands of each large group of one section become `lanes`, by halves.

    The first time they are the magnitudes of its `width` values a group, filled up with zeros; then `sums`.
    """
    p = number()
    section = section.to(tl.int64)
    blocks = tl.cdiv(lanes, COLUMNS)
    row = p // blocks
    lane = (p % blocks) * COLUMNS + tl.arange(0, COLUMNS)[:, None]
    summand = lane + tl.arange(0, 1 << LEVELS).to(tl.int64)[None, :] * lanes
    inside = lane < lanes
    if FIRST:
        i = row * width + summand
        inside = inside & (summand < width) & (i < of_section(sections, section, COUNT))
        v = _travelling(chosen, values, residual, weight, sections, section, 0, i, inside, CHOSEN, FEEDBACK)
        x = tl.minimum(tl.abs(v), clamp_of(of_section(sections, section, SIZE)))
    else:
        x = tl.load(sums + (row * lanes << LEVELS) + summand, mask=inside, other=0.0)
    lane = (p % blocks) * COLUMNS + tl.arange(0, COLUMNS)
    tl.store(out + row * lanes + lane, halves(x, COLUMNS, LEVELS), mask=lane < lanes)


@triton.jit
def wide_scales(
    programs: tl.tensor,
    sections: tl.tensor,
    peak_bits: tl.tensor,
    totals: tl.tensor,
    scales: tl.tensor,
    body: tl.tensor,
    KIND: tl.constexpr,
    LEVEL: tl.constexpr,
    LIMIT: tl.constexpr,
    GROUP: tl.constexpr,
    TILE: tl.constexpr,
) -> None:
    """Scales of TILE large groups (GROUP 0: the section) from their peaks and (sign) their sums."""
    p = number()
    section = tl.load(programs + p * 2)
    row = tl.load(programs + p * 2 + 1) + tl.arange(0, TILE)
    count = of_section(sections, section, COUNT)
    members = tl.where(row == 0, count, 0) if GROUP == 0 else tl.minimum(count - row * GROUP, GROUP)
    real = members > 0
    slot = of_section(sections, section, ROW) + row
    peak = tl.load(peak_bits + slot, mask=real, other=0).to(tl.float32, bitcast=True)
    mean = peak
    if KIND == "sign":
        total = tl.load(totals + slot, mask=real, other=0.0)
        mean = tl.div_rn(total, tl.maximum(members, 1).to(tl.float32))
    scale = scale_of(peak, mean, KIND, LEVEL, LIMIT, GROUP > 0)
    tl.store(scales + slot, scale, mask=real)
    word = scale.to(tl.int32, bitcast=True)
    store_bytes(body, of_section(sections, section, SCALE_AT), row, word, real, 4)


@triton.jit
def write_values(
    chosen: tl.tensor,
    offsets: tl.tensor,
    values: tl.tensor,
    residual: tl.tensor,
    weight: tl.tensor,
    decay: tl.tensor,
    programs: tl.tensor,
    sections: tl.tensor,
    words: tl.tensor,
    scales: tl.tensor,
    body: tl.tensor,
    status: tl.tensor,
    CHOSEN: tl.constexpr,
    FEEDBACK: tl.constexpr,
    DECAY: tl.constexpr,
    KIND: tl.constexpr,
    BITS: tl.constexpr,
    LEVEL: tl.constexpr,
    DITHER: tl.constexpr,
    SCALED: tl.constexpr,
    GROUP: tl.constexpr,
    ALIGNED: tl.constexpr,
    TILE: tl.constexpr,
) -> None:
    """Write TILE travelling values; their residual becomes decay * (u - c) unless the round has failed."""
    p = number()
    section = tl.load(programs + p * 2)
    first = tl.load(programs + p * 2 + 1)
    left = tl.minimum(of_section(sections, section, COUNT) - first, TILE).to(tl.int32)
    i = tl.arange(0, TILE)
    inside = i < left
    v = _travelling(chosen, values, residual, weight, sections, section, first, i, inside, CHOSEN, FEEDBACK)
    if SCALED:
        scale = tl.load(scales + scale_slot(sections, section, first, i, GROUP), mask=inside, other=0.0)
        bits = draw(words, section, first + i) if DITHER else v
        q = levels(v, scale, bits, KIND, LEVEL, DITHER)
        c = meaning(q, scale, KIND)
    else:
        q = to_float(v, KIND)
        c = from_float(q, KIND)
    at = of_section(sections, section, VALUE_AT) + first * BITS // 8
    store_values(body, at, q, left, BITS, ALIGNED, TILE)
    if FEEDBACK:
        keep = v - c
        if DECAY:
            keep = keep * decay
        go = i < tl.where(tl.load(status) == 0, left, 0)
        if CHOSEN:
            slot = offsets + of_section(sections, section, KEPT) + first
            tl.store(residual + tl.load(slot + i, mask=go, other=0).to(tl.int64), keep, mask=go)
        else:
            tl.store(residual + of_section(sections, section, START) + first + i, keep, mask=go)
