"""A shuffle that needs no state: where a key's permutation of any length sends a place."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

MIX_ROUNDS = 4

Counters = NDArray[np.uint64]


def counter(value: int) -> Counters:
    """An integer of any size or sign as one 64-bit counter, [1]."""
    return np.array([value % 2**64], dtype=np.uint64)


def mix(value: Counters) -> Counters:
    """The finalizer of SplitMix64 (Steele, Lea and Flood 2014), elementwise, after its step."""
    value = value + np.uint64(0x9E3779B97F4A7C15)
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))


def shuffled(slot: Counters, size: int, key: Counters) -> Counters:
    """Where the permutation of 0..size-1 that `key` names sends `slot`; all arrays alike.

    A Feistel network permutes the next power of four, and is applied again to whatever falls
    outside 0..size-1 until nothing does.
    """
    half = np.uint64(max(1, ((size - 1).bit_length() + 1) // 2))
    mask = (np.uint64(1) << half) - np.uint64(1)
    place = slot.copy()
    outside = np.ones(len(place), dtype=bool)
    while outside.any():
        left, right = place[outside] >> half, place[outside] & mask
        for round_ in range(MIX_ROUNDS):
            scrambled = mix(right ^ mix(key[outside] + np.uint64(round_)))
            left, right = right, left ^ (scrambled & mask)
        place[outside] = (left << half) | right
        outside = place >= np.uint64(size)
    return place
