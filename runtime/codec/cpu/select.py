"""Exact top-k: of many small scopes one by one, of a large one by ranges."""

from typing import Any

import numpy as np

from runtime.codec.cpu.add import BLOCK, MAGNITUDE, add, add_few, single
from runtime.codec.cpu.kernel import kernel
from runtime.codec.cpu.lowlevel import (
    LANES,
    LINE,
    add_lanes,
    borrowed,
    look_ahead,
    look_ahead_four,
    past_line,
    raise_lanes,
    reach,
    take_hits,
    trailing_zeros,
)
from runtime.codec.cpu.rank import (
    GROUP,
    MANY,
    equal_to,
    keep_largest,
    keep_of_few,
    lower_bound,
    padded,
    reach_few,
)

_LEAST_LANES = 64
_LANES_PER_KEPT = 2
_SLACK = 8
_ROW = np.uint64(6)  # of LANES elements
_SAME = np.float32(1)
_AHEAD = 1 << 15
SAMPLED = 8192
_SAMPLES_AHEAD = 16
_REGION = 4096
_UNDER_WAY = 4  # lines of each fourth


@kernel
def lanes_for(numel: int, keep: int) -> int:
    """Strided groups whose maxima bound the threshold from below; 0 where they would save nothing."""
    lanes = _LEAST_LANES
    while lanes < _LANES_PER_KEPT * keep:
        lanes *= 2
    return lanes if lanes <= numel // 4 else 0


@kernel
def select_scopes(
    values: Any,
    kind: int,
    weight: Any,
    residual: Any,
    has_residual: bool,
    decay: Any,
    starts: Any,
    sizes: Any,
    keeps: Any,
    bases: Any,
    outs: Any,
    found_out: Any,
    words_out: Any,
) -> Any:
    """u into `residual`, times `decay`, and the largest of each scope out.

    Args:
        values, residual: the fragment's.
        kind, weight, has_residual: as `add` takes them.
        starts, sizes, keeps: int64 [scopes]: first element, elements, and how many are kept.
        bases: int64 [scopes]: the position that the first element has in its section.
        outs: int64 [scopes]: where in the outputs a scope's k begin.
        found_out, words_out: positions and the bits of u.

    Returns:
        (scopes finished, elements of the next one written): all, unless an element is not finite.
    """
    most = 0
    for scope in range(len(starts)):
        most = max(most, sizes[scope])
    return _select_scopes(
        values, kind, weight, residual, has_residual, decay, starts, sizes, keeps, bases, outs,
        found_out, words_out, np.empty(BLOCK, np.float32), _aligned(most // 4 + _LEAST_LANES),
        np.empty(padded(most), found_out.dtype), _aligned(padded(most) + LANES),
    )  # fmt: skip


@kernel
def _select_scopes(
    values: Any, kind: int, weight: Any, residual: Any, has_residual: bool, decay: Any,
    starts: Any, sizes: Any, keeps: Any, bases: Any, outs: Any, found_out: Any, words_out: Any,
    room: Any, top: Any, found: Any, words: Any,
) -> Any:  # fmt: skip
    values, residual, room, top = borrowed(values), borrowed(residual), borrowed(room), borrowed(top)
    starts, sizes, keeps = borrowed(starts), borrowed(sizes), borrowed(keeps)
    bases, outs, found, words = borrowed(bases), borrowed(outs), borrowed(found), borrowed(words)
    found_out, words_out = borrowed(found_out), borrowed(words_out)
    bits = residual.view(np.uint32)
    for scope in range(len(starts)):
        start, size, keep, out = starts[scope], sizes[scope], keeps[scope], outs[scope]
        ahead = size <= _AHEAD
        lanes = lanes_for(size, keep)
        top[:lanes] = 0
        for at in range(0, size, BLOCK):
            n = min(BLOCK, size - at)
            given, begin = single(values, start + at, n, kind, room)
            done = _add_and_raise(
                given, begin, weight, residual, start + at, n, has_residual, top, lanes, at,
                values, size if ahead else 0,
            )  # fmt: skip
            if done < n:
                return scope, at + done
        if ahead:
            _ask(residual, start + size, _quarter(size))
        least = lower_bound(top, lanes, keep, keep // _SLACK) if lanes else np.uint32(0)
        # Of those that equal a lower bound no more can be kept than are to be kept.
        n = _gather_scope(bits, start, size, least, keep, bases[scope], found, words, residual)
        if ahead:
            _ask(values, start + 2 * size, _quarter(size))
        if n <= LANES and least > 0:
            keep_of_few(found, words, n, keep, least, found_out, words_out, out)
        else:
            end = out + keep
            keep_largest(found, words, n, MAGNITUDE, keep, found_out[out:end], words_out[out:end])
        if decay != _SAME:
            for i in range(np.uint64(start), np.uint64(start + size)):
                residual[i] = residual[i] * decay
    return len(starts), 0


@kernel
def _aligned(n: int) -> Any:
    """Room for n uint32, which begins with a cache line."""
    room = np.empty(n + LINE, np.uint32)
    begin = -past_line(room, 0) % (4 * LINE) // 4
    return room[begin : begin + n]


@kernel
def _quarter(size: int) -> int:
    """Elements from one fourth of a scope to the next, which begins with a line if the scope does.

    Memory is asked for a line of each at a time: page after page takes longer, probably as a processor's
    own look ahead ends with a page, and the search for a page's place holds up what is behind it.
    """
    return (size // 4 + LINE - 1) // LINE * LINE


@kernel
def _ask(array: Any, at: int, step: int) -> None:
    """Ask memory for as much as may be under way at a time, before work that needs none."""
    for line in range(at, at + _UNDER_WAY * LINE, LINE):
        look_ahead_four(array, line, step)


@kernel
def _lane(at: Any, lanes: int, rows: Any) -> Any:
    """Where 64 elements from `at` on begin among the lanes: each row of lanes begins 64 later than the last.

    In a weight's gradient the large elements stand in columns, which would else fall into few lanes.
    `lanes` is 2^`rows`: a division would take as long as the sum does.
    """
    place = np.uint64(at)
    return np.int64((place + ((place >> rows) << _ROW)) & np.uint64(lanes - 1))


@kernel
def _add_and_raise(
    values: Any,
    begin: int,
    weight: Any,
    residual: Any,
    start: int,
    n: int,
    adds: bool,
    top: Any,
    lanes: int,
    at: int,
    source: Any,
    ahead: int,
) -> int:
    """u of n elements into `residual`; top[l] <- the largest magnitude at positions l modulo `lanes`, if any.

    `begin`, `start`: their places in the arrays; `at`: that in the scope. Memory is asked for the next
    scope's part of `source`, the fragment's values, if `ahead`, a scope's size, is not 0.

    Returns:
        How many were written.
    """
    bits = residual.view(np.uint32)
    whole = n // LANES * LANES
    rows = trailing_zeros(np.uint64(lanes))
    step = _quarter(ahead)
    next_ = start - at + ahead
    for i in range(0, whole, LANES):
        if ahead > 0:
            look_ahead_four(source, next_ + (at + i) // 4, step)
        if not add_lanes(values, begin + i, weight, residual, start + i, adds):
            return i
        if lanes > 0:
            raise_lanes(top, _lane(at + i, lanes, rows), bits, start + i, MAGNITUDE)
    if not add_few(values, begin + whole, weight, residual, start + whole, n - whole, adds):
        return whole
    if lanes > 0:
        first = _lane(at + whole, lanes, rows)
        for i in range(n - whole):
            top[first + i] = max(top[first + i], np.uint32(bits[start + whole + i] & MAGNITUDE))
    return n


@kernel
def _gather_scope(
    bits: Any,
    start: int,
    size: int,
    least: Any,
    tie_cap: int,
    base: int,
    found: Any,
    words: Any,
    residual: Any,
) -> int:
    """`rank.gather_reaching` of one scope; meanwhile memory is asked for the residual behind it."""
    ahead = size <= _AHEAD
    bound = least
    ties = to = 0
    whole = start + size // LANES * LANES
    shift = base - start
    step = _quarter(size)
    for begin in range(start, whole, GROUP):
        before = to
        for at in range(begin, min(whole, begin + GROUP), LANES):
            if ahead:
                look_ahead_four(residual, start + size + (at - start) // 4, step)
            to = take_hits(reach(bits, at, MAGNITUDE, bound), bits, at, at + shift, found, words, to)
        if to - before > MANY:
            ties += equal_to(words, before, to, MAGNITUDE, least)
            if ties >= tie_cap:
                bound = np.uint32(least + np.uint32(1))
    rest = start + size - whole
    return take_hits(
        reach_few(bits, whole, rest, MAGNITUDE, bound), bits, whole, whole + shift, found, words, to
    )


@kernel
def sample(
    values: Any, kind: int, weight: Any, residual: Any, has_residual: bool, first: int, out: Any
) -> int:
    """Magnitudes of u at 16 neighbours in every 8,192 elements, at a place that changes; how many.

    Args:
        values, residual: a range of a section.
        kind, weight, has_residual: as `add` takes them.
        first: which 8,192 of the section the range begins with.
        out: uint32, long enough.
    """
    u = np.empty(BLOCK, np.float32)
    bits = u.view(np.uint32)
    n = 0
    count = (len(values) + SAMPLED - LINE) // SAMPLED
    for i in range(-_SAMPLES_AHEAD, count):
        if i + _SAMPLES_AHEAD < count:
            begin = _sampled_at(i + _SAMPLES_AHEAD, first, len(values))
            look_ahead(values, begin)
            look_ahead(residual, begin)
        if i >= 0:
            begin = _sampled_at(i, first, len(values))
            add(values[begin : begin + LINE], kind, weight, residual[begin : begin + LINE], has_residual, u)
            for j in range(LINE):
                out[n] = bits[j] & MAGNITUDE
                n += 1
    return n


@kernel
def _sampled_at(i: int, first: int, numel: int) -> int:
    """Where the 16 neighbours of a range's 8,192 number `i` begin."""
    lines = min(SAMPLED, numel - i * SAMPLED) // LINE
    mixed = ((first + i) * 0x9E3779B1) & 0xFFFFFFFF
    return i * SAMPLED + (mixed >> 16) % lines * LINE


@kernel
def collect(
    values: Any,
    kind: int,
    weight: Any,
    residual: Any,
    has_residual: bool,
    written: bool,
    least: Any,
    tie_cap: int,
    base: int,
    found: Any,
    words: Any,
) -> Any:
    """u into `residual`, and the candidates of a range that reach a threshold out.

    Args:
        values, residual: a range of a section.
        kind, weight, has_residual: as `add` takes them.
        written: `residual` holds u already.
        least: candidates are above it, or among the first that equal it, at least `tie_cap` of them.
        base: the position that the range's first element has in its section.
        found, words: positions and the bits of u.

    Returns:
        (candidates, those seen that equal `least`, elements written): all, unless an element is not finite
        or there is room for less than BLOCK more.
    """
    wide = np.empty(BLOCK, np.float32)
    bits = residual.view(np.uint32)
    n = len(residual)
    to = ties = 0
    bound = least if tie_cap > 0 else np.uint32(least + np.uint32(1))
    for at in range(0, n, BLOCK):
        if len(found) - to < BLOCK:
            return to, ties, at
        size = min(BLOCK, n - at)
        given, begin = (wide, 0) if written else single(values, at, size, kind, wide)
        whole = size // LANES * LANES
        before = to
        for i in range(0, whole, LANES):
            # As `_quarter` says; regions of four pages.
            place = at + i
            soon = (place // _REGION + 1) * _REGION + place % _REGION // 4
            if not written:
                look_ahead_four(values, soon, _REGION // 4)
            look_ahead_four(residual, soon, _REGION // 4)
            if not written and not add_lanes(given, begin + i, weight, residual, at + i, has_residual):
                return to, ties, at + i
            hits = reach(bits, at + i, MAGNITUDE, bound)
            to = take_hits(hits, bits, at + i, base + at + i, found, words, to)
        rest = at + whole
        if not written and not add_few(
            given, begin + whole, weight, residual, rest, size - whole, has_residual
        ):
            return to, ties, rest
        hits = reach_few(bits, rest, size - whole, MAGNITUDE, bound)
        to = take_hits(hits, bits, rest, base + rest, found, words, to)
        if to - before > MANY:
            ties += equal_to(words, before, to, MAGNITUDE, least)
            if ties >= tie_cap:
                bound = np.uint32(least + np.uint32(1))
    return to, ties, n
