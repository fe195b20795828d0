"""Exact top-k: of many small scopes one by one, of a large one by ranges."""

from typing import Any

import numpy as np

from runtime.codec.cpu.add import BLOCK, MAGNITUDE, add, add_few, single
from runtime.codec.cpu.kernel import kernel
from runtime.codec.cpu.lowlevel import LANES, add_lanes, look_ahead, raise_lanes, reach, trailing_zeros
from runtime.codec.cpu.rank import keep_largest, lower_bound, padded

_LEAST_LANES = 64
_LANES_PER_KEPT = 2
_SLACK = 8
_ONE = np.uint64(1)
_ROW = np.uint64(6)  # of LANES elements
_SAME = np.float32(1)
_AHEAD = 1 << 15
LINE = 16
SAMPLED = 8192
_SAMPLES_AHEAD = 16


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
    room = np.empty(BLOCK, np.float32)
    top = np.empty(most // 4 + _LEAST_LANES, np.uint32)
    found = np.empty(padded(most), found_out.dtype)
    words = np.empty(padded(most), np.uint32)
    bits = residual.view(np.uint32)
    for scope in range(len(starts)):
        start, size, keep, out = starts[scope], sizes[scope], keeps[scope], outs[scope]
        lanes = lanes_for(size, keep)
        top[:lanes] = 0
        for at in range(0, size, BLOCK):
            n = min(BLOCK, size - at)
            given, begin = single(values, start + at, n, kind, room)
            done = _add_and_raise(
                given, begin, weight, residual, start + at, n, has_residual, top, lanes, at,
                values, size if size <= _AHEAD else 0,
            )  # fmt: skip
            if done < n:
                return scope, at + done
        least = lower_bound(top, lanes, MAGNITUDE, keep, keep // _SLACK) if lanes else np.uint32(0)
        # Of those that equal a lower bound no more can be kept than are to be kept.
        n = _gather_scope(bits, start, size, least, keep, bases[scope], found, words, residual)
        end = out + keep
        keep_largest(found, words, n, MAGNITUDE, keep, found_out[out:end], words_out[out:end])
        if decay != _SAME:
            for i in range(np.uint64(start), np.uint64(start + size)):
                residual[i] = residual[i] * decay
    return len(starts), 0


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

    `begin`, `start`: their places in the arrays; `at`: that in the scope. Memory is asked for what in
    `source`, the fragment's values, is `ahead`, if that is not 0. Returns how many were written.
    """
    bits = residual.view(np.uint32)
    whole = n // LANES * LANES
    rows = trailing_zeros(np.uint64(lanes))
    for i in range(0, whole, LANES):
        if ahead > 0:
            for line in range(ahead, ahead + LANES, LINE):
                look_ahead(source, start + i + line)
        if add_lanes(values, begin + i, weight, residual, start + i, adds) != 0:
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
) -> Any:
    """`gather_reaching` of one scope; meanwhile memory is asked for the residual behind it.

    The loop stands in three kernels: called for every 64 elements it is slower.
    """
    ahead = size <= _AHEAD
    bound = least
    ties = 0
    to = np.uint64(0)
    whole = start + size // LANES * LANES
    for at in range(start, whole, LANES):
        if ahead:
            for line in range(size, size + LANES, LINE):
                look_ahead(residual, at + line)
        hits = reach(bits, at, MAGNITUDE, bound)
        while hits != 0:
            j = np.uint64(at) + trailing_zeros(hits)
            hits &= hits - _ONE
            word = bits[j]
            if word & MAGNITUDE == least:
                ties += 1
                if ties == tie_cap:
                    bound = np.uint32(least + np.uint32(1))
            found[to] = np.uint64(base - start) + j
            words[to] = word
            to += _ONE
    for i in range(whole, start + size):
        if bits[i] & MAGNITUDE >= bound:
            found[to] = base - start + i
            words[to] = bits[i]
            to += _ONE
    return np.int64(to)


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
        found, words: positions and the bits of u; there is room for all.

    Returns:
        (candidates, those that equal `least`, elements written): not all, unless an element is not finite.
    """
    wide = np.empty(BLOCK, np.float32)
    bits = residual.view(np.uint32)
    n = len(residual)
    to = np.uint64(0)
    ties = 0
    bound = least if tie_cap > 0 else np.uint32(least + np.uint32(1))
    for at in range(0, n, BLOCK):
        size = min(BLOCK, n - at)
        given, begin = (wide, 0) if written else single(values, at, size, kind, wide)
        whole = size // LANES * LANES
        for i in range(0, whole, LANES):
            if not written and add_lanes(given, begin + i, weight, residual, at + i, has_residual) != 0:
                return np.int64(to), ties, at + i
            hits = reach(bits, at + i, MAGNITUDE, bound)
            while hits != 0:
                j = np.uint64(at + i) + trailing_zeros(hits)
                hits &= hits - _ONE
                word = bits[j]
                if word & MAGNITUDE == least:
                    ties += 1
                    if ties == tie_cap:
                        bound = np.uint32(least + np.uint32(1))
                found[to] = np.uint64(base) + j
                words[to] = word
                to += _ONE
        rest = at + whole
        if not written and not add_few(
            given, begin + whole, weight, residual, rest, size - whole, has_residual
        ):
            return np.int64(to), ties, rest
        for j in range(rest, at + size):
            if bits[j] & MAGNITUDE >= bound:
                found[to] = base + j
                words[to] = bits[j]
                to += _ONE
    return np.int64(to), ties, n
