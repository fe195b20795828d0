"""Kernels that sum the payloads of a round: read, added and written a tile at a time.

A tile of the result stays in the first-level cache while every payload's values are added to it, in the
payloads' order. It leaves past the caches, a share of it after each payload of the next tile, so that memory
is busy while the processor is. Positions and values are read as they are needed; what no encoder writes is
found on the way.
"""

from typing import Any

import numpy as np

from runtime.codec.cpu import positions
from runtime.codec.cpu.forms import AS_FP16, RUN
from runtime.codec.cpu.kernel import kernel
from runtime.codec.cpu.lowlevel import borrowed, bytes_at, fence, move_line, ones, past_line
from runtime.codec.cpu.read import all_right, read_few

TILE = 4096
INDEXED = 64
_LINE = 16
_WORDS = 32
_ROOM = 64 * _WORDS


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
    for word in range(words):
        if word % INDEXED == 0:
            before[word // INDEXED] = found
        found += np.int64(ones(positions.word_at(high, 8 * word)))
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
        bodies: uint64 [payloads]: addresses of bodies that `inspect` has passed.
        places, low, form, width, count: as there.
        block, keep: elements of a selection block, and how many each keeps; 0 where there are none.
        numel: of the section.
        drawn: positions, if they do not travel; else empty, of the type that holds any position.
        before: int64 [payloads, _]: as `inspect` has left it.
        begin: the range's first position.
        streamed: write past the caches.
        out: fp32: the range.
        numbers: int64 [payloads, 2] <- numbers of the first value in the range, and of the first not taken
            any more; the latter is -1 if a block holds a wrong number.
    """
    payloads = len(bodies)
    found = np.empty((payloads, _ROOM), drawn.dtype)
    c = np.empty((payloads, _ROOM), np.float32)
    state = np.zeros((5, payloads), np.int64)
    levels, scale = np.empty(RUN, np.uint8), np.empty(RUN, np.float32)
    total = np.zeros(2 * TILE, np.float32)
    _sum_sparse(
        bodies, places, low, form, width, block, keep, count, numel, drawn, before, begin, streamed, out,
        numbers, found, c, state, levels, scale, total,
    )  # fmt: skip


@kernel
def _sum_sparse(
    bodies: Any, places: Any, low: int, form: int, width: int, block: int, keep: int, count: int, numel: int,
    drawn: Any, before: Any, begin: int, streamed: bool, out: Any, numbers: Any,
    found: Any, c: Any, state: Any, levels: Any, scale: Any, total: Any,
) -> None:  # fmt: skip
    bodies, places, drawn, before = borrowed(bodies), borrowed(places), borrowed(drawn), borrowed(before)
    out, numbers, found, c = borrowed(out), borrowed(numbers), borrowed(found), borrowed(c)
    levels, scale, total, state = borrowed(levels), borrowed(scale), borrowed(total), borrowed(state)
    payloads = len(bodies)
    # Of each payload: the word to be read next, the number of the first value in the room, values there,
    # which of them is next, and whether a block has held a wrong number.
    word, first, held, at, wrong = state[0], state[1], state[2], state[3], state[4]
    for m in range(payloads):
        if len(drawn):
            word[m], first[m] = 0, np.searchsorted(drawn, begin)
        else:
            word[m], first[m] = _word_before(before[m], begin >> low)
        while True:
            i, n = at[m], held[m]
            while i < n and found[m, i] < begin:
                i += 1
            at[m] = i
            if i < n:
                break
            at[m] = 0
            if not _refill(
                m, bodies[m], places, low, form, width, count, drawn, word, first, held,
                found, c, levels, scale,
            ):  # fmt: skip
                break
        numbers[m, 0] = first[m] + at[m]
    step = TILE if block == 0 or block >= TILE else TILE // block * block
    whole = max(block, step)
    now, then, left = np.uint64(0), np.uint64(TILE), 0
    head, lines, line = 0, 0, 0
    done = 0
    while done < len(out):
        size = min(step, len(out) - done)
        if block > 0:
            size = min(size, whole - (begin + done) % whole)
        base = np.uint64(begin + done)
        share = (lines + payloads - 1) // payloads
        # Where the tile before begins in `out` and in `total`.
        to, source = done - left + head, np.int64(then) + head
        for m in range(payloads):
            spots, values = found[m], c[m]
            stop = min(lines, share * (m + 1))
            i, n = np.uint64(at[m]), np.uint64(held[m])
            low_end = 0
            while low_end < size:
                floor = np.uint64(low_end)
                limit = size if block == 0 else min(size, low_end + block - (begin + done + low_end) % block)
                beyond = np.uint64(limit)
                while True:
                    while i < n:
                        # One test for what is below, out of order or beyond.
                        offset = np.uint64(spots[i]) - base
                        if offset - floor >= beyond - floor:
                            break
                        total[now + offset] += values[i]
                        floor = offset + np.uint64(1)
                        i += np.uint64(1)
                        if line + 1 < stop:
                            move_line(out, to + line * _LINE, total, source + line * _LINE)
                            line += 1
                            move_line(out, to + line * _LINE, total, source + line * _LINE)
                            line += 1
                    if i < n:
                        break
                    more = _refill(
                        m, bodies[m], places, low, form, width, count, drawn, word, first, held,
                        found, c, levels, scale,
                    )  # fmt: skip
                    i, n = np.uint64(0), np.uint64(held[m])
                    if not more:
                        break
                low_end = limit
                end = begin + done + limit
                if block > 0 and (end % block == 0 or end == numel):
                    wrong[m] |= first[m] + np.int64(i) != min(count, (end + block - 1) // block * keep)
            at[m] = i
            while line < stop:
                move_line(out, to + line * _LINE, total, source + line * _LINE)
                line += 1
        _move_edges(total, np.int64(then), out, done - left, left, head, lines)
        now, then, left = then, now, size
        head, lines = _lines(out, done, size, streamed)
        line = 0
        done += size
    _move(total, np.int64(then), out, done - left, left, streamed)
    for m in range(payloads):
        numbers[m, 1] = -1 if wrong[m] else first[m] + at[m]
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
def _word_before(before: Any, zeros: int) -> Any:
    """The last indexed word with fewer zeros before it than so many, or the first; and the ones before it."""
    low, high = 0, len(before) - 2
    while low < high:
        middle = (low + high + 1) // 2
        if 64 * INDEXED * middle - before[middle] < zeros:
            low = middle
        else:
            high = middle - 1
    return low * INDEXED, before[low]


@kernel
def _refill(
    m: int, body: Any, places: Any, low: int, form: int, width: int, count: int, drawn: Any,
    word: Any, first: Any, held: Any, found: Any, c: Any, levels: Any, scale: Any,
) -> bool:  # fmt: skip
    """Read the next few values of payload `m` into its room; False if there are none."""
    first[m] += held[m]
    held[m] = 0
    begin = first[m]
    if begin >= count:
        return False
    data = bytes_at(body, places[4])
    if len(drawn):
        n = min(_ROOM, count - begin)
        for i in range(n):
            found[m, i] = drawn[begin + i]
    else:
        high = data[places[1] : places[2]]
        words = (len(high) + 7) // 8
        n = np.int64(0)
        while n == 0:
            last = min(words, word[m] + _WORDS)
            n = positions.read_few(data[places[0] :], high, low, word[m], last, begin, found[m])
            word[m] = last
    read_few(
        data[places[2] : places[3]],
        data[places[3] : places[4]],
        form,
        width,
        begin,
        begin + n,
        c[m],
        levels,
        scale,
    )
    held[m] = n
    return True


@kernel
def _lines(out: Any, at: int, n: int, streamed: bool) -> Any:
    """Of n values from out[at] on: how many precede the first cache line, and whole lines, if streamed."""
    if not streamed:
        return n, 0
    head = min(n, (-past_line(out, at) % 64) // 4)
    return head, (n - head) // _LINE


@kernel
def _move_edges(total: Any, source: int, out: Any, to: int, n: int, head: int, lines: int) -> None:
    """Move what is outside of whole lines, and leave zeros."""
    for i in range(head):
        out[to + i] = total[source + i]
        total[source + i] = 0.0
    for i in range(head + lines * _LINE, n):
        out[to + i] = total[source + i]
        total[source + i] = 0.0


@kernel
def _move(total: Any, source: int, out: Any, to: int, n: int, streamed: bool) -> None:
    """Move n values, and leave zeros."""
    head, lines = _lines(out, to, n, streamed)
    for i in range(head, head + lines * _LINE, _LINE):
        move_line(out, to + i, total, source + i)
    _move_edges(total, source, out, to, n, head, lines)
