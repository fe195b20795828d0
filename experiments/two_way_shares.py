"""What flows reach of a link while as many go the other way: the table of `cost.tcp.shares`.

    python -m experiments.two_way_shares            # 20 minutes on 2 cores

On settled connections (40 exchanges before, or as many as carry 1,000 bandwidth-delay products), with a
second of silence before each exchange, as in `experiments.exchange_alone`: the share at which the law of
`cost.transport` has to stream, after its slow start, so that an exchange takes as long as in the window
model; mean over exchanges, seeds and paths, made never to fall with the depth. The longest exchanges only on
the shorter path.
"""

import math
import os
from collections import defaultdict
from itertools import accumulate, product
from statistics import fmean

from joblib import Parallel, delayed
from rich.console import Console
from rich.progress import track
from rich.table import Table

from experiments.console import console
from experiments.exchange_alone.predict import APART_S
from geosim.cost.tcp.exchange import Duplex, exchanges
from geosim.cost.tcp.shares import DEPTHS, FLOWS, LENGTHS
from geosim.cost.transport import make_path, slow_start, window_after, window_restart
from geosim.scenario import WanLink

_PATHS = ((170, 0.02), (500, 0.06))  # segments in a round trip, round trip
_SEEDS = 3
_GAP_S = 1.0
_COUNT = 5
_ENDLESS = 10**6  # segments
_SETTLED_EXCHANGES, _SETTLED_PRODUCTS = 40, 1000


def stream_share(
    algorithm: str, length: float, flows: int, depth: float, full_segments: int, rtt_s: float, seed: int = 0
) -> float:
    """Share of a link's rate after the ramp, mean over exchanges on settled connections; 1 at most.

    Args:
        algorithm, flows: of each direction.
        length: of an exchange each way, in bandwidth-delay products.
        depth: of the queue, in bandwidth-delay products.
        full_segments, rtt_s: bandwidth-delay product and round trip.
        seed: of what sets flows apart.
    """
    full = full_segments * 1500.0
    link = Duplex(
        full / rtt_s, rtt_s, depth * full, window_segments=_ENDLESS, algorithm=algorithm, apart_s=APART_S,
        seed=seed,
    )  # fmt: skip
    segments = -(-int(length * full_segments) // flows)
    skip = before(algorithm, length)
    took = fmean(
        p.seconds - rtt_s / 2 for p in exchanges(link, segments, flows, skip + _COUNT, _GAP_S)[skip:]
    )
    early, late = _ramp(link, segments * flows * link.segment_bytes, flows, skip + _COUNT)
    return min(1.0, late / link.rate_bytes_per_s / max(took - early, 1e-9))


def before(algorithm: str, length: float) -> int:
    """Exchanges after which connections count as settled; BBR keeps no threshold."""
    return 1 if algorithm == "bbr" else min(_SETTLED_EXCHANGES, math.ceil(_SETTLED_PRODUCTS / length))


def _ramp(link: Duplex, size_bytes: float, flows: int, count: int) -> tuple[float, float]:
    """Of the last of `count` exchanges by the law: seconds of slow start, and bytes that are left then."""
    wan = WanLink(
        between=("a", "b"), bandwidth_bytes_per_s=link.rate_bytes_per_s, rtt_s=link.rtt_s,
        congestion_control=link.algorithm, window_bytes=_ENDLESS * 1448.0, queue_bytes=link.queue_bytes,
    )  # fmt: skip
    path = make_path(wan, "a", two_way=True).for_exchange(size_bytes, flows)
    limit, first = path.window_limit(flows), path.initial_window(flows)
    window, ramp = first, (0.0, 0.0)
    for k in range(count):
        if k:
            window = float(window_restart(window, _GAP_S, first, path.rto_s, path.restarts))
        ramp = slow_start(
            size_bytes, path.rate_bytes_per_s, path.rtt_s, window, limit, path.stream_rate(flows)
        )
        window = float(window_after(window, size_bytes, limit))
    return ramp


def main() -> None:
    """Print the table."""
    paths = {length: _PATHS[:1] if length == LENGTHS[-1] else _PATHS for length in LENGTHS}
    rows = list(product(("cubic", "reno", "bbr"), LENGTHS, FLOWS))
    jobs = [
        (*row, depth, *path, seed)
        for row in rows for depth in DEPTHS for path in paths[row[1]] for seed in range(_SEEDS)
    ]  # fmt: skip
    jobs.sort(key=lambda job: -job[1] * job[4])  # the longest first
    run = Parallel(os.cpu_count(), return_as="generator")(delayed(stream_share)(*job) for job in jobs)
    done = track(run, "shares", len(jobs), console=Console(stderr=True))
    shares = defaultdict(list)
    for job, share in zip(jobs, done, strict=True):
        shares[job[:4]].append(share)
    table = Table(box=None, pad_edge=False)
    for head in ("", "length", "flows", *(f"queue {depth:g} BDP" for depth in DEPTHS)):
        table.add_column(head, justify="right")
    for row in rows:
        means = accumulate((fmean(shares[*row, depth]) for depth in DEPTHS), max)
        table.add_row(row[0], f"{row[1]:g}", str(row[2]), *(f"{mean:.2f}" for mean in means))
    console.print(table)


if __name__ == "__main__":
    main()
