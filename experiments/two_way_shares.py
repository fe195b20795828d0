"""What flows reach of a link while as many go the other way: the table of `cost.tcp.shares`.

    python -m experiments.two_way_shares            # 8 minutes

With a quarter of a second of silence before each, as between windows of a few steps: what an exchange takes
beyond its first third, at most 8 bandwidth-delay products, over what the link would take; mean over paths,
exchanges, directions and seeds. The longest exchanges only on the shorter path.
"""

from statistics import fmean

import numpy as np
from rich.table import Table

from experiments.console import console
from experiments.exchange_alone.predict import APART_S
from geosim.cost.tcp.exchange import Duplex, exchanges
from geosim.cost.tcp.shares import DEPTHS, FLOWS, LENGTHS

_PATHS = ((170, 0.02), (500, 0.06))  # segments in a round trip, round trip
_MOST_FIRST = 8
_SEEDS = 2
_GAP_S = 0.25


def stream_share(
    algorithm: str, length: float, flows: int, depth: float, full_segments: int, rtt_s: float, seed: int = 0
) -> float:
    """Share of a link's rate after the ramp, mean over directions and three exchanges.

    Args:
        algorithm, flows: of each direction.
        length: of an exchange each way, in bandwidth-delay products.
        depth: of the queue, in bandwidth-delay products.
        full_segments, rtt_s: bandwidth-delay product and round trip.
        seed: of what sets flows apart.
    """
    full = full_segments * 1500.0
    link = Duplex(
        full / rtt_s, rtt_s, depth * full, window_segments=10**6, algorithm=algorithm, apart_s=APART_S,
        seed=seed,
    )  # fmt: skip
    size = -(-int(length * full_segments) // flows)
    first = min(_MOST_FIRST, length / 3) * full_segments
    shares = []
    for progress in exchanges(link, size, flows, 4, _GAP_S)[1:]:
        for way in progress.received:
            times, received = np.array(way).T
            begin, end = np.interp((first, size * flows), received, times)
            shares.append((size * flows - first) / full_segments * rtt_s / (end - begin))
    return fmean(shares)


def main() -> None:
    """Print the table."""
    table = Table(box=None, pad_edge=False)
    for head in ("", "length", "flows", *(f"queue {depth:g} BDP" for depth in DEPTHS)):
        table.add_column(head, justify="right")
    for algorithm in ("cubic", "reno", "bbr"):
        for length in LENGTHS:
            for flows in FLOWS:
                row = [
                    fmean(
                        stream_share(algorithm, length, flows, depth, *path, seed)
                        for path in (_PATHS[:1] if length == LENGTHS[-1] else _PATHS)
                        for seed in range(_SEEDS)
                    )
                    for depth in DEPTHS
                ]
                print(algorithm, length, flows, [round(v, 2) for v in row], flush=True)
                table.add_row(algorithm, f"{length:g}", str(flows), *(f"{share:.2f}" for share in row))
    console.print(table)


if __name__ == "__main__":
    main()
