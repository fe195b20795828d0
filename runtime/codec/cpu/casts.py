"""fp32 to and from the plain floating-point formats, and the bytes they travel as.

Bytes are read and written as whole numbers at any address: the vector instructions in use need no alignment.
"""

from typing import Any

import numpy as np

from geosim.policy.maths.quantize import BF16_MAX, FP16_MAX
from runtime.codec.cpu.forms import AS_BF16, AS_FP32
from runtime.codec.cpu.kernel import kernel
from runtime.codec.cpu.lowlevel import from_bits, to_bits

_HALF = np.float32(0.5)
_BF16_MOST, _FP16_MOST = np.float32(BF16_MAX), np.float32(FP16_MAX)


@kernel
def cast(x: Any, form: int, c: Any, data: Any) -> None:
    """Round values [n] to a format, into c, and write them; `data` is uint8, as long as they are there."""
    n = len(x)
    if form == AS_FP32:
        words = data.view(np.float32)
        for i in range(n):
            c[i] = x[i]
            words[i] = x[i]
    elif form == AS_BF16:
        half = data.view(np.uint16)
        for i in range(n):
            word = np.uint32(to_bits(min(max(x[i], -_BF16_MOST), _BF16_MOST)))
            last = (word >> np.uint32(16)) & np.uint32(1)
            rounded = np.uint32(word + np.uint32(0x7FFF) + last)
            half[i] = np.uint16(rounded >> np.uint32(16))
            c[i] = from_bits(np.uint32(rounded & np.uint32(0xFFFF0000)))
    else:
        half = data.view(np.uint16)
        for i in range(n):
            half[i] = _half(min(max(x[i], -_FP16_MOST), _FP16_MOST))
        widen(data, form, c)


@kernel
def _half(x: Any) -> Any:
    """fp16 bits of an fp32 number of at most 65504, ties to even."""
    word = np.uint32(to_bits(x))
    size = np.uint32(word & np.uint32(0x7FFFFFFF))
    # In 0.5 + |x| the last place is 2^-24, that of fp16's denormal numbers.
    small = np.uint32(to_bits(np.float32(abs(x) + _HALF)) - np.uint32(0x3F000000))
    rounded = np.uint32(size + np.uint32(0xFFF) + ((size >> np.uint32(13)) & np.uint32(1)))
    normal = np.uint32(rounded - np.uint32(112 << 23)) >> np.uint32(13)
    chosen = small if size < np.uint32(113 << 23) else normal
    return np.uint16(chosen | ((word >> np.uint32(16)) & np.uint32(0x8000)))


@kernel
def single_bits(word: Any) -> Any:
    """fp32 bits of an fp16 number's; no denormal fp32 number on the way, so that a thread may flush those."""
    size = np.uint32((word & np.uint32(0x7FFF)) << np.uint32(13))
    # With the exponent of 2^-14 in place of none, 2^-14 too much.
    small = np.float32(from_bits(np.uint32(size + np.uint32(113 << 23))) - from_bits(np.uint32(113 << 23)))
    normal = np.uint32(size + np.uint32(112 << 23))
    chosen = np.uint32(to_bits(small)) if size < np.uint32(1 << 23) else normal
    if size >= np.uint32(31 << 23):
        chosen = np.uint32(size | np.uint32(0x7F800000))
    return np.uint32(chosen | ((word & np.uint32(0x8000)) << np.uint32(16)))


@kernel
def widen(data: Any, form: int, c: Any) -> None:
    """fp32 of the values [n], all finite, in bytes."""
    n = len(c)
    if form == AS_FP32:
        words = data.view(np.float32)
        for i in range(n):
            c[i] = words[i]
        return
    half = data.view(np.uint16)
    if form == AS_BF16:
        for i in range(n):
            c[i] = from_bits(np.uint32(np.uint32(half[i]) << np.uint32(16)))
    else:
        for i in range(n):
            c[i] = from_bits(single_bits(np.uint32(half[i])))
