"""What the window model and the simulator's law say of a point."""

import math
from statistics import fmean, median

from experiments.exchange_alone.grid import Point
from geosim.cost.sending import window_after, window_restart
from geosim.cost.tcp.exchange import Duplex, exchanges
from geosim.cost.transport import make_path, time_under_loss, wire_bytes
from geosim.scenario import WanLink

MSS = 1448
WINDOW_SEGMENTS = 2000  # what Linux's 4 MiB of socket buffer hold, 0.69 of them data
_LEAST_QUEUE_BYTES = 256 * 1024
# What the emulated link adds: `ping_s` of the results, less the round trip, for one direction.
WAKE_S = 2.5e-4
# How an end's threads begin one after the other: `began_s` of the results.
APART_S = 2e-4
COPY_BYTES_PER_S = 4.5e9
_LOSSY_SEEDS = 60
_SETTLED_SEEDS = 5


def link_of(point: Point, seed: int = 0) -> Duplex:
    """The point's link for the window model."""
    full = point.rate_bytes_per_s * point.rtt_s
    return Duplex(
        point.rate_bytes_per_s, point.rtt_s, max(full, _LEAST_QUEUE_BYTES),
        window_segments=WINDOW_SEGMENTS, algorithm=point.algorithm, loss=point.loss, wake_s=WAKE_S, seed=seed,
        apart_s=APART_S, copy_bytes_per_s=COPY_BYTES_PER_S,
    )  # fmt: skip


def segments_of(point: Point) -> int:
    """What each of its connections sends, in full segments."""
    return math.ceil(math.ceil(point.size_bytes / point.flows) / MSS)


def exchanges_of(point: Point, count: int, seed: int = 0) -> list[float]:
    """Seconds of the first exchanges on one set of connections, by the window model."""
    link, size = link_of(point, seed), segments_of(point)
    return [p.seconds for p in exchanges(link, size, point.flows, count, point.gap_s, point.both)]


def by_windows(point: Point, repeats: int, sets: int = 1) -> float:
    """Median seconds of the exchanges that are measured, or their mean where packets are lost.

    Args:
        point: whose.
        repeats: how many exchanges of each set of connections were measured.
        sets: how many sets; of settled connections several are simulated for the one that was measured.
    """
    size = segments_of(point)
    if point.loss:
        return fmean(
            exchanges(link_of(point, seed), size, point.flows, 1, 0.0)[0].seconds
            for seed in range(_LOSSY_SEEDS)
        )
    if point.fresh:
        return median(
            exchanges(link_of(point, seed), size, point.flows, 1, 0.0, point.both)[0].seconds
            for seed in range(repeats)
        )
    return median(
        median(exchanges_of(point, point.before + repeats, seed)[point.before :])
        for seed in range(max(sets, _SETTLED_SEEDS if point.settled else 1))
    )


def by_law(point: Point, repeats: int) -> float:
    """Seconds of the last of the exchanges by `cost.transport`, with the round trip that a ping would say.

    Without loss as engine and closed form compute them; those take connections that have lost before.
    """
    link = WanLink(
        between=("a", "b"), bandwidth_bytes_per_s=point.rate_bytes_per_s, rtt_s=point.rtt_s + 2 * WAKE_S,
        loss=point.loss, congestion_control=point.algorithm, window_bytes=WINDOW_SEGMENTS * MSS,
    )  # fmt: skip
    size = wire_bytes(point.size_bytes, link)
    path = make_path(link, "a", point.both).for_exchange(size, point.flows)
    limit, first = path.open_limit(point.flows), path.initial_window(point.flows)
    window, seconds = first, 0.0
    for k in range(1 if point.fresh else point.before + repeats):
        if k:
            window = float(window_restart(window, point.gap_s, first, path.rto_s, path.restarts))
        seconds = float(time_under_loss(size, path, point.flows, window, k * size))
        window = float(window_after(window, size, limit))
    return seconds + path.rtt_s / 2
