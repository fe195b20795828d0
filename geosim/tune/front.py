"""The front: what each further bit of aggressiveness buys in throughput."""

from collections.abc import Sequence

import numpy as np


def front(throughput: np.ndarray, order: Sequence[int], least_gain: float = 0.0, keep: int = -1) -> list[int]:
    """Indices of the policies that no less aggressive one matches.

    Args:
        throughput: of every policy; NaN where it is unknown.
        order: indices from the least to the most aggressive.
        least_gain: gain over the last policy on the front, in units of throughput, that earns a place.
        keep: index of a policy that is not left out for a small gain.

    Returns:
        Indices from the least aggressive to the fastest; throughput rises strictly along them.
    """
    out: list[int] = []
    best = 0.0
    for i in order:
        if throughput[i] > best + (0.0 if i == keep or not out else least_gain):
            out.append(int(i))
            best = throughput[i]
    return out


def first_within(throughput: np.ndarray, order: Sequence[int], tolerance: float) -> int:
    """The least aggressive policy whose throughput is within `tolerance` of the best."""
    floor = np.nanmax(throughput) * (1 - tolerance)
    return next(int(i) for i in order if throughput[i] >= floor)
