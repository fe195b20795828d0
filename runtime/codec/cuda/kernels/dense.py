"""Sections of which everything travels, in one pass; taking a pass back; the decay of a residual."""

import triton
import triton.language as tl

from runtime.codec.cuda.kernels.common import (
    INFINITE,
    NUMEL,
    POS,
    ROW,
    SCALE_AT,
    SECTION,
    SIZE,
    VALUE_AT,
    bounds,
    contribution,
    draw,
    magnitude,
    number,
    of_section,
    of_tile,
    widened,
)
from runtime.codec.cuda.kernels.formats import (
    clamp_of,
    from_float,
    halves,
    levels,
    meaning,
    scale_of,
    store_bytes,
    store_values,
    to_float,
)


@triton.jit
def fused(
    values: tl.tensor,
    residual: tl.tensor,
    weight: tl.tensor,
    decay: tl.tensor,
    tiles: tl.tensor,
    sections: tl.tensor,
    words: tl.tensor,
    scales: tl.tensor,
    body: tl.tensor,
    bad: tl.tensor,
    status: tl.tensor,
    FEEDBACK: tl.constexpr,
    DECAY: tl.constexpr,
    KIND: tl.constexpr,
    BITS: tl.constexpr,
    LEVEL: tl.constexpr,
    LIMIT: tl.constexpr,
    DITHER: tl.constexpr,
    GROUP: tl.constexpr,
    LEVELS: tl.constexpr,
    ALIGNED: tl.constexpr,
    EVEN: tl.constexpr,
    TILE: tl.constexpr,
) -> None:
    """u, its scales (GROUP = 2^LEVELS values each; 0: a format without), its bytes, decay * (u - c).

    Scales also go into `scales`, for an undo. Tiles that are not finite are marked and keep their residual.
    """
    t = number()
    at, length = bounds(tiles, t, EVEN)
    pos = of_tile(tiles, t, POS)
    section = of_tile(tiles, t, SECTION)
    i = tl.arange(0, TILE)
    inside = i < length
    u = contribution(values, residual, at, i, inside, weight, FEEDBACK)
    broken = tl.max(magnitude(u).to(tl.int32), axis=0) >= INFINITE
    tl.store(bad + t, broken.to(tl.int8))
    if broken:
        tl.atomic_or(status, 1, sem="relaxed")
    value_at = of_section(sections, section, VALUE_AT)
    if GROUP == 0:
        q = to_float(u, KIND)
        c = from_float(q, KIND)
    else:
        ROWS: tl.constexpr = TILE // GROUP
        row = tl.arange(0, ROWS)
        v = tl.reshape(u, [ROWS, GROUP])
        size = tl.abs(v)
        peak = tl.max(size, axis=1)
        mean = peak
        if KIND == "sign":
            total = halves(tl.minimum(size, clamp_of(of_section(sections, section, SIZE))), ROWS, LEVELS)
            left = of_section(sections, section, NUMEL) - pos - row * GROUP
            members = tl.maximum(tl.minimum(left, GROUP), 1).to(tl.float32)
            mean = tl.div_rn(total, members)
        scale = scale_of(peak, mean, KIND, LEVEL, LIMIT, True)
        first = pos // GROUP
        real = row * GROUP < length
        tl.store(scales + of_section(sections, section, ROW) + first + row, scale, mask=real)
        word = scale.to(tl.int32, bitcast=True)
        store_bytes(body, of_section(sections, section, SCALE_AT) + first * 4, row, word, real, 4)
        bits = tl.reshape(draw(words, section, pos + i), [ROWS, GROUP]) if DITHER else v
        q = levels(v, scale[:, None], bits, KIND, LEVEL, DITHER)
        c = tl.reshape(meaning(q, scale[:, None], KIND), [TILE])
        q = tl.reshape(q, [TILE])
    store_values(body, value_at + pos * BITS // 8, q, length, BITS, ALIGNED, TILE)
    if FEEDBACK:
        left = u - c
        if DECAY:
            left = left * decay
        tl.store(residual + at + i, left, mask=i < tl.where(broken, 0, length))


@triton.jit
def decayed(
    residual: tl.tensor,
    decay: tl.tensor,
    tiles: tl.tensor,
    status: tl.tensor,
    EVEN: tl.constexpr,
    TILE: tl.constexpr,
) -> None:
    """Multiply the residual by its decay, unless the round has already failed."""
    t = number()
    at, length = bounds(tiles, t, EVEN)
    i = tl.arange(0, TILE)
    inside = i < tl.where(tl.load(status) == 0, length, 0)
    tl.store(residual + at + i, tl.load(residual + at + i, mask=inside, other=0.0) * decay, mask=inside)


@triton.jit
def undo(
    values: tl.tensor,
    residual: tl.tensor,
    weight: tl.tensor,
    decay: tl.tensor,
    tiles: tl.tensor,
    bad: tl.tensor,
    EVEN: tl.constexpr,
    TILE: tl.constexpr,
) -> None:
    """residual / decay - weight * values where a pass has been: in the tiles that were finite."""
    t = number()
    at, length = bounds(tiles, t, EVEN)
    i = tl.arange(0, TILE)
    inside = i < tl.where(tl.load(bad + t) == 0, length, 0)
    e = tl.load(residual + at + i, mask=inside, other=0.0)
    v = widened(tl.load(values + at + i, mask=inside, other=0.0)) * weight
    e = tl.div_rn(e, tl.zeros([TILE], tl.float32) + decay) - v
    tl.store(residual + at + i, e, mask=inside)
