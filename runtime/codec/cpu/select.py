"""Exact top-k and random-k: of many small scopes one by one, of a large one by ranges."""

from typing import Any

import numpy as np
from numba import njit

from runtime.codec.cpu.add import BLOCK, MAGNITUDE, add, add_into, single
from runtime.codec.cpu.lowlevel import LANES, add_lanes, raise_lanes, reach, trailing_zeros
from runtime.codec.cpu.rank import ALL_BITS, gather_reaching, keep_largest, padded, threshold_of

_LEAST_LANES = 64
_LANES_PER_KEPT = 4
_ONE = np.uint64(1)
LINE = 16
SAMPLED = 8192


@njit(cache=True, nogil=True)
def lanes_for(numel: int, keep: int) -> int:
    """Strided groups whose maxima bound the threshold from below; 0 where they would save nothing."""
    lanes = _LEAST_LANES
    while lanes < _LANES_PER_KEPT * keep:
        lanes *= 2
    return lanes if lanes <= numel // 4 else 0


@njit(cache=True, nogil=True)
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
    for scope in range(len(starts)):
        size, keep, out = sizes[scope], keeps[scope], outs[scope]
        part = residual[starts[scope] : starts[scope] + size]
        given = values[starts[scope] : starts[scope] + size]
        lanes = lanes_for(size, keep)
        top[:lanes] = 0
        bits = part.view(np.uint32)
        for at in range(0, size, BLOCK):
            fresh = single(given[at : at + BLOCK], kind, room)
            done = _add_and_raise(fresh, weight, part[at : at + BLOCK], has_residual, top, lanes, at)
            if done < len(fresh):
                return scope, at + done
        least = threshold_of(top, lanes, MAGNITUDE, keep) if lanes else np.uint32(0)
        # Of those that equal a lower bound no more can be kept than are to be kept.
        n = gather_reaching(bits, MAGNITUDE, least, keep, bases[scope], 0, found, words)
        end = out + keep
        keep_largest(found, words, n, MAGNITUDE, keep, found_out[out:end], words_out[out:end])
        if decay != np.float32(1.0):
            for i in range(size):
                part[i] = part[i] * decay
    return len(starts), 0


@njit(cache=True, nogil=True)
def _add_and_raise(values: Any, weight: Any, residual: Any, adds: bool, top: Any, lanes: int, at: int) -> int:
    """residual <- u; top[l] <- the largest magnitude at positions that are l modulo `lanes` (0: none).

    `at` is the first one's position. Returns how many elements were written.
    """
    n = len(residual)
    bits = residual.view(np.uint32)
    whole = n // LANES * LANES
    for begin in range(0, whole, LANES):
        if add_lanes(values, begin, weight, residual, begin, adds) != 0:
            return begin
        if lanes > 0:
            raise_lanes(top, (at + begin) & (lanes - 1), bits, begin, MAGNITUDE)
    if whole < n:
        if not add_into(values[whole:], weight, residual[whole:], adds):
            return whole
        if lanes > 0:
            first = (at + whole) & (lanes - 1)
            for i in range(n - whole):
                top[first + i] = max(top[first + i], np.uint32(bits[whole + i] & MAGNITUDE))
    return n


@njit(cache=True, nogil=True)
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
    for at in range(0, len(values), SAMPLED):
        lines = min(SAMPLED, len(values) - at) // LINE
        if lines == 0:
            break
        mixed = ((first + at // SAMPLED) * 0x9E3779B1) & 0xFFFFFFFF
        begin = at + (mixed >> 16) % lines * LINE
        add(values[begin : begin + LINE], kind, weight, residual[begin : begin + LINE], has_residual, u)
        for j in range(LINE):
            out[n] = bits[j] & MAGNITUDE
            n += 1
    return n


@njit(cache=True, nogil=True)
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
        given = wide if written else single(values[at : at + size], kind, wide)
        whole = size // LANES * LANES
        for begin in range(at, at + whole, LANES):
            if not written and add_lanes(given, begin - at, weight, residual, begin, has_residual) != 0:
                return np.int64(to), ties, begin
            hits = reach(bits, begin, MAGNITUDE, bound)
            while hits != 0:
                j = np.uint64(begin) + trailing_zeros(hits)
                hits &= hits - _ONE
                word = bits[j]
                if word & MAGNITUDE == least:
                    ties += 1
                    if ties == tie_cap:
                        bound = np.uint32(least + np.uint32(1))
                found[to] = np.uint64(base) + j
                words[to] = word
                to += _ONE
        if whole < size:
            rest = residual[at + whole : at + size]
            if not written and not add_into(given[whole:], weight, rest, has_residual):
                return np.int64(to), ties, at + whole
            for i in range(at + whole, at + size):
                if bits[i] & MAGNITUDE >= bound:
                    found[to] = base + i
                    words[to] = bits[i]
                    to += _ONE
    return np.int64(to), ties, n


@njit(cache=True, nogil=True)
def _mix(word: Any) -> Any:
    word = np.uint32(word ^ (word >> np.uint32(16)))
    word = np.uint32(word * np.uint32(0x21F0AAAD))
    word = np.uint32(word ^ (word >> np.uint32(15)))
    word = np.uint32(word * np.uint32(0xD35A2D97))
    return np.uint32(word ^ (word >> np.uint32(15)))


@njit(cache=True, nogil=True)
def counter_bits(first: Any, second: Any, begin: int, out: Any) -> None:
    """Bits of elements begin, begin + 1, ... under a key (`geosim.policy.maths.counter`)."""
    for i in range(len(out)):
        out[i] = _mix(_mix(np.uint32(np.uint32(begin + i) + first)) ^ second)


@njit(cache=True, nogil=True)
def draw_scopes(
    first: Any, second: Any, starts: Any, sizes: Any, keeps: Any, outs: Any, found_out: Any
) -> None:
    """The positions of random-k: those with the largest counter bits in each scope of one section.

    Args:
        first, second: the section's key.
        starts, sizes, keeps, outs: as `select_scopes`, `starts` counted from the section's start.
        found_out: positions.
    """
    most = 0
    for scope in range(len(starts)):
        most = max(most, sizes[scope])
    bits = np.empty(BLOCK, np.uint32)
    found = np.empty(padded(most), found_out.dtype)
    words = np.empty(padded(most), np.uint32)
    for scope in range(len(starts)):
        size, keep = sizes[scope], keeps[scope]
        # So many are expected to reach the threshold; six deviations more than are kept.
        wanted = keep + 6.0 * np.sqrt(keep) + 16.0
        n = 0
        while n < keep:
            share = min(1.0, wanted / size)
            least = np.uint32(0) if share == 1.0 else np.uint32((1.0 - share) * 2.0**32)
            n = 0
            for at in range(0, size, BLOCK):
                part = bits[: min(BLOCK, size - at)]
                counter_bits(first, second, starts[scope] + at, part)
                n = gather_reaching(part, ALL_BITS, least, size + 1, starts[scope] + at, n, found, words)
            wanted *= 2.0
        out = outs[scope]
        end = out + keep
        keep_largest(found, words, n, ALL_BITS, keep, found_out[out:end], words[:keep])
