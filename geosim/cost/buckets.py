"""Gradient buckets of torch's DDP, and what of their collectives shows after the backward pass.

DDP reduces gradients in the order in which the backward pass makes them, in buckets: the first closes at
1 MiB, the others at 25 MiB (Li et al., VLDB 2020; torch/nn/parallel/distributed.py).
"""

from dataclasses import dataclass

import numpy as np

from geosim.params import DTYPE_BYTES, ParamTable

FIRST_BUCKET_BYTES = 1 << 20
BUCKET_BYTES = 25 << 20


@dataclass(frozen=True)
class Buckets:
    """Sizes in bytes in the order in which they leave, and the share of the backward pass done by then."""

    sizes: np.ndarray
    ready: np.ndarray

    @property
    def total_bytes(self) -> float:
        """All gradients once."""
        return float(self.sizes.sum())


def make_buckets(table: ParamTable, dtype: str) -> Buckets:
    """Buckets of a model's gradients; the backward pass takes time in proportion to parameters."""
    sizes: list[int] = []
    at = 0
    limit = FIRST_BUCKET_BYTES
    for tensor in reversed(table.tensors()):
        at += tensor.numel * DTYPE_BYTES[dtype]
        if at >= limit:
            sizes.append(at)
            at, limit = 0, BUCKET_BYTES
    if at:
        sizes.append(at)
    array = np.array(sizes, dtype=float)
    return Buckets(array, np.cumsum(array) / array.sum())


def finish_time(ready_s: np.ndarray, durations_s: np.ndarray) -> float:
    """When the last of collectives that run one after another ends: end_i = max(end_(i-1), ready_i) + d_i."""
    total = np.cumsum(durations_s)
    return float((ready_s + (total[-1] - total + durations_s)).max())


def exposed(buckets: Buckets, durations_s: np.ndarray, backward_s: float) -> float:
    """Seconds by which the collectives outlast a backward pass of `backward_s` seconds."""
    return max(0.0, finish_time(buckets.ready * backward_s, durations_s) - backward_s)
