"""Counter-based random bits (`geosim.policy.maths.counter`), and positions that random-k draws by them."""

from typing import Any

import numpy as np

from runtime.codec.cpu.add import BLOCK
from runtime.codec.cpu.kernel import kernel
from runtime.codec.cpu.rank import ALL_BITS, gather_reaching, keep_largest, padded


@kernel
def _mix(word: Any) -> Any:
    word = np.uint32(word ^ (word >> np.uint32(16)))
    word = np.uint32(word * np.uint32(0x21F0AAAD))
    word = np.uint32(word ^ (word >> np.uint32(15)))
    word = np.uint32(word * np.uint32(0xD35A2D97))
    return np.uint32(word ^ (word >> np.uint32(15)))


@kernel
def counter_bits(first: Any, second: Any, begin: int, out: Any) -> None:
    """Bits of elements begin, begin + 1, ... under a key (`geosim.policy.maths.counter`)."""
    start = np.uint32(np.uint32(begin) + first)
    for i in range(np.uint64(len(out))):
        out[i] = _mix(_mix(np.uint32(start + np.uint32(i))) ^ second)


@kernel
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


@kernel
def reaching(first: Any, second: Any, begin: int, end: int, least: Any, found: Any, words: Any) -> int:
    """Positions `begin` to `end` of a section whose counter bits reach a threshold, and the bits; how many.

    Zeros up to `padded` of that follow the bits; there is room for all.
    """
    bits = np.empty(BLOCK, np.uint32)
    n = 0
    for at in range(begin, end, BLOCK):
        part = bits[: min(BLOCK, end - at)]
        counter_bits(first, second, at, part)
        n = gather_reaching(part, ALL_BITS, least, end - begin + 1, at, n, found, words)
    words[n : padded(n)] = 0
    return n
