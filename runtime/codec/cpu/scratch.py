"""Memory for intermediate results that is kept for the next call.

The system clears a new page when it is first touched, which takes longer than what it is wanted for.
"""

import numpy as np
import torch

_LINE = 64
_free: list[np.ndarray] = []


class Scratch:
    """1-D arrays, each from the start of a cache line on; what they hold means nothing.

    Those who hold some at the same time get memory of their own. As much as was ever held at a time is kept.

    Attributes:
        arrays: one of each (elements, dtype) that was asked for.
    """

    def __init__(self, *rooms: tuple[int, type[np.generic]]) -> None:
        sizes = [-(-count * np.dtype(dtype).itemsize // _LINE) * _LINE for count, dtype in rooms]
        needed = sum(sizes)
        try:
            held = _free.pop()
        except IndexError:
            held = _new(needed)
        if len(held) < needed:
            held = _new(needed)
        self._held = held
        self.arrays = []
        at = 0
        for (count, dtype), size in zip(rooms, sizes, strict=True):
            self.arrays.append(np.ndarray(count, dtype, held, at))
            at += size

    def give_back(self) -> None:
        """The arrays are not used any more."""
        _free.append(self._held)


def _new(size: int) -> np.ndarray:
    """From torch, as its memory begins with a cache line; numpy's would be huge pages, each held whole."""
    return torch.empty(size, dtype=torch.uint8, device="cpu").numpy()


def forget() -> None:
    """Give back to the system what nobody holds."""
    _free.clear()
