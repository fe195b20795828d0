"""Kernels that sum the payloads of a round: read, added and written a tile at a time.

A tile of the result stays in the first-level cache while every payload's values are added to it, in the
payloads' order. It leaves past the caches, a share of it after each payload of the next tile: what the
processor has room for of stores under way, so that memory is busy while the processor is. Positions are read
as they are added, values a few at a time; what no encoder writes is found on the way.
"""

from typing import Any

import numpy as np

from runtime.codec.cpu import positions
from runtime.codec.cpu.forms import AS_FP16, RUN
from runtime.codec.cpu.kernel import kernel
from runtime.codec.cpu.lowlevel import (
    LINE,
    borrowed,
    bytes_at,
    fence,
    load_word,
    move_line,
    ones,
    past_line,
    trailing_zeros,
)
from runtime.codec.cpu.read import all_right, read_few

TILE = 4096
INDEXED = 64
SPARE = 8
_WORD = 64
_ROOM = 1024
_ONE, _ALL = np.uint64(1), np.uint64(0xFFFFFFFFFFFFFFFF)


@kernel
def inspect(
    body: Any, form: int, low: int, upper: int, count: int, width: int, places: Any, before: Any
) -> bool:
    """Whether all of a sparse section is one that an encoder writes, but for the order of its positions.

    Args:
        body: uint8, all of it.
        form: an AS_ number.
        low, upper: bits of each position that are packed, and bits of the vector of the rest; 0 without.
        count: values.
        width: of a group.
        places: int64 [5]: where low bits, bit vector, scales and values begin, and where the last end.
        before: int64 [ceil(words / INDEXED) + 1] <- ones before each INDEXED-th word of the bit vector.
    """
    lower, high = body[places[0] : places[1]], body[places[1] : places[2]]
    used = count * low % 8
    if used and lower[-1] >> used:
        return False
    if upper % 8 and high[-1] >> upper % 8:
        return False
    words = (len(high) + 7) // 8
    found = np.int64(0)
    for i in range(len(before) - 1):
        before[i] = found
        found += positions.count_ones(high, INDEXED * i, min(words, INDEXED * (i + 1)))
    before[-1] = found
    if upper and found != count:
        return False
    return all_right(body[places[2] : places[3]], body[places[3] : places[4]], form, width, 0, count)


@kernel
def sum_sparse(
    bodies: Any,
    places: Any,
    low: int,
    form: int,
    width: int,
    block: int,
    keep: int,
    count: int,
    numel: int,
    drawn: Any,
    before: Any,
    begin: int,
    streamed: bool,
    out: Any,
    numbers: Any,
) -> None:
    """out <- the sum of sparse payloads, over a range of one section.

    Args:
        bodies: uint64 [payloads]: addresses of bodies that `inspect` has passed; of each, SPARE bytes can be
            read from where its bit vector ends.
        places, low, form, width, count: as there.
        block, keep: elements of a selection block, and how many each keeps; 0 where there are none.
        numel: of the section.
        drawn: positions, if they do not travel; else None, which is compiled apart.
        before: int64 [payloads, _]: as `inspect` has left it.
        begin: the range's first position.
        streamed: write past the caches.
        out: fp32: the range.
        numbers: int64 [payloads, 2] <- numbers of the first value in the range, and of the first not taken
            any more; the latter is -1 if a block holds a wrong number.
    """
    payloads = len(bodies)
    c = np.empty((payloads, _ROOM), np.float32)
    state, marks = np.zeros((5, payloads), np.int64), np.zeros(payloads, np.uint64)
    levels, scale = np.empty(RUN, np.uint8), np.empty(RUN, np.float32)
    # A line that lies in two takes twice as long to move.
    total = np.zeros(2 * TILE + LINE, np.float32)
    total = total[-past_line(total, 0) % 64 // 4 :]
    _sum_sparse(
        bodies, places, low, form, width, block, keep, count, numel, drawn, before, begin, streamed, out,
        numbers, c, state, marks, levels, scale, total,
    )  # fmt: skip


@kernel
def _sum_sparse(
    bodies: Any, places: Any, low: int, form: int, width: int, block: int, keep: int, count: int, numel: int,
    drawn: Any, before: Any, begin: int, streamed: bool, out: Any, numbers: Any,
    c: Any, state: Any, marks: Any, levels: Any, scale: Any, total: Any,
) -> None:  # fmt: skip
    bodies, places, before = borrowed(bodies), borrowed(places), borrowed(before)
    out, numbers, c, marks = borrowed(out), borrowed(numbers), borrowed(c), borrowed(marks)
    levels, scale, total, state = borrowed(levels), borrowed(scale), borrowed(total), borrowed(state)
    payloads = len(bodies)
    # Of each payload: the word whose marks are left, the number of the next value, numbers of the first value
    # in the room and of the one after the last, and whether a block has held a wrong number.
    word, number, first, last, wrong = state[0], state[1], state[2], state[3], state[4]
    for m in range(payloads):
        if drawn is not None:
            number[m] = np.searchsorted(drawn, begin)
        else:
            data = bytes_at(bodies[m], places[4])
            word[m], marks[m], number[m] = _seek(data, places, low, before[m], begin)
        numbers[m, 0] = first[m] = last[m] = number[m]
    shift, mask = np.uint64(low), (_ONE << np.uint64(low)) - _ONE
    step = TILE if block == 0 or block >= TILE else TILE // block * block
    whole = max(block, step)
    now, then, left = 0, TILE, 0
    head, lines = 0, 0
    done = 0
    while done < len(out):
        size = min(step, len(out) - done)
        if block > 0:
            size = min(size, whole - (begin + done) % whole)
        share = (lines + payloads - 1) // payloads
        # Where the tile before begins in `out` and in `total`, and from a position to its place in this one.
        to, source = done - left + head, then + head
        rebase = np.uint64(now - begin - done)
        for m in range(payloads):
            data, values = bytes_at(bodies[m], places[4]), c[m]
            lower, high = borrowed(data[places[0] :]), borrowed(data[places[1] : places[2]])
            # Unsigned indices cannot be negative, which saves a check at each access.
            w, held, i = word[m], marks[m], np.uint64(number[m])
            limit, tile_end = begin + done, begin + done + size
            while limit < tile_end:
                past = np.int64(limit - 1)
                limit = tile_end if block == 0 else min(tile_end, limit + block - limit % block)
                while True:
                    if np.int64(i) + _WORD > last[m] and last[m] < count:
                        # A word's values are all there, so that none has to be looked for.
                        first[m] = np.int64(i) // 8 * 8
                        last[m] = min(count, first[m] + _ROOM)
                        _read(data, places, form, width, first[m], last[m], values, levels, scale)
                    skipped, end = np.uint64(first[m]), np.uint64(last[m])
                    # Two tests for what is below, out of order or beyond.
                    if drawn is not None:
                        while i < end:
                            position = np.int64(drawn[i])
                            if position <= past or position >= limit:
                                break
                            total[np.uint64(position) + rebase] += values[i - skipped]
                            past = position
                            i += _ONE
                        if i < end or last[m] == count:
                            break
                    else:
                        upper = np.uint64(_WORD * w)
                        while held != 0:
                            at = i * shift
                            rest = load_word(lower, np.int64(at >> np.uint64(3))) >> (at & np.uint64(7))
                            position = np.int64(((upper + trailing_zeros(held) - i) << shift) | (rest & mask))
                            if position <= past or position >= limit:
                                break
                            total[np.uint64(position) + rebase] += values[i - skipped]
                            past = position
                            held &= held - _ONE
                            i += _ONE
                        if held != 0 or 8 * (w + 1) >= len(high):
                            break
                        w += 1
                        held = _marks(high, w)
                if block > 0 and (limit % block == 0 or limit == numel):
                    wrong[m] |= np.int64(i) != min(count, (limit + block - 1) // block * keep)
            word[m], marks[m], number[m] = w, held, np.int64(i)
            for line in range(share * m, min(lines, share * (m + 1))):
                move_line(out, to + line * LINE, total, source + line * LINE)
        _move_edges(total, then, out, done - left, left, head, lines)
        now, then, left = then, now, size
        head, lines = _lines(out, done, size, streamed)
        done += size
    _move(total, then, out, done - left, left, streamed)
    for m in range(payloads):
        numbers[m, 1] = -1 if wrong[m] else number[m]
    if streamed:
        fence()


@kernel
def sum_dense(
    bodies: Any,
    places: Any,
    form: int,
    width: int,
    begin: int,
    end: int,
    streamed: bool,
    out: Any,
    right: Any,
) -> None:
    """out <- the sum of values number `begin` (a multiple of 8) to `end` of dense payloads.

    Args:
        bodies, places, form, width, streamed: as `sum_sparse`.
        out: fp32 [end - begin].
        right: uint8 [payloads] <- 0 where there are values or scales that no encoder writes.
    """
    levels, scale = np.empty(RUN, np.uint8), np.empty(RUN, np.float32)
    c = np.empty(TILE, np.float32)
    total = np.zeros(TILE, np.float32)
    # Whole groups and bytes, if so many fit.
    each = 8 * width if form > AS_FP16 and 8 * width <= TILE else 8
    step = TILE // each * each
    for low in range(begin, end, step):
        high = min(end, low + step)
        n = high - low
        for m in range(len(bodies)):
            data = bytes_at(bodies[m], places[4])
            scales, values = data[places[2] : places[3]], data[places[3] :]
            if not all_right(scales, values, form, width, low, high):
                right[m] = 0
            read_few(scales, values, form, width, low, high, c, levels, scale)
            for i in range(n):
                total[i] += c[i]
        _move(total, 0, out, low - begin, n, streamed)
    if streamed:
        fence()


@kernel
def _seek(data: Any, places: Any, low: int, before: Any, begin: int) -> Any:
    """The first position from `begin` on: its word, the marks of that from it on, and its number."""
    high = data[places[1] : places[2]]
    zeros = begin >> low
    word, number = _word_before(before, zeros)
    held = _marks(high, word)
    while 8 * (word + 1) < len(high):
        inside = np.int64(ones(held))
        if _WORD * (word + 1) - number - inside >= zeros:
            break
        word, number = word + 1, number + inside
        held = _marks(high, word)
    while True:
        while held == 0 and 8 * (word + 1) < len(high):
            word += 1
            held = _marks(high, word)
        upper = np.int64(trailing_zeros(held)) + _WORD * word - number
        at = number * low
        rest = np.int64(load_word(data, places[0] + (at >> 3)) >> np.uint64(at & 7)) & ((1 << low) - 1)
        if held == 0 or (upper << low) + rest >= begin:
            return word, held, number
        held &= held - _ONE
        number += 1


@kernel
def _read(
    data: Any, places: Any, form: int, width: int, begin: int, end: int, c: Any, levels: Any, scale: Any
) -> None:
    read_few(data[places[2] : places[3]], data[places[3] :], form, width, begin, end, c, levels, scale)


@kernel
def _marks(high: Any, word: Any) -> Any:
    """A word of a bit vector, and zeros after its end."""
    lacking = 8 * (word + 1) - len(high)
    return load_word(high, 8 * word) & (_ALL >> np.uint64(8 * max(0, lacking)))


@kernel
def _word_before(before: Any, zeros: int) -> Any:
    """The last indexed word with fewer zeros before it than so many, or the first; and the ones before it."""
    low, high = 0, len(before) - 2
    while low < high:
        middle = (low + high + 1) // 2
        if _WORD * INDEXED * middle - before[middle] < zeros:
            low = middle
        else:
            high = middle - 1
    return low * INDEXED, before[low]


@kernel
def _lines(out: Any, at: int, n: int, streamed: bool) -> Any:
    """Of n values from out[at] on: how many precede the first cache line, and whole lines, if streamed."""
    if not streamed:
        return n, 0
    head = min(n, (-past_line(out, at) % 64) // 4)
    return head, (n - head) // LINE


@kernel
def _move_edges(total: Any, source: int, out: Any, to: int, n: int, head: int, lines: int) -> None:
    """Move what is outside of whole lines, and leave zeros."""
    for i in range(head):
        out[to + i] = total[source + i]
        total[source + i] = 0.0
    for i in range(head + lines * LINE, n):
        out[to + i] = total[source + i]
        total[source + i] = 0.0


@kernel
def _move(total: Any, source: int, out: Any, to: int, n: int, streamed: bool) -> None:
    """Move n values, and leave zeros."""
    head, lines = _lines(out, to, n, streamed)
    for i in range(head, head + lines * LINE, LINE):
        move_line(out, to + i, total, source + i)
    _move_edges(total, source, out, to, n, head, lines)
