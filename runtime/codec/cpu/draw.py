"""Counter keys of a section's draws, and random-k's positions."""

from __future__ import annotations

from functools import lru_cache, partial

import numpy as np

from geosim.policy.maths import Key
from geosim.policy.maths.counter import POSITIONS, ROUNDING
from runtime.codec.cpu import counter
from runtime.codec.cpu.plan import SectionPlan
from runtime.codec.workers import run, shares, threads

_MASK = 0xFFFFFFFF


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
    first, second = counter_key(plan, key, rounding=False)
    starts, sizes, keeps = plan.scopes()
    outs = np.cumsum(keeps) - keeps
    found = np.empty(plan.count, dtype)
    run([
        partial(counter.draw_scopes, first, second, starts[at], sizes[at], keeps[at], outs[at], found)
        for at in shares(sizes.tolist(), threads())
    ])  # fmt: skip
    return found


def _mix(word: int) -> int:
    word ^= word >> 16
    word = word * 0x21F0AAAD & _MASK
    word ^= word >> 15
    word = word * 0xD35A2D97 & _MASK
    return word ^ word >> 15
