"""fp32 to and from the plain floating-point formats, and the bytes they travel as."""

from typing import Any

import numpy as np
from numba import njit

from geosim.policy.maths.quantize import BF16_MAX, FP16_MAX
from runtime.codec.cpu.forms import AS_BF16, AS_FP16, AS_FP32, RUN

_HALF = np.float32(0.5)
_BF16_MOST, _FP16_MOST = np.float32(BF16_MAX), np.float32(FP16_MAX)


@njit(cache=True, nogil=True)
def cast(x: Any, form: int, raw: Any, c: Any, data: Any) -> None:
    """Round at most RUN values to a format, into c, and write them; `raw` is scratch, uint32 [RUN]."""
    n = len(x)
    if form == AS_FP32:
        for i in range(n):
            c[i] = x[i]
        _copy_bytes(c.view(np.uint8), data)
        return
    half = np.empty(RUN, np.uint16)
    bits = c.view(np.uint32)
    if form == AS_BF16:
        for i in range(n):
            c[i] = min(max(x[i], -_BF16_MOST), _BF16_MOST)
        for i in range(n):
            word = bits[i]
            raw[i] = np.uint32(word + np.uint32(0x7FFF) + ((word >> np.uint32(16)) & np.uint32(1)))
        for i in range(n):
            half[i] = np.uint16(raw[i] >> np.uint32(16))
            bits[i] = raw[i] & np.uint32(0xFFFF0000)
    else:
        for i in range(n):
            c[i] = min(max(x[i], -_FP16_MOST), _FP16_MOST)
        _to_half(c, raw, half)
        widen(half[:n], AS_FP16, c)
    _copy_bytes(half[:n].view(np.uint8), data)


@njit(cache=True, nogil=True)
def _to_half(x: Any, raw: Any, half: Any) -> None:
    """fp16 bits of fp32 numbers of at most 65504, ties to even."""
    bits = x.view(np.uint32)
    denormal = raw.view(np.float32)
    n = len(x)
    for i in range(n):
        # In 0.5 + |x| the last place is 2^-24, that of fp16's denormal numbers.
        denormal[i] = abs(x[i]) + _HALF
    for i in range(n):
        size = bits[i] & np.uint32(0x7FFFFFFF)
        small = raw[i] - np.uint32(0x3F000000)
        rounded = size + np.uint32(0xFFF) + ((size >> np.uint32(13)) & np.uint32(1))
        normal = (rounded - np.uint32(112 << 23)) >> np.uint32(13)
        chosen = small if size < np.uint32(113 << 23) else normal
        half[i] = np.uint16(chosen | ((bits[i] >> np.uint32(16)) & np.uint32(0x8000)))


@njit(cache=True, nogil=True)
def widen(half: Any, form: int, c: Any) -> None:
    """fp32 of bf16 or fp16 bits that are finite."""
    bits = c.view(np.uint32)
    n = len(half)
    if form == AS_BF16:
        for i in range(n):
            bits[i] = np.uint32(half[i]) << np.uint32(16)
    else:
        for i in range(n):
            bits[i] = (np.uint32(half[i]) & np.uint32(0x7FFF)) << np.uint32(13)
        for i in range(n):
            c[i] = c[i] * np.float32(2.0**112)
        for i in range(n):
            bits[i] = bits[i] | ((np.uint32(half[i]) & np.uint32(0x8000)) << np.uint32(16))


@njit(cache=True, nogil=True)
def _copy_bytes(source: Any, out: Any) -> None:
    for i in range(len(source)):
        out[i] = source[i]
