"""Selection in large scopes: collect candidates in one pass, put those that travel in order."""

import triton
import triton.language as tl

from runtime.codec.cuda.kernels.common import (
    AT,
    INFINITE,
    KEPT,
    LENGTH,
    POS,
    REGION,
    ROOM,
    SCOPE,
    SECTION,
    bounds,
    contribution,
    draw,
    magnitude,
    number,
    of_scope,
    of_section,
    of_tile,
    set_positions,
    stored,
)


@triton.jit
def stream(
    values: tl.tensor,
    residual: tl.tensor,
    weight: tl.tensor,
    tiles: tl.tensor,
    scopes: tl.tensor,
    words: tl.tensor,
    thresholds: tl.tensor,
    counts: tl.tensor,
    records: tl.tensor,
    places: tl.tensor,
    chunks: tl.tensor,
    bad: tl.tensor,
    status: tl.tensor,
    FEEDBACK: tl.constexpr,
    READ: tl.constexpr,
    DRAWN: tl.constexpr,
    COLLECT: tl.constexpr,
    EVEN: tl.constexpr,
    TILE: tl.constexpr,
) -> None:
    """One pass: u into the residual, tiles that are not finite marked and left alone, candidates collected.

    A candidate is one whose key (magnitude, or counter bits if DRAWN) is at or above its scope's threshold.
    Its record is u's bits, or the counter bits; a tile's candidates lie together, in order.
    """
    t = number()
    at, length = bounds(tiles, t, EVEN)
    scope = of_tile(tiles, t, SCOPE)
    i = tl.arange(0, TILE)
    inside = i < length
    if READ:
        u = contribution(values, residual, at, i, inside, weight, FEEDBACK)
        broken = tl.max(tl.where(inside, magnitude(u), 0).to(tl.int32), axis=0) >= INFINITE
        tl.store(bad + t, broken.to(tl.int8))
        if broken:
            tl.atomic_or(status, 1, sem="relaxed")
        elif FEEDBACK:
            tl.store(residual + at + i, u, mask=inside)
    if COLLECT:
        if DRAWN:
            key = draw(words, of_tile(tiles, t, SECTION), of_tile(tiles, t, POS) + i)
            record = key.to(tl.int32, bitcast=True)
        else:
            key = magnitude(u)
            record = u.to(tl.int32, bitcast=True)
        room = of_scope(scopes, scope, ROOM)
        above = key >= tl.load(thresholds + scope).to(tl.uint32, bitcast=True)
        hit = (i < tl.where(room > 0, length, 0)) & above
        rank = tl.cumsum(hit.to(tl.int32), axis=0) - 1
        found = tl.sum(hit.to(tl.int32), axis=0).to(counts.dtype.element_ty)
        first = tl.atomic_add(counts + scope, found, sem="relaxed").to(tl.int64)
        tl.store(chunks + t * 2, first)
        tl.store(chunks + t * 2 + 1, found)
        fits = hit & (rank < tl.maximum(tl.minimum(room - first, TILE), 0).to(tl.int32))
        slot = of_scope(scopes, scope, REGION) + first
        tl.store(records + slot + rank, record, mask=fits)
        tl.store(places + slot + rank, i.to(tl.int16), mask=fits)


@triton.jit
def _candidates(
    values: tl.tensor,
    residual: tl.tensor,
    weight: tl.tensor,
    tiles: tl.tensor,
    scopes: tl.tensor,
    words: tl.tensor,
    records: tl.tensor,
    places: tl.tensor,
    t: tl.tensor,
    start: tl.tensor,
    first: tl.tensor,
    count: tl.tensor,
    direct: tl.tensor,
    DRAWN: tl.constexpr,
    FEEDBACK: tl.constexpr,
    STEP: tl.constexpr,
) -> tl.tensor:
    """(inside, key, record, place in the tile) of a tile's candidates from `start` on; of all if direct."""
    i = start + tl.arange(0, STEP)
    inside = i < count
    listed = i < tl.where(direct == 0, count, 0)
    whole = i < tl.where(direct == 0, 0, count)
    slot = of_scope(scopes, of_tile(tiles, t, SCOPE), REGION) + first + i
    record = tl.load(records + slot, mask=listed, other=0)
    place = tl.where(whole, i.to(tl.int32), tl.load(places + slot, mask=listed, other=0).to(tl.int32))
    if DRAWN:
        drawn = draw(words, of_tile(tiles, t, SECTION), of_tile(tiles, t, POS) + place)
        key = tl.where(whole, drawn, record.to(tl.uint32, bitcast=True))
    else:
        at = of_tile(tiles, t, AT)
        u = stored(values, residual, at, i, whole, weight, FEEDBACK)
        record = tl.where(whole, u.to(tl.int32, bitcast=True), record)
        key = magnitude(record)
    return inside, key, record, place


@triton.jit
def tally(
    values: tl.tensor,
    residual: tl.tensor,
    weight: tl.tensor,
    tiles: tl.tensor,
    scopes: tl.tensor,
    words: tl.tensor,
    records: tl.tensor,
    places: tl.tensor,
    chunks: tl.tensor,
    direct: tl.tensor,
    kth: tl.tensor,
    status: tl.tensor,
    tallies: tl.tensor,
    DRAWN: tl.constexpr,
    FEEDBACK: tl.constexpr,
    STEP: tl.constexpr,
) -> None:
    """How many keys of a tile lie above the k-th largest of its scope, and how many equal it."""
    t = number()
    scope = of_tile(tiles, t, SCOPE)
    whole = tl.load(direct + scope)
    count = tl.where(whole != 0, of_tile(tiles, t, LENGTH), tl.load(chunks + t * 2 + 1).to(tl.int64))
    count = tl.where(tl.load(status) == 0, count, 0)
    first = tl.load(chunks + t * 2).to(tl.int64)
    limit = tl.load(kth + scope).to(tl.uint32, bitcast=True)
    above = tl.zeros([STEP], tl.int32)
    tied = tl.zeros([STEP], tl.int32)
    for start in range(0, count, STEP):
        inside, key, _, _ = _candidates(
            values, residual, weight, tiles, scopes, words, records, places,
            t, start, first, count, whole, DRAWN, FEEDBACK, STEP,
        )  # fmt: skip
        above += (inside & (key > limit)).to(tl.int32)
        tied += (inside & (key == limit)).to(tl.int32)
    tl.store(tallies + t * 2, tl.sum(above, axis=0))
    tl.store(tallies + t * 2 + 1, tl.sum(tied, axis=0))


@triton.jit
def place(
    values: tl.tensor,
    residual: tl.tensor,
    weight: tl.tensor,
    tiles: tl.tensor,
    scopes: tl.tensor,
    sections: tl.tensor,
    words: tl.tensor,
    records: tl.tensor,
    places: tl.tensor,
    chunks: tl.tensor,
    direct: tl.tensor,
    kth: tl.tensor,
    status: tl.tensor,
    starts: tl.tensor,
    chosen: tl.tensor,
    offsets: tl.tensor,
    body: tl.tensor,
    DRAWN: tl.constexpr,
    FEEDBACK: tl.constexpr,
    READ: tl.constexpr,
    POSITIONS: tl.constexpr,
    STEP: tl.constexpr,
) -> None:
    """Put what a tile sends where it belongs: u into `chosen`, its offsets, its positions into the body.

    `starts` holds for each tile how many travel before it, and how many of its ties do.
    """
    t = number()
    scope = of_tile(tiles, t, SCOPE)
    section = of_tile(tiles, t, SECTION)
    at = of_tile(tiles, t, AT)
    whole = tl.load(direct + scope)
    count = tl.where(whole != 0, of_tile(tiles, t, LENGTH), tl.load(chunks + t * 2 + 1).to(tl.int64))
    count = tl.where(tl.load(status) == 0, count, 0)
    first = tl.load(chunks + t * 2).to(tl.int64)
    limit = tl.load(kth + scope).to(tl.uint32, bitcast=True)
    before = tl.load(starts + t * 2).to(tl.int64)
    ties = tl.load(starts + t * 2 + 1).to(tl.int64)
    for start in range(0, count, STEP):
        inside, key, record, spot = _candidates(
            values, residual, weight, tiles, scopes, words, records, places,
            t, start, first, count, whole, DRAWN, FEEDBACK, STEP,
        )  # fmt: skip
        tied = inside & (key == limit)
        take = inside & (key > limit) | (tied & (tl.cumsum(tied.to(tl.int32), axis=0) <= ties))
        out = before + tl.cumsum(take.to(tl.int32), axis=0) - 1
        tl.store(offsets + out, (at + spot).to(offsets.dtype.element_ty), mask=take)
        if READ:
            if DRAWN:
                u = stored(values, residual, at, spot, take, weight, FEEDBACK)
            else:
                u = record.to(tl.float32, bitcast=True)
            tl.store(chosen + out, u, mask=take)
            if POSITIONS:
                i = out - of_section(sections, section, KEPT)
                set_positions(body, sections, section, i, of_tile(tiles, t, POS) + spot, take)
        before += tl.sum(take.to(tl.int64), axis=0)
        ties -= tl.sum(tied.to(tl.int64), axis=0)
