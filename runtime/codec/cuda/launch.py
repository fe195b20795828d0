"""Launching kernels, and the words that counter bits start from."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from geosim.policy.maths import Key
from geosim.policy.maths.counter import POSITIONS, ROUNDING
from geosim.policy.select import RandomK
from runtime.codec.cuda.plan import Lane

# Without it ptxas would contract w v + e, and others like it, into one rounding.
OPTIONS = {"enable_fp_fusion": False}


def launch(kernel: Any, programs: int, *args: Any, warps: int = 4, **meta: Any) -> None:
    """Run a kernel in so many programs, on the current stream; products and sums round separately."""
    if programs:
        kernel[(programs,)](*args, num_warps=warps, **OPTIONS, **meta)


def position_words(key: Key, sections: Sequence[int]) -> torch.Tensor:
    """The words a and b of docs/wire.md's h(i) for random-k in each section, int32 [sections, 2]."""
    return _words((POSITIONS, key.seed, key.round, key.fragment, key.shard, np.array(sections)))


def rounding_words(key: Key, sections: Sequence[int]) -> torch.Tensor:
    """Those for stochastic rounding."""
    return _words((ROUNDING, key.seed, key.round, key.fragment, key.shard, np.array(sections), key.site))


def encoding_words(lane: Lane, key: Key) -> torch.Tensor:
    """What a lane's encode draws from: those for rounding and for positions, int32 [2, sections, 2].

    Empty where it draws nothing.
    """
    if not lane.dithers and not isinstance(lane.select, RandomK):
        return torch.empty(0, dtype=torch.int32)
    return torch.stack([rounding_words(key, lane.numbers), position_words(key, lane.numbers)])


def _words(parts: Sequence[Any]) -> torch.Tensor:
    a = np.zeros(1, np.uint32)
    for part in parts:
        a = _mix((a + np.uint32(0x9E3779B9)) ^ (np.asarray(part, np.int64) & 0xFFFFFFFF).astype(np.uint32))
    b = _mix(a ^ np.uint32(0x5BD1E995))
    return torch.from_numpy(np.stack([a, b], axis=1).view(np.int32))


def _mix(x: np.ndarray) -> np.ndarray:
    x = (x ^ (x >> 16)) * np.uint32(0x21F0AAAD)
    x = (x ^ (x >> 15)) * np.uint32(0xD35A2D97)
    return x ^ (x >> 15)
