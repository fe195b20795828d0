"""The reference mathematics of a policy, written once over numpy, torch and jax."""

from geosim.policy.maths.codec import (
    Compressed,
    Section,
    compress,
    compress_fragment,
    contribution,
    decompress,
    decompress_fragment,
    make_sections,
    residual,
)
from geosim.policy.maths.counter import Key
from geosim.policy.maths.outer import momentum, outer_step, sgd
from geosim.policy.maths.update import (
    accumulate,
    aggregate,
    applied,
    is_finite,
    mix,
    momentum_of,
    residual_after,
    sum_unless,
    window_mean,
)

__all__ = [
    "Compressed",
    "Key",
    "Section",
    "accumulate",
    "aggregate",
    "applied",
    "compress",
    "compress_fragment",
    "contribution",
    "decompress",
    "decompress_fragment",
    "is_finite",
    "make_sections",
    "mix",
    "momentum",
    "momentum_of",
    "outer_step",
    "residual",
    "residual_after",
    "sgd",
    "sum_unless",
    "window_mean",
]
