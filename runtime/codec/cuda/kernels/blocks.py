"""Selection in blocks that fit into one program."""

import triton
import triton.language as tl

from runtime.codec.cuda.kernels.common import (
    COUNT,
    INFINITE,
    KEPT,
    LAST,
    POS,
    SECTION,
    START,
    bounds,
    contribution,
    draw,
    magnitude,
    number,
    of_section,
    of_tile,
    set_positions,
)


@triton.jit
def _kth_bound(key: tl.tensor, k: tl.tensor) -> tl.tensor:
    """(bound, whether exactly the k keys >= bound are the largest) of each row; else bound is the k-th key.

    Args:
        key: uint32 [rows, columns].
        k: int32 [rows, 1], at least 1 where a row has keys.

    From the largest key downwards in growing steps until enough keys lie above, then by halving, until a
    bound splits off exactly k: most rows need some ten counts where going bit by bit needs 32.
    """
    low = tl.zeros(k.shape, tl.uint32)
    high = tl.max(key, axis=1, keep_dims=True)
    exact = tl.zeros(k.shape, tl.int1)
    above = tl.zeros(k.shape, tl.int1)  # whether `low` has been found by counting
    step = tl.full(k.shape, 1 << 23, tl.uint32)  # a factor of two between floats
    while tl.max(((low < high) & (exact == 0)).to(tl.int32)) > 0:
        width = high - low
        trial = high - tl.where(above, width >> 1, tl.minimum(step, width))
        count = tl.sum((key >= trial).to(tl.int32), axis=1, keep_dims=True)
        open = (low < high) & (exact == 0)
        enough = open & (count >= k)
        less = open & (count < k)
        low = tl.where(enough, trial, low)
        high = tl.where(less, trial - 1, high)
        exact = exact | (enough & (count == k))
        above = above | enough
        step = tl.minimum(step, 1 << 30) << 1
    return low, exact


@triton.jit
def blocks(
    values: tl.tensor,
    residual: tl.tensor,
    weight: tl.tensor,
    decay: tl.tensor,
    tiles: tl.tensor,
    sections: tl.tensor,
    words: tl.tensor,
    chosen: tl.tensor,
    offsets: tl.tensor,
    bad: tl.tensor,
    status: tl.tensor,
    BLOCK: tl.constexpr,
    TAKE: tl.constexpr,
    FEEDBACK: tl.constexpr,
    DECAY: tl.constexpr,
    READ: tl.constexpr,
    DRAWN: tl.constexpr,
    EVEN: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
) -> None:
    """ROWS blocks of BLOCK elements: u, decay * u into the residual, the TAKE largest keys of each block.

    Where a block's chosen values go is known beforehand. Tiles that are not finite are marked and leave the
    residual alone.
    """
    t = number()
    at, length = bounds(tiles, t, EVEN)
    pos = of_tile(tiles, t, POS)
    section = of_tile(tiles, t, SECTION)
    row = tl.arange(0, ROWS)[:, None]
    column = tl.arange(0, COLUMNS)[None, :]
    i = row * BLOCK + column
    inside = (column < BLOCK) & (i < length)
    if READ:
        u = contribution(values, residual, at, i, inside, weight, FEEDBACK)
        most = tl.max(tl.max(tl.where(inside, magnitude(u), 0).to(tl.int32), axis=1), axis=0)
        broken = most >= INFINITE
        tl.store(bad + t, broken.to(tl.int8))
        if broken:
            tl.atomic_or(status, 1, sem="relaxed")
        elif FEEDBACK:
            if DECAY:
                tl.store(residual + at + i, u * decay, mask=inside)
            else:
                tl.store(residual + at + i, u, mask=inside)
    key = draw(words, section, pos + i) if DRAWN else magnitude(u)
    key = tl.where(inside, key, 0)
    # A partial block is the last one of its section.
    whole = (row + 1) * BLOCK <= length
    k = tl.where(whole, TAKE, of_section(sections, section, LAST)).to(tl.int32)
    low, exact = _kth_bound(key, k)
    take = inside & (key > low) | (inside & exact & (key == low))
    if tl.min(exact.to(tl.int32)) == 0:
        tied = inside & (key == low) & (exact == 0)
        missing = k - tl.sum(take.to(tl.int32), axis=1, keep_dims=True)
        take = take | (tied & (tl.cumsum(tied.to(tl.int32), axis=1) <= missing))
    rank = tl.cumsum(take.to(tl.int32), axis=1) - 1
    first = of_section(sections, section, KEPT) + pos // BLOCK * TAKE
    index = offsets.dtype.element_ty
    tl.store(offsets + first + row * TAKE + rank, at.to(index) + i.to(index), mask=take)
    if READ:
        tl.store(chosen + first + row * TAKE + rank, u, mask=take)


@triton.jit
def code_positions(
    offsets: tl.tensor,
    programs: tl.tensor,
    sections: tl.tensor,
    body: tl.tensor,
    TILE: tl.constexpr,
) -> None:
    """Write TILE positions of sections of one span, from their offsets in the fragment."""
    p = number()
    section = tl.load(programs + p * 2)
    i = tl.load(programs + p * 2 + 1) + tl.arange(0, TILE)
    inside = i < of_section(sections, section, COUNT)
    at = tl.load(offsets + of_section(sections, section, KEPT) + i, mask=inside, other=0).to(tl.int64)
    pos = tl.where(inside, at - of_section(sections, section, START), 0)
    set_positions(body, sections, section, i, pos, inside)
