"""What is encoded, and what takes it back."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from runtime.codec.cpu import add

ONE = np.float32(1)


@dataclass(frozen=True)
class Update:
    """What is encoded.

    Attributes:
        values: fp32 [numel], or uint16 bits of `kind`.
        kind, weight: as `add.add` takes them.
        work: fp32 [numel]: the residual, or where there is none and something is selected, room for u.
        keeps: whether `work` is a residual.
        decay: of the residual.
    """

    values: np.ndarray
    kind: int
    weight: np.float32
    work: np.ndarray
    keeps: bool
    decay: np.float32

    def take_off(self, ranges: Iterable[tuple[int, int]], decay: np.float32 = ONE) -> None:
        """Undo the sum over ranges of elements: residual / decay - weight * values."""
        for begin, end in ranges:
            add.take_off(self.values[begin:end], self.kind, self.weight, decay, self.work[begin:end])
