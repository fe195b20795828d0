"""Seconds of kernels on one accelerator: matrix products, attention, passes over memory."""

import numpy as np

from geosim.cost.step.constants import Constants
from geosim.cost.step.numbers import Machine, Number

_REFERENCE_FLOPS = 312e12


def _reached(peak_flops: Number, share: float, decay: float) -> Number:
    """FLOP/s: `share` of the peak up to the reference, and above it growing with peak^(1 - decay)."""
    return peak_flops * share * np.minimum(1.0, (_REFERENCE_FLOPS / peak_flops) ** decay)


def matmul(
    rows: Number, inner: Number, columns: Number, peak_flops: Number, machine: Machine, known: Constants
) -> Number:
    """Seconds of a (rows, inner) by an (inner, columns) matrix.

    Arithmetic and traffic add: a product's share of peak then falls as 1 / (1 + b (1/rows + 1/inner +
    1/columns)), b being FLOPs a byte that the accelerator balances.
    """
    flops = 2.0 * rows * inner * columns
    touched = machine.element_bytes * (rows * inner + inner * columns + rows * columns)
    reached = _reached(peak_flops, known.matmul_share, known.matmul_decay)
    return flops / reached + touched / machine.memory_bytes_per_s


def fused_attention(flops: Number, machine: Machine, known: Constants) -> Number:
    """Seconds of a kernel of FlashAttention's kind; `flops` as if nothing were masked."""
    return flops / _reached(machine.attention_flops, known.attention_share, known.attention_decay)


def passes(size_bytes: Number, machine: Machine, known: Constants) -> Number:
    """Seconds of kernels that must read and write `size_bytes` in all."""
    return known.memory_traffic * size_bytes / machine.memory_bytes_per_s
