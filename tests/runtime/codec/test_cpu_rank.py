"""Thresholds and candidates of the CPU codec: ties, whole words, counts that are no multiple of 64."""

import numpy as np
import pytest

from runtime.codec.cpu import rank
from runtime.codec.cpu.add import MAGNITUDE

SIZES = (1, 63, 64, 65, 200, 5000)


def words_of(kind: str, n: int) -> np.ndarray:
    """uint32 [n]: signed ones that count without their sign, few different ones, or all 32 bits."""
    rng = np.random.default_rng(n)
    if kind == "ties":
        return rng.integers(0, 4, n, dtype=np.uint32) | (rng.integers(0, 2, n, dtype=np.uint32) << 31)
    return rng.integers(0, 1 << 32, n, dtype=np.uint32)


def padded(words: np.ndarray) -> np.ndarray:
    return np.concatenate([words, np.zeros(64, np.uint32)])


CASES = [("ties", MAGNITUDE), ("signed", MAGNITUDE), ("whole", rank.ALL_BITS)]


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize(("kind", "mask"), CASES)
def test_the_largest_are_kept_and_ties_go_to_the_lower(kind, mask, n) -> None:
    words = words_of(kind, n)
    found = np.arange(n, dtype=np.uint32) * 3 + 1
    for k in sorted({1, (n + 2) // 3, max(1, n - 1), n}):
        expected = np.sort(np.argsort(-(words & mask).astype(np.int64), kind="stable")[:k])
        found_out, words_out = np.zeros(k, np.uint32), np.zeros(k, np.uint32)
        rank.keep_largest(found, padded(words), n, mask, k, found_out, words_out)
        np.testing.assert_array_equal(found_out, found[expected])
        np.testing.assert_array_equal(words_out, words[expected])


@pytest.mark.parametrize("n", [1, 2, 41, 63, 64])
@pytest.mark.parametrize("kind", ["ties", "signed"])
def test_the_largest_of_few_are_kept_likewise(kind, n) -> None:
    words = words_of(kind, n) | np.uint32(1 << 20)
    found = np.arange(n, dtype=np.uint32) * 3 + 1
    sizes = words & MAGNITUDE
    for k in sorted({1, (n + 2) // 3, max(1, n - 1), n}):
        for least in (1, sizes.min()):
            expected = np.sort(np.argsort(-sizes.astype(np.int64), kind="stable")[:k])
            found_out, words_out = np.zeros(k + 2, np.uint32), np.zeros(k + 2, np.uint32)
            room = np.concatenate([words, np.full(64, 0xFFFFFFFF, np.uint32)])
            rank.keep_of_few(found, room, n, k, np.uint32(least), found_out, words_out, 1)
            np.testing.assert_array_equal(found_out, [0, *found[expected], 0])
            np.testing.assert_array_equal(words_out, [0, *words[expected], 0])


@pytest.mark.parametrize("n", [64, 256, 1024])
@pytest.mark.parametrize("kind", ["ties", "signed"])
def test_a_lower_bound_is_reached_by_enough_and_by_few_more(kind, n) -> None:
    sizes = words_of(kind, n) & MAGNITUDE
    for k in (1, n // 4, n):
        for slack in (0, 5):
            bound = rank.lower_bound(sizes, n, k, slack)
            reaching, above = np.sum(sizes >= bound), np.sum(sizes > bound)
            assert reaching >= k
            # Only equal words may be more than the slack allows.
            assert reaching <= k + slack or above < k


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize(("kind", "mask"), CASES)
def test_words_below_a_bound(kind, mask, n) -> None:
    words = words_of(kind, n)
    for bound in (0, 1, 2, int(np.median(words & mask)), int(mask)):
        out = np.zeros(n, np.uint32)
        count = rank.gather_below(padded(words), n, mask, np.uint32(bound), out)
        np.testing.assert_array_equal(out[:count], (words & mask)[(words & mask) < bound])
