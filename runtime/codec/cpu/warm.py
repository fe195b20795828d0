"""Compiles, or loads from numba's cache, every kernel that a codec needs, so that no window pays for it."""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from runtime.codec.cpu import add, counter, forms, fused, positions, rank, read, select, sums, write

_FEW = 8
_done: set[tuple[int, type[np.integer]]] = set()


def warm_once(kind: int, dtype: type[np.integer]) -> None:
    """`warm`, the first time that a process asks."""
    if (kind, dtype) not in _done:
        with _one_compiles():
            warm(kind, dtype)
        _done.add((kind, dtype))


@contextmanager
def _one_compiles() -> Iterator[None]:
    """Of a user's processes the first goes ahead; the others wait, to find on disk what it has compiled."""
    path = Path(tempfile.gettempdir()) / f"geosim-kernels-{os.getuid()}.lock"
    try:
        lock = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    except OSError:  # no place for it: all compile
        yield
        return
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            fcntl.flock(lock, fcntl.LOCK_SH)
            fcntl.flock(lock, fcntl.LOCK_UN)
        yield
    finally:
        os.close(lock)


def warm(kind: int, dtype: type[np.integer]) -> None:
    """Call all kernels once on a few values.

    Args:
        kind: of the values that will come, as `add.add` takes it.
        dtype: of positions.
    """
    values = np.zeros(_FEW, np.float32 if kind == add.FP32 else np.uint16)
    residual, one = np.zeros(_FEW, np.float32), np.float32(1)
    word = np.uint32(0)
    found, words = np.arange(rank.padded(_FEW), dtype=dtype), np.zeros(rank.padded(_FEW), np.uint32)
    index = np.zeros(1, np.int64)
    size = np.full(1, _FEW)
    data = np.zeros(4 * _FEW, np.uint8)

    add.add_all(values, kind, one, residual, True)
    add.take_off(values, kind, one, one, residual)
    add.decayed(residual, one)
    select.sample(values, kind, one, residual, True, 0, words)
    select.collect(values, kind, one, residual, True, False, word, 0, 0, found, words)
    select.select_scopes(
        values, kind, one, residual, True, one, index, size, size, index, index, found[:_FEW], words[:_FEW]
    )
    fused.select_and_write(
        values, kind, one, residual, True, one, index, size, size, index, index, found[:_FEW], words[:_FEW],
        1, _FEW, 0, 1, data, 0, data, size, index, forms.AS_INT8, _FEW, True, False, word, word, data, data,
    )  # fmt: skip
    counter.draw_scopes(word, word, index, size, size, index, found[:_FEW])
    counter.reaching(word, word, 0, _FEW, word, found, words)
    rank.keep_largest(found, words, _FEW, rank.ALL_BITS, _FEW, found, words)
    rank.threshold_of(words, _FEW, rank.ALL_BITS, 1)
    rank.gather_below(words, _FEW, add.MAGNITUDE, word, words)
    rank.counts(words, _FEW, add.MAGNITUDE, word)
    rank.keep_above(found, words, _FEW, add.MAGNITUDE, word, 0, found, words)
    found = np.arange(_FEW, dtype=dtype)
    form, width = forms.AS_INT8, _FEW
    write.write_dense(
        values, kind, one, residual, True, one, form, width, True, False, word, word, 0, data, data
    )
    write.write_item(
        residual, found, size, index, residual, one, form, width, True, False, word, word, 0, data, data, -1
    )
    write.take_values(residual, found, size, index, words)
    positions.write_low(found, 1, 0, data)
    positions.write_all_high(found, 1, data)
    positions.read_positions(data, data, 1, 0, 0, 0, int(positions.count_ones(data, 0, 0)), _FEW, found)
    positions.well_placed(found, 0, _FEW, 0, 1, _FEW)
    read.all_right(data, data, form, width, 0, _FEW)
    read.read_values(data, data, form, width, 0, _FEW, residual)
    read.add_dense(data, data, form, width, 0, _FEW, residual)
    read.add_sparse(found, residual, size, index, residual)
    places, address = np.array([0, 1, 1, 5, 13]), np.full(1, data.ctypes.data, np.uint64)
    sums.inspect(data, form, 1, 0, _FEW, width, places, index)
    sums.sum_dense(address, places, form, width, 0, _FEW, False, residual, np.ones(1, np.uint8))
    for drawn in (None, found):
        sums.sum_sparse(
            address, places, 1, form, width, 0, 1, _FEW, _FEW, drawn, index[None], 0, False, residual,
            np.zeros((1, 2), np.int64),
        )  # fmt: skip
