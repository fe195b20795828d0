"""What flows reach of a link while as many go the other way: the window model's answer, as a small table.

Where bulk flows both ways at once, acknowledgements wait behind data, arrive in bunches, and look like delay
or like a full path (Zhang, Shenker and Clark, SIGCOMM 1991). How much of the link is left depends on the
queue's depth over the bandwidth-delay product, on how many flows have to share, since an exchange is over
when the slowest is, and on how long an exchange goes on after slow start has ended. The window model
(`cost.tcp.exchange`) takes a second for such a path, too long for millions of policies; so its answers for
some depths, flows and lengths stand here, of settled connections after a second of silence, put in order so
that no deeper queue and no shorter way lowers a share (`python -m experiments.two_way_shares` prints them).
"""

from typing import Any

FLOWS = (1, 2, 4, 8)
LENGTHS = (6, 12, 24, 120)  # of an exchange, in bandwidth-delay products
DEPTHS = (0.5, 1.0, 2.0, 4.0, 8.0)  # of the queue, in bandwidth-delay products
SHARES = {  # by algorithm, length and number of flows, over the depths
    "cubic": (
        (
            (0.544, 0.628, 0.906, 0.964, 0.976),
            (0.470, 0.551, 0.723, 0.867, 0.883),
            (0.480, 0.495, 0.715, 0.807, 0.888),
            (0.478, 0.495, 0.700, 0.807, 0.875),
        ),
        (
            (0.565, 0.673, 0.860, 0.956, 0.990),
            (0.486, 0.591, 0.711, 0.855, 0.910),
            (0.502, 0.568, 0.660, 0.773, 0.845),
            (0.482, 0.537, 0.653, 0.750, 0.868),
        ),
        (
            (0.580, 0.677, 0.793, 0.930, 0.987),
            (0.535, 0.606, 0.740, 0.838, 0.875),
            (0.506, 0.576, 0.687, 0.751, 0.799),
            (0.486, 0.541, 0.653, 0.713, 0.792),
        ),
        (
            (0.596, 0.693, 0.781, 0.866, 0.950),
            (0.551, 0.622, 0.744, 0.796, 0.853),
            (0.588, 0.608, 0.677, 0.720, 0.771),
            (0.613, 0.661, 0.691, 0.719, 0.748),
        ),
    ),
    "reno": (
        (
            (0.464, 0.566, 0.711, 0.942, 0.990),
            (0.438, 0.478, 0.691, 0.848, 0.951),
            (0.407, 0.407, 0.551, 0.758, 0.863),
            (0.494, 0.543, 0.564, 0.736, 0.855),
        ),
        (
            (0.500, 0.589, 0.721, 0.901, 0.988),
            (0.447, 0.525, 0.609, 0.787, 0.913),
            (0.497, 0.549, 0.551, 0.663, 0.856),
            (0.539, 0.612, 0.612, 0.698, 0.778),
        ),
        (
            (0.532, 0.617, 0.731, 0.867, 0.980),
            (0.525, 0.582, 0.682, 0.746, 0.831),
            (0.558, 0.624, 0.624, 0.645, 0.751),
            (0.543, 0.634, 0.699, 0.700, 0.740),
        ),
        (
            (0.582, 0.676, 0.768, 0.860, 0.935),
            (0.556, 0.623, 0.782, 0.818, 0.861),
            (0.574, 0.651, 0.715, 0.811, 0.811),
            (0.595, 0.655, 0.731, 0.836, 0.852),
        ),
    ),
    "bbr": (
        (
            (0.893, 0.893, 0.962, 0.973, 0.990),
            (0.896, 0.896, 0.940, 0.962, 0.987),
            (0.898, 0.898, 0.929, 0.955, 0.985),
            (0.873, 0.890, 0.925, 0.953, 0.985),
        ),
        (
            (0.935, 0.951, 0.960, 0.967, 0.983),
            (0.912, 0.912, 0.934, 0.950, 0.979),
            (0.902, 0.902, 0.923, 0.940, 0.975),
            (0.877, 0.894, 0.917, 0.938, 0.973),
        ),
        (
            (0.955, 0.955, 0.959, 0.964, 0.975),
            (0.916, 0.916, 0.929, 0.943, 0.962),
            (0.906, 0.906, 0.919, 0.931, 0.954),
            (0.881, 0.898, 0.910, 0.928, 0.951),
        ),
        (
            (0.971, 0.971, 0.971, 0.971, 0.973),
            (0.932, 0.932, 0.932, 0.937, 0.948),
            (0.922, 0.922, 0.922, 0.927, 0.938),
            (0.900, 0.914, 0.914, 0.920, 0.933),
        ),
    ),
}


def two_way_shares(algorithm: str, full_bytes: Any, queue_bytes: Any, length: int) -> tuple[Any, ...]:
    """Shares of a link's rate for `FLOWS` flows each way, scalars or traced by JAX.

    Lines over the depth lie between the table's entries, so that what is carried never falls as the rate
    rises; beyond the deepest the share goes to 1, as nothing is dropped of an endless queue.

    Args:
        algorithm: "cubic", "reno" or "bbr".
        full_bytes: the bandwidth-delay product.
        queue_bytes: what the bottleneck buffers each way, above 0.
        length: one of `LENGTHS`.
    """
    load, rows = full_bytes / queue_bytes, SHARES[algorithm][LENGTHS.index(length)]
    if load * DEPTHS[-1] <= 1:
        return tuple(1.0 - (1.0 - row[-1]) * load * DEPTHS[-1] for row in rows)
    return tuple(_line(1 / load, DEPTHS, row) for row in rows)


def share_of(shares: tuple[Any, ...], flows: float) -> Any:
    """The share for any number of flows."""
    return _line(flows, FLOWS, shares)


def shares_at(by_length: tuple[tuple[Any, ...], ...], length: Any) -> tuple[Any, ...]:
    """Shares for an exchange of any length, between those of `LENGTHS`."""
    return tuple(_line(length, LENGTHS, shares) for shares in zip(*by_length, strict=True))


def _line(at: Any, knots: tuple[float, ...], values: tuple[Any, ...]) -> Any:
    if at <= knots[0]:
        return values[0]
    for i in range(1, len(knots)):
        if at < knots[i]:
            part = (at - knots[i - 1]) / (knots[i] - knots[i - 1])
            return values[i - 1] + part * (values[i] - values[i - 1])
    return values[-1]
