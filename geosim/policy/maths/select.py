"""Which values travel: top-k, random-k, or all; ascending indices, ties to the lower one, static sizes."""

from geosim.policy.codec import kept_in_section
from geosim.policy.maths import backend, counter
from geosim.policy.maths.backend import Array
from geosim.policy.maths.counter import Key
from geosim.policy.select import Dense, RandomK, TopK, kept

_MAGNITUDE = 0x7FFFFFFF


def select(u: Array, how: Dense | TopK | RandomK, key: Key) -> Array | None:
    """Positions of the values of one section that travel.

    Args:
        u: fp32 [numel].
        how: the selection.
        key: for random-k; `site` is not used, so all sites draw alike.

    Returns:
        Ascending indices [kept_in_section(how, numel)], or None where everything travels.
    """
    numel = u.shape[0]
    if kept_in_section(how, numel) == numel:
        return None
    if isinstance(how, RandomK):
        return random_positions(u, how, numel, key)
    # The bits of non-negative fp32 values order as the values do, denormal ones included.
    return _largest(backend.float_bits(u) & _MAGNITUDE, how, numel)


def random_positions(like: Array, how: RandomK, numel: int, key: Key) -> Array | None:
    """Positions that random-k draws: those with the largest counter bits; None where all travel."""
    if kept_in_section(how, numel) == numel:
        return None
    return _largest(counter.position_bits(like, key, numel), how, numel)


def _largest(order: Array, how: Dense | TopK | RandomK, numel: int) -> Array:
    """Indices of the largest of `order` (non-negative integers [numel]) in each scope of a selection."""
    assert not isinstance(how, Dense)
    xp = backend.namespace(order)
    block = how.scope if isinstance(how.scope, int) else numel
    whole = numel // block * block
    masks = []
    for part, width in ((order[:whole], block), (order[whole:], numel - whole)):
        if part.shape[0]:
            rows = xp.reshape(part, (-1, width))
            masks.append(xp.reshape(largest_mask(rows, kept(width, how.ratio)), (-1,)))
    mask = masks[0] if len(masks) == 1 else xp.concat(masks)
    return backend.ascending(mask, kept_in_section(how, numel))


def largest_mask(order: Array, k: int) -> Array:
    """True at the k largest of each row of non-negative integers [rows, n]; ties to the lower index."""
    xp = backend.namespace(order)
    threshold = backend.kth_largest(order, k)
    above = order > threshold
    tied = order == threshold
    missing = k - xp.sum(above, axis=-1, keepdims=True)
    return above | (tied & (backend.running_count(tied) <= missing))
