"""Kernels of the Elias-Fano code of ascending positions (docs/wire.md)."""

from typing import Any

import numpy as np

from runtime.codec.cpu.kernel import kernel
from runtime.codec.cpu.lowlevel import load_word, ones, store_half, trailing_zeros

_ONE = np.uint64(1)
_HALF = np.uint64(0xFFFFFFFF)


@kernel
def write_low(found: Any, low: int, begin: int, out: Any) -> None:
    """Pack the low bits of positions number `begin` (a multiple of 8) and on."""
    if low == 0:
        return
    mask = (_ONE << np.uint64(low)) - _ONE
    held = np.uint64(0)
    bits = 0
    at = begin * low // 8
    for i in range(len(found)):
        rest, more = np.uint64(found[i]) & mask, low
        if low > 32:
            store_half(out, at, held | (rest & _HALF) << np.uint64(bits))
            held = (held | (rest & _HALF) << np.uint64(bits)) >> np.uint64(32)
            rest >>= np.uint64(32)
            more -= 32
            at += 4
        held |= rest << np.uint64(bits)
        bits += more
        if bits >= 32:
            store_half(out, at, held)
            held >>= np.uint64(32)
            bits -= 32
            at += 4
    while bits > 0:
        out[at] = held & np.uint64(0xFF)
        held >>= np.uint64(8)
        bits -= 8
        at += 1


@kernel
def write_high(found: Any, low: int, begin: int, first: int, out: Any, begun: Any) -> None:
    """Mark bit (p_i >> low) + i for every position p_i.

    Args:
        found, low: positions, and how many bits of each are packed elsewhere.
        begin: number of the first of them.
        first: which of the bit vector's bits `out` begins with.
        out: uint8, zeros where no position has been marked.
        begun: uint64 [2]: zeros, or what a call for the positions before has left; `end_high` writes it.
    """
    held, word = begun[0], np.int64(begun[1])
    for i in range(len(found)):
        bit = np.int64(np.uint64(found[i]) >> np.uint64(low)) + begin + i - first
        if bit >> 6 != word:
            _store(held, word, out)
            held = np.uint64(0)
            word = bit >> 6
        held |= _ONE << np.uint64(bit & 63)
    begun[0], begun[1] = held, word


@kernel
def end_high(begun: Any, out: Any) -> None:
    """Write what `write_high` has left."""
    _store(begun[0], np.int64(begun[1]), out)


@kernel
def write_all_high(found: Any, low: int, out: Any) -> None:
    """`write_high` of all positions of a section."""
    out[:] = 0
    begun = np.zeros(2, np.uint64)
    write_high(found, low, 0, 0, out, begun)
    end_high(begun, out)


@kernel
def _store(held: Any, word: Any, out: Any) -> None:
    if 8 * word + 8 <= len(out):
        store_half(out, 8 * word, held)
        store_half(out, 8 * word + 4, held >> np.uint64(32))
        return
    for i in range(8 * word, len(out)):
        out[i] = held & np.uint64(0xFF)
        held >>= np.uint64(8)


@kernel
def word_at(data: Any, at: int) -> Any:
    """Eight bytes from a place on, zeros after the end."""
    if at + 8 <= len(data):
        return load_word(data, at)
    word = np.uint64(0)
    for i in range(at, len(data)):
        word |= np.uint64(data[i]) << np.uint64(8 * (i - at))
    return word


@kernel
def count_ones(high: Any, first: int, last: int) -> Any:
    """Ones in the 64-bit words `first` to `last` of a bit vector."""
    count = np.int64(0)
    # Whole words apart: several are then counted at a time.
    whole = min(last, len(high) // 8)
    for word in range(first, whole):
        count += np.int64(ones(load_word(high, 8 * word)))
    for word in range(max(first, whole), last):
        count += np.int64(ones(word_at(high, 8 * word)))
    return count


@kernel
def read_positions(
    lower: Any, high: Any, low: int, first: int, last: int, begin: int, end: int, numel: int, out: Any
) -> bool:
    """Positions number `begin` to `end`, whose marks lie in the words `first` to `last`; whether all is well.

    Args:
        lower, high: uint8: the packed low bits, and the bit vector, in which so many marks lie there.
        low: bits of each position that are packed.
        numel: what positions must be below.
        out: all of the section's positions.
    """
    if _read_marks(high, first, last, begin, out[begin:end]) != end - begin:
        return False
    _read_low(lower, low, begin, out[begin:end])
    part = out[begin:end]
    bad = 0
    for j in range(1, len(part)):
        bad |= part[j] <= part[j - 1]
    return bad == 0 and (len(part) == 0 or part[-1] < numel)


@kernel
def _read_marks(high: Any, first: int, last: int, begin: int, out: Any) -> Any:
    """out <- bit - number of each mark in words `first` to `last`, the first number `begin`; how many.

    It is -1 if there is no room for them.
    """
    # Unsigned indices cannot be negative, which saves a check at each access.
    i = np.uint64(0)
    room = len(out)
    for word in range(first, last):
        held = word_at(high, 8 * word)
        base = np.uint64(64 * word - begin)
        count = np.int64(ones(held))
        if np.int64(i) + count > room:
            return np.int64(-1)
        # Four at a time take fewer jumps; what is written too much is written again, but where room ends.
        whole = count // 4 * 4 if np.int64(i) + count + 3 >= room else count
        for _ in range(0, whole, 4):
            for j in range(np.uint64(4)):
                out[i + j] = base + trailing_zeros(held) - (i + j)
                held &= held - _ONE
            i += np.uint64(4)
        i -= np.uint64(-whole % 4)
        for _ in range(whole, count):
            out[i] = base + trailing_zeros(held) - i
            held &= held - _ONE
            i += _ONE
    return np.int64(i)


@kernel
def _read_low(lower: Any, low: int, begin: int, out: Any) -> None:
    """out <- out << low | low bits number `begin` and on."""
    if low == 0:
        return
    mask = (_ONE << np.uint64(low)) - _ONE
    shift = np.uint64(low)
    n = len(out)
    done = 0
    if low <= 7:
        # Eight values take `low` bytes, so all eights begin at the same bit, and a word holds them.
        at, bit = begin * low >> 3, np.uint64(begin * low & 7)
        eights = min(n // 8, max(0, len(lower) - 8 - at) // low)
        for eight in range(eights):
            held = load_word(lower, at + eight * low) >> bit
            first = np.uint64(8 * eight)
            for j in range(np.uint64(8)):
                out[first + j] = (np.uint64(out[first + j]) << shift) | ((held >> (j * shift)) & mask)
        done = 8 * eights
    for i in range(done, n):
        position = (begin + i) * low
        held = word_at(lower, position >> 3) >> np.uint64(position & 7)
        out[i] = (np.uint64(out[i]) << shift) | (held & mask)


@kernel
def well_placed(found: Any, begin: int, end: int, block: int, keep: int, numel: int) -> bool:
    """Whether each block that positions number `begin` to `end` lie in holds as many as it keeps."""
    if block > 0:
        whole = numel // block
        for b in range(begin // keep, min(whole, -(-end // keep))):
            if found[b * keep] // block != b or found[b * keep + keep - 1] // block != b:
                return False
        rest = whole * keep
        return not begin <= rest < end or found[rest] // block == whole
    return True
