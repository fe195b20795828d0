"""The k-th largest of unsigned words, and the words that reach a threshold."""

from typing import Any

import numpy as np

from runtime.codec.cpu.add import MAGNITUDE
from runtime.codec.cpu.kernel import kernel
from runtime.codec.cpu.lowlevel import (
    LANES,
    count_reach,
    leading_zeros,
    move_hits,
    ones,
    reach,
    take_hits,
    trailing_zeros,
)

GROUP = 512  # words between two looks at how many have equalled a threshold
MANY = 64  # fewer that reached it in a group are not worth a look
_BISECTED = 4096
_BUCKETS = 4096
ALL_BITS = np.uint32(0xFFFFFFFF)
_ONE = np.uint64(1)
_HIGHEST = np.uint64(1 << 63)


@kernel
def padded(n: int) -> int:
    """Room that n words need in this module: a multiple of 64."""
    return (n + LANES - 1) // LANES * LANES


@kernel
def reach_few(words: Any, at: int, n: int, mask: Any, least: Any) -> Any:
    """`reach` of fewer than 64 words."""
    hits = np.uint64(0)
    for i in range(n):
        if words[at + i] & mask >= least:
            hits |= _ONE << np.uint64(i)
    return hits


@kernel
def equal_to(words: Any, begin: int, end: int, mask: Any, least: Any) -> Any:
    """How many of words[begin:end] & mask are `least`."""
    count = np.int64(0)
    for i in range(np.uint64(begin), np.uint64(end)):
        count += np.int64(words[i] & mask == least)
    return count


@kernel
def count_reaching(words: Any, n: int, mask: Any, least: Any) -> Any:
    """How many of words[:n] & mask are >= least, which is not 0; zeros up to `padded(n)` follow them."""
    count = np.int64(0)
    for at in range(0, n, LANES):
        count += np.int64(ones(reach(words, at, mask, least)))
    return count


@kernel
def threshold_of(words: Any, n: int, mask: Any, k: int) -> Any:
    """A t such that words above it are fewer than k or, with those equal to it, exactly k; 1 <= k <= n.

    So the k largest are all above t and, of those equal to t, as many as are missing. `words` has room for
    `padded(n)`, and what is beyond n becomes 0.
    """
    low, high = ALL_BITS, np.uint32(0)
    for i in range(np.uint64(n)):
        word = np.uint32(words[i] & mask)
        low = min(low, word)
        high = max(high, word)
    words[n : padded(n)] = 0
    if n > _BISECTED:
        return _by_buckets(words, n, mask, k, low, high)
    while low < high:
        middle = np.uint32(high - (high - low) // np.uint32(2))
        count = count_reaching(words, n, mask, middle)
        if count == k:
            return middle
        if count > k:
            low = middle
        else:
            high = np.uint32(middle - np.uint32(1))
    return low


@kernel
def lower_bound(sizes: Any, n: int, k: int, slack: int) -> Any:
    """A t that at least k of sizes[:n] reach, and where ties allow at most k + `slack`; 1 <= k <= n.

    They are below 2^31, and n is a multiple of 64.
    """
    low, high = ALL_BITS, np.uint32(0)
    for i in range(np.uint64(n)):
        low = min(low, sizes[i])
        high = max(high, sizes[i])
    return _search(sizes, n, ALL_BITS, k, slack, low, high, n)


@kernel
def _search(words: Any, n: int, mask: Any, k: int, slack: int, low: Any, high: Any, count: int) -> Any:
    """A t that k of words[:n] & mask reach, and where ties allow at most k + `slack`.

    low <= t <= high < 2^31; `count` reach `low`: at least k.
    """
    while np.uint64(count - k) > np.uint64(slack) and low < high:
        middle = np.uint32(high - ((high - low) >> np.uint32(1)))
        count = 0
        for at in range(0, n, LANES):
            count += count_reach(words, at, mask, middle)
        # All ones or zeros, as a jump would be foreseen wrongly every other time.
        few = np.uint32((count - k) >> 63)
        low = np.uint32(middle ^ ((middle ^ low) & few))
        high = np.uint32(high ^ ((high ^ (middle - np.uint32(1))) & few))
    return low


@kernel
def _by_buckets(words: Any, n: int, mask: Any, k: int, low: Any, high: Any) -> Any:
    buckets = np.empty(_BUCKETS, np.int64)
    above = 0
    while low < high:
        shift = np.uint32(0)
        while (high - low) >> shift >= np.uint32(_BUCKETS):
            shift += np.uint32(1)
        buckets[:] = 0
        for i in range(np.uint64(n)):
            word = np.uint32(words[i] & mask)
            if low <= word <= high:
                buckets[np.uint64((word - low) >> shift)] += 1
        bucket = np.int64((high - low) >> shift)
        while above + buckets[bucket] < k:
            above += buckets[bucket]
            bucket -= 1
        low = np.uint32(low + (np.uint32(bucket) << shift))
        if above + buckets[bucket] == k:
            return low
        high = min(high, np.uint32(low + ((np.uint32(1) << shift) - np.uint32(1))))
    return low


@kernel
def gather_reaching(
    words: Any, mask: Any, least: Any, tie_cap: int, base: int, room: int, found: Any, kept: Any
) -> Any:
    """Append the positions of the words above `least`, and of at least the first `tie_cap` that equal it.

    Args:
        words, mask: uint32 [n]; words & mask count.
        base: is added to positions.
        room: how many `found` and `kept` hold so far; all must fit.
        found, kept: positions and whole words, from `room` on.

    Returns:
        `room` after it.
    """
    bound = least
    ties = 0
    to = room
    whole = len(words) // LANES * LANES
    for begin in range(0, whole, GROUP):
        before = to
        for at in range(begin, min(whole, begin + GROUP), LANES):
            to = take_hits(reach(words, at, mask, bound), words, at, base + at, found, kept, to)
        if to - before > MANY:
            ties += equal_to(kept, before, to, mask, least)
            if ties >= tie_cap:
                bound = np.uint32(least + np.uint32(1))
    rest = len(words) - whole
    return take_hits(reach_few(words, whole, rest, mask, bound), words, whole, base + whole, found, kept, to)


@kernel
def gather_below(words: Any, n: int, mask: Any, bound: Any, out: Any) -> Any:
    """Those of words[:n] & mask that are below a bound; how many. `words` has room for `padded(n)`."""
    to = np.uint64(0)
    for at in range(0, n, LANES):
        hits = ~reach(words, at, mask, bound)
        if n - at < LANES:
            hits &= (_ONE << np.uint64(n - at)) - _ONE
        while hits != 0:
            out[to] = words[np.uint64(at) + trailing_zeros(hits)] & mask
            hits &= hits - _ONE
            to += _ONE
    return np.int64(to)


@kernel
def keep_above(
    found: Any, words: Any, n: int, mask: Any, least: Any, ties: Any, found_out: Any, words_out: Any
) -> None:
    """Of n candidates those above `least` and the first `ties` that equal it, in the same order.

    Zeros up to `padded(n)` follow the n words. Jumps go by 64 words: which are kept cannot be foreseen.
    """
    to = 0
    for at in range(0, n, LANES):
        above = np.uint64(0) if least == ALL_BITS else reach(words, at, mask, np.uint32(least + np.uint32(1)))
        hits = above
        if ties > 0:
            equal = reach(words, at, mask, least) & ~above
            if n - at < LANES:
                equal &= (_ONE << np.uint64(n - at)) - _ONE
            while np.int64(ones(equal)) > ties:
                equal &= ~(_HIGHEST >> leading_zeros(equal))
            ties -= np.int64(ones(equal))
            hits |= equal
        to = move_hits(hits, found, words, at, found_out, words_out, to)


@kernel
def count_above(words: Any, n: int, mask: Any, least: Any) -> Any:
    """How many of words[:n] & mask are > least; zeros up to `padded(n)` follow them."""
    return 0 if least == ALL_BITS else count_reaching(words, n, mask, np.uint32(least + np.uint32(1)))


@kernel
def counts(words: Any, n: int, mask: Any, least: Any) -> Any:
    """How many of words[:n] & mask are > least, and how many equal it; zeros up to `padded(n)` follow."""
    above = np.int64(count_above(words, n, mask, least))
    return above, (n if least == 0 else count_reaching(words, n, mask, least)) - above


@kernel
def keep_of_few(
    found: Any, words: Any, n: int, k: int, least: Any, found_out: Any, words_out: Any, to: int
) -> None:
    """`keep_largest` of at most 64 candidates by magnitude into the outputs from `to` on.

    All reach `least`, which is not 0. `words` has room for 64 more, which become 0.
    """
    high = np.uint32(0)
    for i in range(LANES):
        words[n + i] = 0
    for i in range(LANES):
        high = max(high, np.uint32(words[i] & MAGNITUDE))
    low = _search(words, LANES, MAGNITUDE, k, 0, least, high, n)
    hits = reach(words, 0, MAGNITUDE, low)
    if np.int64(ones(hits)) != k:
        # `low` equals some; of those the first are kept.
        above = reach(words, 0, MAGNITUDE, np.uint32(low + np.uint32(1)))
        equal = hits & ~above
        for _ in range(np.int64(ones(hits)) - k):
            equal &= ~(_HIGHEST >> leading_zeros(equal))
        hits = above | equal
    move_hits(hits, found, words, 0, found_out, words_out, to)


@kernel
def keep_largest(found: Any, words: Any, n: int, mask: Any, k: int, found_out: Any, words_out: Any) -> None:
    """Of n candidates in ascending order of position the k largest, ties to the lower, in the same order.

    The outputs may be the inputs: what is kept never moves up.
    `words` is as `threshold_of` takes it.
    """
    if n == k:
        for i in range(n):
            found_out[i] = found[i]
            words_out[i] = words[i]
        return
    least = threshold_of(words, n, mask, k)
    ties = k - count_above(words, n, mask, least)
    keep_above(found, words, n, mask, least, ties, found_out, words_out)
