"""The wall-clock model as the paper prints it (arXiv 2503.09799, A.1 to A.3): seconds, bits, bits per second.

N parameters of 16 bits, R chips of Q FLOP/s, M replicas, a synchronisation every H steps; index 0 is inside a
data centre, 1 across. All times are a step's: the paper multiplies by T steps.
"""

BITS = 16
Q_FLOPS = 300e12
# Bandwidth in bit/s and latency in s: high (always inside a data centre), medium, low.
NETWORKS = {"high": (400e9, 1e-4), "medium": (100e9, 1e-3), "low": (10e9, 1e-2)}


def compute(n: float, tokens: float, r: int) -> float:
    """C / (R Q) with C = 6 N D."""
    return 6 * n * tokens / (r * Q_FLOPS)


def all_reduce(n: float, r: int, w: float, eps: float) -> float:
    """(2 N / W) (1 - 1 / R) + eps."""
    return 2 * n * BITS / w * (1 - 1 / r) + eps


def data_parallel(n: float, r: int, w1: float, eps1: float) -> float:
    """Communication of one step of data parallelism across data centres."""
    return all_reduce(n, r, w1, eps1)


def diloco_alone(n: float, r: int, h: int, w1: float, eps1: float) -> float:
    """DiLoCo with one replica: (1 + 1 / H) all-reduces a step."""
    return all_reduce(n, r, w1, eps1) * (1 + 1 / h)


def diloco_inner(n: float, r: int, m: int, w0: float, eps0: float) -> float:
    """The part of DiLoCo inside a data centre: (2 N / W0) (1 - M / R) + eps0."""
    return 2 * n * BITS / w0 * (1 - m / r) + eps0


def diloco_outer(n: float, r: int, h: int, w1: float, eps1: float) -> float:
    """The part of DiLoCo across data centres, a step."""
    return all_reduce(n, r, w1, eps1) / h
