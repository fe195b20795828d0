"""Counter-based random bits: a pure function of a key and an element's number, equal on every backend.

The mixing function is "lowbias32" with the constants 0x21f0aaad and 0xd35a2d97 of C. Wellons and TheIronBorn
(hash-prospector, 2018-2022), a bijection of 32-bit words. Bits of element i under a key (h1, h2) are
``mix(mix(i + h1) ^ h2)`` modulo 2^32, so elements of one key never share all their bits.
"""

from typing import NamedTuple

from geosim.policy.maths import backend
from geosim.policy.maths.backend import Array

POSITIONS, ROUNDING = 1, 2


class Key(NamedTuple):
    """What draws depend on. Each part is an integer or a 0-d integer array (taken modulo 2^32)."""

    seed: int | Array = 0
    round: int | Array = 0
    fragment: int | Array = 0
    shard: int | Array = 0
    site: int | Array = 0
    section: int | Array = 0


def mix(word: Array) -> Array:
    """A bijection of 32-bit words whose every output bit depends on every input bit."""
    word = word ^ (word >> 16)
    word = backend.wrap(word * backend.words(word, 0x21F0AAAD))
    word = word ^ (word >> 15)
    word = backend.wrap(word * backend.words(word, 0xD35A2D97))
    return word ^ (word >> 15)


def position_bits(like: Array, key: Key, count: int) -> Array:
    """Bits [count] for random-k: the same on every site."""
    parts = (POSITIONS, key.seed, key.round, key.fragment, key.shard, key.section)
    return _bits(like, parts, count)


def rounding_bits(like: Array, key: Key, count: int) -> Array:
    """Bits [count] for stochastic rounding: independent between sites."""
    parts = (ROUNDING, key.seed, key.round, key.fragment, key.shard, key.section, key.site)
    return _bits(like, parts, count)


def _bits(like: Array, parts: tuple[int | Array, ...], count: int) -> Array:
    first = backend.words(like, 0)
    for part in parts:
        first = mix(backend.wrap(first + backend.words(like, 0x9E3779B9)) ^ backend.words(like, part))
    second = mix(first ^ backend.words(like, 0x5BD1E995))
    return mix(mix(backend.wrap(backend.word_range(like, count) + first)) ^ second)
