"""Elias-Fano code of ascending positions (Elias 1974; Fano 1971): size known before the data.

Of each position the low floor(log2(n / k)) bits are packed as they are. The rest, the high part h_i of the
i-th position, is bit h_i + i of a bit vector. In all at most k (2 + log2(n / k)) bits.
"""

import numpy as np

from geosim.policy.codec import position_bits
from runtime.codec.bits import pack, packed_bytes, unpack


def encoded_bytes(numel: int, count: int) -> int:
    """Bytes of `count` positions below `numel`: low bits, then the bit vector, each rounded up to a byte."""
    low, upper = position_bits(numel, count)
    return packed_bytes(count, low) + packed_bytes(upper, 1)


def encode(positions: np.ndarray, numel: int) -> np.ndarray:
    """Strictly ascending integers [count >= 1] below `numel` as bytes [encoded_bytes]."""
    count = len(positions)
    low, upper = position_bits(numel, count)
    positions = positions.astype(np.int64)
    vector = np.zeros(upper, np.uint8)
    vector[(positions >> low) + np.arange(count)] = 1
    return np.concatenate([pack(positions & ((1 << low) - 1), low), np.packbits(vector, bitorder="little")])


def decode(data: np.ndarray, numel: int, count: int) -> np.ndarray:
    """The int64 positions [count] in bytes [encoded_bytes].

    Raises:
        ValueError: a wrong number of ones, a position out of range or out of order, unused bits set.
    """
    low, upper = position_bits(numel, count)
    split = packed_bytes(count, low)
    ones = np.flatnonzero(np.unpackbits(data[split:], bitorder="little"))
    if len(ones) != count:
        raise ValueError(f"{len(ones)} positions instead of {count}")
    if ones[-1] >= upper:
        raise ValueError("unused bits are not zero")
    high = ones - np.arange(count)
    positions = (high << low) | unpack(data[:split], count, low)
    if positions[-1] >= numel:
        raise ValueError(f"position {positions[-1]} is out of range (below {numel})")
    if np.any(positions[1:] <= positions[:-1]):
        raise ValueError("positions do not ascend")
    return positions
