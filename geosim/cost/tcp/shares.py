"""What flows reach of a link while as many go the other way: the window model's answer, as a small table.

Where bulk flows both ways at once, acknowledgements wait behind data, arrive in bunches, and look like delay
or like a full path (Zhang, Shenker and Clark, SIGCOMM 1991). How much of the link is left depends on the
queue's depth over the bandwidth-delay product, on how many flows have to share, since an exchange is over
when the slowest is, and on how long an exchange goes on after slow start has ended. The window model
(`cost.tcp.exchange`) takes a second for such a path, too long for millions of policies; so its answers for
some depths, flows and lengths stand here, of settled connections after a second of silence, made never to
fall with the depth (`python -m experiments.two_way_shares` prints them anew).
"""

from typing import Any

FLOWS = (1, 2, 4, 8)
LENGTHS = (6, 12, 24, 120)  # of an exchange, in bandwidth-delay products
DEPTHS = (0.5, 1.0, 2.0, 4.0, 8.0)  # of the queue, in bandwidth-delay products
SHARES = {  # by algorithm, length and number of flows, over the depths
    "cubic": (
        (
            (0.54, 0.63, 0.96, 0.97, 0.97),
            (0.42, 0.52, 0.7, 0.86, 0.86),
            (0.44, 0.45, 0.71, 0.87, 0.87),
            (0.43, 0.45, 0.72, 0.86, 0.86),
        ),
        (
            (0.56, 0.7, 0.84, 0.96, 1.0),
            (0.47, 0.58, 0.7, 0.87, 0.92),
            (0.49, 0.56, 0.64, 0.74, 0.83),
            (0.46, 0.53, 0.62, 0.75, 0.83),
        ),
        (
            (0.59, 0.66, 0.79, 0.92, 1.0),
            (0.53, 0.63, 0.74, 0.83, 0.85),
            (0.49, 0.57, 0.68, 0.77, 0.77),
            (0.47, 0.52, 0.65, 0.69, 0.75),
        ),
        (
            (0.59, 0.69, 0.78, 0.86, 0.93),
            (0.55, 0.6, 0.74, 0.79, 0.85),
            (0.59, 0.61, 0.68, 0.72, 0.77),
            (0.61, 0.66, 0.69, 0.72, 0.74),
        ),
    ),
    "reno": (
        (
            (0.44, 0.56, 0.71, 1.0, 1.0),
            (0.39, 0.43, 0.68, 0.95, 0.95),
            (0.36, 0.36, 0.52, 0.84, 0.84),
            (0.44, 0.5, 0.53, 0.85, 0.85),
        ),
        (
            (0.49, 0.59, 0.72, 0.87, 1.0),
            (0.43, 0.52, 0.58, 0.85, 0.88),
            (0.48, 0.54, 0.54, 0.6, 0.81),
            (0.54, 0.62, 0.62, 0.66, 0.76),
        ),
        (
            (0.53, 0.62, 0.73, 0.87, 0.96),
            (0.52, 0.58, 0.68, 0.69, 0.74),
            (0.56, 0.62, 0.62, 0.64, 0.73),
            (0.52, 0.63, 0.72, 0.72, 0.72),
        ),
        (
            (0.58, 0.68, 0.77, 0.86, 0.93),
            (0.55, 0.62, 0.78, 0.82, 0.86),
            (0.57, 0.65, 0.71, 0.85, 0.85),
            (0.59, 0.65, 0.73, 0.84, 0.85),
        ),
    ),
    "bbr": (
        (
            (0.88, 0.88, 0.99, 0.99, 0.99),
            (0.88, 0.88, 0.98, 0.99, 0.99),
            (0.89, 0.89, 0.97, 0.99, 0.99),
            (0.86, 0.9, 0.97, 0.99, 0.99),
        ),
        (
            (0.93, 0.96, 0.96, 0.98, 0.98),
            (0.95, 0.95, 0.96, 0.98, 0.98),
            (0.94, 0.95, 0.97, 0.97, 0.97),
            (0.86, 0.92, 0.94, 0.96, 0.96),
        ),
        (
            (0.97, 0.97, 0.97, 0.97, 0.97),
            (0.94, 0.95, 0.95, 0.95, 0.95),
            (0.92, 0.93, 0.93, 0.93, 0.93),
            (0.87, 0.91, 0.91, 0.91, 0.91),
        ),
        (
            (0.97, 0.98, 0.98, 0.98, 0.98),
            (0.92, 0.92, 0.92, 0.92, 0.92),
            (0.91, 0.91, 0.91, 0.91, 0.91),
            (0.9, 0.9, 0.9, 0.9, 0.9),
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
