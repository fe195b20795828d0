"""Small unsigned integers end to end: value i fills bits i w to i w + w - 1, lowest bits of a byte first."""

import numpy as np


def packed_bytes(count: int, width: int) -> int:
    """Bytes of `count` values of `width` bits."""
    return (count * width + 7) // 8


def pack(values: np.ndarray, width: int) -> np.ndarray:
    """Non-negative integers [count] below 2^width as bytes [packed_bytes]; unused last bits are 0.

    Args:
        values: any integer type.
        width: 0 to 63 bits.
    """
    if width in (1, 2, 4):
        per_byte = 8 // width
        padded = np.zeros(-(-len(values) // per_byte) * per_byte, np.uint8)
        padded[: len(values)] = values
        lanes = padded.reshape(-1, per_byte) << (np.arange(per_byte, dtype=np.uint8) * width)
        return np.bitwise_or.reduce(lanes, axis=1)
    shifts = np.arange(width, dtype=np.uint64)
    bits = (values.astype(np.uint64)[:, None] >> shifts) & np.uint64(1)
    return np.packbits(bits.astype(np.uint8).ravel(), bitorder="little")


def unpack(data: np.ndarray, count: int, width: int) -> np.ndarray:
    """The int64 values [count] in bytes [packed_bytes].

    Raises:
        ValueError: if unused bits of the last byte are not 0.
    """
    used = count * width
    if used % 8 and data[-1] >> (used % 8):
        raise ValueError("unused bits are not zero")
    if width in (1, 2, 4):
        lanes = data[:, None] >> (np.arange(8 // width, dtype=np.uint8) * width)
        return (lanes & np.uint8((1 << width) - 1)).ravel()[:count].astype(np.int64)
    bits = np.unpackbits(data, count=used, bitorder="little").reshape(count, width)
    out = np.zeros(count, np.int64)
    for i in range(width):
        out |= bits[:, i].astype(np.int64) << i
    return out
