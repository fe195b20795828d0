"""Counter keys of a section's draws, and random-k's positions."""

from __future__ import annotations

from functools import lru_cache, partial
from math import sqrt

import numpy as np

from geosim.policy.maths import Key
from geosim.policy.maths.counter import POSITIONS, ROUNDING
from runtime.codec.cpu import counter, rank
from runtime.codec.cpu.plan import SectionPlan
from runtime.codec.workers import run, shares, threads

_MASK = 0xFFFFFFFF
_RANGE = 1 << 18


def counter_key(plan: SectionPlan, key: Key, *, rounding: bool) -> tuple[np.uint32, np.uint32]:
    """The two words that a section's draws depend on (`geosim.policy.maths.counter`)."""
    parts = (ROUNDING if rounding else POSITIONS, key.seed, key.round, key.fragment, key.shard, plan.number)
    return _words((*parts, key.site) if rounding else parts)


@lru_cache(maxsize=1024)  # each item of a section asks
def _words(parts: tuple[int, ...]) -> tuple[np.uint32, np.uint32]:
    first = 0
    for part in parts:
        first = _mix(((first + 0x9E3779B9) & _MASK) ^ (int(part) & _MASK))
    return np.uint32(first), np.uint32(_mix(first ^ 0x5BD1E995))


def draw(plan: SectionPlan, key: Key, dtype: type[np.integer]) -> np.ndarray:
    """The ascending positions that random-k draws, the same at all sites; or all, where all travel."""
    if plan.count == plan.numel:
        return np.arange(plan.count, dtype=dtype)
    words = counter_key(plan, key, rounding=False)
    starts, sizes, keeps = plan.scopes()
    if len(starts) == 1:
        return _draw_one(*words, plan.numel, plan.count, dtype)
    outs = np.cumsum(keeps) - keeps
    found = np.empty(plan.count, dtype)
    run([
        partial(counter.draw_scopes, *words, starts[at], sizes[at], keeps[at], outs[at], found)
        for at in shares(sizes.tolist(), threads())
    ])  # fmt: skip
    return found


def _draw_one(
    first: np.uint32, second: np.uint32, numel: int, count: int, dtype: type[np.integer]
) -> np.ndarray:
    """The positions of a single scope, by all threads: those that reach a threshold, a few too many."""
    cuts = [(at, min(numel, at + _RANGE)) for at in range(0, numel, _RANGE)]
    parts: list[np.ndarray] = [np.empty(0, dtype)] * len(cuts)
    bits: list[np.ndarray] = [np.empty(0, np.uint32)] * len(cuts)

    def some(at: slice, least: np.uint32) -> None:
        # Room for all of a range; what is never touched costs nothing.
        found, words = np.empty(_RANGE, dtype), np.empty(_RANGE, np.uint32)
        for i in range(at.start, at.stop):
            n = counter.reaching(first, second, *cuts[i], least, found, words)
            parts[i], bits[i] = found[:n].copy(), words[:n].copy()

    # So many are expected to reach the threshold; six deviations more than are kept.
    wanted = count + 6 * sqrt(count) + 16
    while sum(map(len, parts)) < count:
        share = min(1.0, wanted / numel)
        least = np.uint32(0 if share == 1 else (1 - share) * 2.0**32)
        run([partial(some, at, least) for at in shares([end - begin for begin, end in cuts], threads())])
        wanted *= 2
    found = np.concatenate(parts)
    parts.clear()
    words = np.concatenate([*bits, np.zeros(rank.LANES, np.uint32)])
    bits.clear()
    rank.keep_largest(found, words, len(found), rank.ALL_BITS, count, found, words)
    return found[:count]


def _mix(word: int) -> int:
    word ^= word >> 16
    word = word * 0x21F0AAAD & _MASK
    word ^= word >> 15
    word = word * 0xD35A2D97 & _MASK
    return word ^ word >> 15
