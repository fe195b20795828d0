"""The k-th largest key of each scope, of a sample, of candidates or of everything."""

import triton
import triton.language as tl

from runtime.codec.cuda.kernels.common import (
    AT,
    BEGIN,
    LENGTH,
    OWNER,
    POS,
    SAMPLES,
    SCOPE,
    SECTION,
    STRIDE,
    TAKEN,
    WIDTH,
    contribution,
    draw,
    locate,
    magnitude,
    number,
    of_scope,
    of_tile,
    stored,
)


@triton.jit
def sample(
    values: tl.tensor,
    residual: tl.tensor,
    weight: tl.tensor,
    draws: tl.tensor,
    scopes: tl.tensor,
    sections: tl.tensor,
    spans: tl.tensor,
    keys: tl.tensor,
    FEEDBACK: tl.constexpr,
    STEPS: tl.constexpr,
    RUNS: tl.constexpr,
    RUN: tl.constexpr,
) -> None:
    """Magnitude bits of RUN consecutive elements in each stride of a scope, into `keys`.

    Where in its stride a run lies varies, so that rows as long as the stride show more than one column.
    """
    p = number()
    scope = tl.load(draws + p * 2)
    run = tl.load(draws + p * 2 + 1) // RUN + tl.arange(0, RUNS)[:, None]
    stride = of_scope(scopes, scope, STRIDE)
    pos = run * stride + (run * 17) % (stride // RUN) * RUN + tl.arange(0, RUN)[None, :]
    inside = pos < of_scope(scopes, scope, WIDTH)
    pos = tl.where(inside, pos, 0) + of_scope(scopes, scope, BEGIN)
    at = locate(spans, sections, of_scope(scopes, scope, OWNER), pos, STEPS)
    u = contribution(values, residual, at, 0, inside, weight, FEEDBACK)
    out = keys + of_scope(scopes, scope, SAMPLES) + run * RUN + tl.arange(0, RUN)[None, :]
    real = run * RUN < of_scope(scopes, scope, TAKEN)
    tl.store(out, tl.where(inside, magnitude(u), 0).to(tl.int32, bitcast=True), mask=inside | real)


@triton.jit(do_not_specialize=["shift"])
def histogram(
    values: tl.tensor,
    residual: tl.tensor,
    weight: tl.tensor,
    records: tl.tensor,
    programs: tl.tensor,
    scopes: tl.tensor,
    ends: tl.tensor,
    direct: tl.tensor,
    words: tl.tensor,
    prefixes: tl.tensor,
    bins: tl.tensor,
    shift: tl.tensor,
    DIRECT: tl.constexpr,
    DRAWN: tl.constexpr,
    FEEDBACK: tl.constexpr,
    COLUMN: tl.constexpr,
    TILE: tl.constexpr,
) -> None:
    """Count the keys of a scope that begin with its prefix, by their next eight bits.

    Keys are records [`COLUMN` of the scope + first, `ends`), or if DIRECT those of the tiles of scopes that
    `direct` marks.
    """
    p = number()
    i = tl.arange(0, TILE)
    if DIRECT:
        scope = of_tile(programs, p, SCOPE)
        inside = i < tl.where(tl.load(direct + scope) != 0, of_tile(programs, p, LENGTH), 0)
        if DRAWN:
            key = draw(words, of_tile(programs, p, SECTION), of_tile(programs, p, POS) + i)
        else:
            key = magnitude(stored(values, residual, of_tile(programs, p, AT), i, inside, weight, FEEDBACK))
    else:
        scope = tl.load(programs + p * 2)
        first = tl.load(programs + p * 2 + 1)
        left = tl.load(ends + scope) - first
        inside = i < left
        word = tl.load(records + of_scope(scopes, scope, COLUMN) + first + i, mask=inside, other=0)
        key = word.to(tl.uint32, bitcast=True) if DRAWN else magnitude(word)
    prefix = tl.load(prefixes + scope).to(tl.uint32, bitcast=True)
    by = shift.to(tl.uint32)
    # By eight more in two steps: at 24 a single shift by 32 is undefined.
    alive = inside & ((((key ^ prefix) >> by) >> 8) == 0)
    digit = tl.where(alive, (key >> by) & 255, 0).to(tl.int32)
    j = tl.arange(0, 256)
    found = tl.histogram(digit, 256) - tl.where(j == 0, TILE - tl.sum(alive.to(tl.int32), axis=0), 0)
    tl.atomic_add(bins + scope * 256 + j, found.to(bins.dtype.element_ty), mask=found > 0, sem="relaxed")


@triton.jit(do_not_specialize=["shift"])
def descend(bins: tl.tensor, prefixes: tl.tensor, wanted: tl.tensor, shift: tl.tensor) -> None:
    """Eight more bits of each scope's k-th largest key; `wanted` becomes its rank among those with them."""
    s = number()
    j = tl.arange(0, 256)
    n = tl.load(bins + s * 256 + j).to(tl.int64)
    k = tl.load(wanted + s)
    above = tl.sum(n, axis=0) - tl.cumsum(n, axis=0)
    here = (above < k) & (above + n >= k)
    digit = tl.sum(tl.where(here, j, 0), axis=0).to(tl.int32)
    tl.store(prefixes + s, tl.load(prefixes + s) | (digit << shift))
    tl.store(wanted + s, k - tl.sum(tl.where(here, above, 0), axis=0))
    tl.store(bins + s * 256 + j, tl.zeros([256], bins.dtype.element_ty))
