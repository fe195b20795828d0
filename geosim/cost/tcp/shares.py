"""What flows reach of a link while as many go the other way: the window model's answer, as a small table.

Where bulk flows both ways at once, acknowledgements wait behind data, arrive in bunches, and look like delay
or like a full path (Zhang, Shenker and Clark, SIGCOMM 1991). How much of the link is left depends on the
queue's depth over the bandwidth-delay product, and on how many flows have to share: an exchange is over when
the slowest is. The window model (`cost.tcp.exchange`) takes a second for such a path, too long for millions
of policies; so its answers stand here for some depths and flows, lines between them. They are for exchanges of
some twenty bandwidth-delay products after a second of silence (`python -m experiments.two_way_shares`).
"""

from typing import Any

FLOWS = (1, 2, 4, 8)
DEPTHS = (0.5, 1.0, 2.0, 4.0, 8.0)  # of the queue, in bandwidth-delay products; endless: all of the link
SHARES = {
    "cubic": (
        (0.62, 0.72, 0.81, 0.85, 0.90),
        (0.51, 0.59, 0.71, 0.84, 0.90),
        (0.42, 0.46, 0.70, 0.84, 0.90),
        (0.40, 0.47, 0.60, 0.84, 0.90),
    ),
    "reno": (
        (0.62, 0.72, 0.81, 0.85, 0.90),
        (0.51, 0.59, 0.71, 0.84, 0.90),
        (0.42, 0.46, 0.70, 0.84, 0.90),
        (0.40, 0.47, 0.60, 0.84, 0.90),
    ),
    "bbr": (
        (0.95, 0.95, 0.95, 0.95, 0.95),
        (0.95, 0.95, 0.95, 0.95, 0.95),
        (0.95, 0.95, 0.95, 0.95, 0.95),
        (0.95, 0.95, 0.95, 0.95, 0.95),
    ),
}


def two_way_shares(algorithm: str, full_bytes: Any, queue_bytes: Any) -> tuple[Any, ...]:
    """Shares of a link's rate for `FLOWS` flows each way, scalars or traced by JAX.

    Args:
        algorithm: "cubic", "reno" or "bbr".
        full_bytes: the bandwidth-delay product.
        queue_bytes: what the bottleneck buffers each way, above 0.
    """
    load = full_bytes / queue_bytes
    knots = (0.0, *(1 / depth for depth in reversed(DEPTHS)))
    return tuple(_line(load, knots, (1.0, *reversed(row))) for row in SHARES[algorithm])


def share_of(shares: tuple[Any, ...], flows: float) -> Any:
    """The share for any number of flows."""
    return _line(flows, FLOWS, shares)


def _line(at: Any, knots: tuple[float, ...], values: tuple[Any, ...]) -> Any:
    if at <= knots[0]:
        return values[0]
    for i in range(1, len(knots)):
        if at < knots[i]:
            part = (at - knots[i - 1]) / (knots[i] - knots[i - 1])
            return values[i - 1] + part * (values[i] - values[i - 1])
    return values[-1]
