"""u = weight * values + residual, a block of memory at a time, with the check that all of it is finite."""

from typing import Any

import numpy as np
from numba import types
from numba.extending import overload

from runtime.codec.cpu.casts import single_bits
from runtime.codec.cpu.kernel import kernel
from runtime.codec.cpu.lowlevel import LANES, add_lanes, from_bits, to_bits

BLOCK = 2048
FP32, BF16, FP16 = 0, 1, 2
MAGNITUDE = np.uint32(0x7FFFFFFF)
NOT_FINITE = np.uint32(0x7F800000)


def weigh(values: Any, kind: int, weight: Any, residual: Any, has_residual: bool, u: Any) -> Any:
    """u = weight * values (+ residual), and the largest magnitude's bits; halves come as uint16."""


@overload(weigh)
def _weigh(values: Any, kind: Any, weight: Any, residual: Any, has_residual: Any, u: Any) -> Any:
    if values.dtype == types.float32:

        def single(values: Any, kind: Any, weight: Any, residual: Any, has_residual: Any, u: Any) -> Any:
            top = np.uint32(0)
            if has_residual:
                for i in range(len(values)):
                    sum_ = np.float32(values[i] * weight) + residual[i]
                    u[i] = sum_
                    top = max(top, np.uint32(to_bits(sum_) & MAGNITUDE))
            else:
                for i in range(len(values)):
                    product = values[i] * weight
                    u[i] = product
                    top = max(top, np.uint32(to_bits(product) & MAGNITUDE))
            return top

        return single

    def half(values: Any, kind: Any, weight: Any, residual: Any, has_residual: Any, u: Any) -> Any:
        if kind == BF16:
            for i in range(len(values)):
                u[i] = from_bits(np.uint32(np.uint32(values[i]) << np.uint32(16)))
        else:
            for i in range(len(values)):
                u[i] = from_bits(single_bits(np.uint32(values[i])))
        top = np.uint32(0)
        for i in range(len(values)):
            sum_ = u[i] * weight
            if has_residual:
                sum_ = sum_ + residual[i]
            u[i] = sum_
            top = max(top, np.uint32(to_bits(sum_) & MAGNITUDE))
        return top

    return half


@kernel
def add(values: Any, kind: int, weight: Any, residual: Any, has_residual: bool, u: Any) -> Any:
    """u = weight * values (+ residual) for at most BLOCK elements; returns the bits of the largest |u|."""
    return weigh(values, kind, weight, residual, has_residual, u[: len(values)])


def single(values: Any, at: int, n: int, kind: int, room: Any) -> Any:
    """values[at : at + n] as fp32: an array and where they begin in it; halves are widened into `room`."""


@overload(single)
def _single(values: Any, at: Any, n: Any, kind: Any, room: Any) -> Any:
    if values.dtype == types.float32:

        def same(values: Any, at: Any, n: Any, kind: Any, room: Any) -> Any:
            return values, at

        return same

    def widened(values: Any, at: Any, n: Any, kind: Any, room: Any) -> Any:
        add(values[at : at + n], kind, np.float32(1.0), room, False, room)
        return room, 0

    return widened


@kernel
def add_few(values: Any, begin: int, weight: Any, residual: Any, at: int, n: int, adds: bool) -> bool:
    """What `add_lanes` does, for n fp32 elements: False, and nothing changes, if a result is not finite."""
    for i in range(n):
        total = np.float32(values[begin + i] * weight)
        if adds:
            total = total + residual[at + i]
        if to_bits(total) & NOT_FINITE == NOT_FINITE:
            return False
    for i in range(n):
        total = np.float32(values[begin + i] * weight)
        residual[at + i] = total + residual[at + i] if adds else total
    return True


@kernel
def add_all(values: Any, kind: int, weight: Any, residual: Any, adds: bool) -> int:
    """residual <- u until some is not finite; returns how many elements were written."""
    room = np.empty(BLOCK, np.float32)
    for at in range(0, len(values), BLOCK):
        n = min(BLOCK, len(values) - at)
        given, begin = single(values, at, n, kind, room)
        whole = n // LANES * LANES
        for i in range(0, whole, LANES):
            if not add_lanes(given, begin + i, weight, residual, at + i, adds):
                return at + i
        if not add_few(given, begin + whole, weight, residual, at + whole, n - whole, adds):
            return at + whole
    return len(values)


@kernel
def take_off(values: Any, kind: int, weight: Any, decay: Any, residual: Any) -> None:
    """Undo: residual <- residual / decay - weight * values."""
    u = np.empty(BLOCK, np.float32)
    for at in range(0, len(values), BLOCK):
        part = residual[at : at + BLOCK]
        add(values[at : at + BLOCK], kind, weight, part, False, u)
        for i in range(len(part)):
            part[i] = part[i] / decay - u[i]


@kernel
def decayed(residual: Any, decay: Any) -> None:
    """residual <- decay * residual."""
    for i in range(len(residual)):
        residual[i] = residual[i] * decay
