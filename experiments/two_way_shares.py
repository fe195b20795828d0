"""What flows reach of a link while as many go the other way: the table of `cost.tcp.shares`.

    python -m experiments.two_way_shares               # from the exchanges that are committed; seconds
    python -m experiments.two_way_shares --simulate    # simulates them anew; 20 minutes on 2 cores

The window model's exchanges are those of settled connections (40 exchanges before, or as many as carry 1,000
bandwidth-delay products), with a second of silence before each, as in `experiments.exchange_alone`; the
longest only on the shorter path. A share is that with which the law of `cost.sending` takes as long, 1 at
most, mean over seeds and paths. The table is the nearest one to these means (least squares) in which neither
a deeper queue lowers a share nor a shorter way, whether the queue stays or is a bandwidth-delay product;
there a share rises by a little, as the table is rounded, and so none is above 0.99.
"""

import json
import math
import os
from collections import defaultdict
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Annotated

import numpy as np
import typer
from joblib import Parallel, delayed
from rich.console import Console
from rich.progress import track
from rich.table import Table
from scipy.optimize import brentq, nnls

from experiments.console import console, run_app
from experiments.exchange_alone.predict import APART_S
from geosim.cost.sending import send_time, window_after, window_restart
from geosim.cost.tcp.exchange import Duplex, exchanges
from geosim.cost.tcp.shares import DEPTHS, FLOWS, LENGTHS
from geosim.cost.transport import make_path
from geosim.files import whole_file
from geosim.scenario import WanLink

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
RESULTS = Path(__file__).resolve().parent / "results" / "two_way_exchanges.json"
_PATHS = ((170, 0.02), (500, 0.06))  # segments in a round trip, round trip
_SEEDS = 3
_GAP_S = 1.0
_COUNT = 5
_ENDLESS = 10**6  # segments
_SETTLED_EXCHANGES, _SETTLED_PRODUCTS = 40, 1000
_MARGIN = 4e-3  # by which a share rises where it may not fall: what rounding may take away
_MOST = 0.99  # of the table, which so can rise

# algorithm, length in bandwidth-delay products, flows each way, depth of the queue in products, segments in a
# round trip, round trip in seconds
Case = tuple[str, float, int, float, int, float]
Shares = dict[tuple[str, float, int, float], float]


def simulated(case: Case, seed: int) -> float:
    """Seconds of an exchange by the window model, mean over exchanges on settled connections."""
    link, segments = _link(case, seed), _segments(case)
    skip = before(case[0], case[1])
    return fmean(p.seconds for p in exchanges(link, segments, case[2], skip + _COUNT, _GAP_S)[skip:])


def share_of(case: Case, seconds: float) -> float:
    """The share at which the law takes as long as the window model; 1 at most."""
    link, flows = _link(case), case[2]
    size = _segments(case) * flows * link.segment_bytes
    wan = WanLink(
        between=("a", "b"), bandwidth_bytes_per_s=link.rate_bytes_per_s, rtt_s=link.rtt_s,
        congestion_control=link.algorithm, window_bytes=_ENDLESS * 1448.0, queue_bytes=link.queue_bytes,
    )  # fmt: skip
    path = make_path(wan, "a", two_way=True).for_exchange(size, flows)
    limit, first = path.window_limit(flows), path.initial_window(flows)
    window = first
    for _ in range(before(case[0], case[1]) + _COUNT - 1):
        after = window_after(window, size, limit)
        window = float(window_restart(after, _GAP_S, first, path.rto_s, path.restarts))

    def over(share: float) -> float:
        rate = path.rate_bytes_per_s
        sending = send_time(size, rate, path.rtt_s, window, limit, share * rate, path.paced)
        return float(sending) + path.rtt_s / 2 - seconds

    return 1.0 if over(1.0) >= 0 else float(brentq(over, 0.01, 1.0, xtol=1e-9))


def before(algorithm: str, length: float) -> int:
    """Exchanges after which connections count as settled; BBR keeps no threshold."""
    return 1 if algorithm == "bbr" else min(_SETTLED_EXCHANGES, math.ceil(_SETTLED_PRODUCTS / length))


def _link(case: Case, seed: int = 0) -> Duplex:
    algorithm, _, _, depth, full_segments, rtt_s = case
    full = full_segments * 1500.0
    return Duplex(
        full / rtt_s, rtt_s, depth * full, window_segments=_ENDLESS, algorithm=algorithm, apart_s=APART_S,
        seed=seed,
    )  # fmt: skip


def _segments(case: Case) -> int:
    """What each flow sends."""
    return -(-int(case[1] * case[4]) // case[2])


def cases() -> list[Case]:
    """All of them, the longest first."""
    of = product(("cubic", "reno", "bbr"), LENGTHS, FLOWS, DEPTHS, _PATHS)
    every = [(*case, *path) for *case, path in of if path == _PATHS[0] or case[1] != LENGTHS[-1]]
    return sorted(every, key=lambda case: -case[1] * case[4])


def simulate() -> dict[Case, list[float]]:
    """Seconds of every case, one a seed."""
    every = cases()
    jobs = [(case, seed) for case in every for seed in range(_SEEDS)]
    run = Parallel(os.cpu_count(), return_as="generator")(delayed(simulated)(*job) for job in jobs)
    seconds = list(track(run, "exchanges", len(jobs), console=Console(stderr=True)))
    return {case: seconds[_SEEDS * i :][:_SEEDS] for i, case in enumerate(every)}


def load(file: Path = RESULTS) -> dict[Case, list[float]]:
    """Seconds of every case, one a seed."""
    return {tuple(case): seconds for case, seconds in json.loads(file.read_text())}


def means(seconds: dict[Case, list[float]]) -> Shares:
    """The shares as they are, mean over paths and seeds."""
    found = defaultdict(list)
    for case, each in seconds.items():
        found[case[:4]] += [share_of(case, one) for one in each]
    return {entry: fmean(shares) for entry, shares in found.items()}


def between_paths(seconds: dict[Case, list[float]]) -> Shares:
    """How far apart the shares on two paths are, each mean over seeds."""
    found = defaultdict(list)
    for case, each in seconds.items():
        found[case[:4]].append(fmean(share_of(case, one) for one in each))
    return {entry: abs(shares[0] - shares[1]) for entry, shares in found.items() if len(shares) == 2}


def in_order(wanted: Shares) -> Shares:
    """The nearest shares that no deeper queue and no shorter way lowers."""
    rises, least = _rises()
    table: Shares = {}
    for algorithm, flows in dict.fromkeys((entry[0], entry[2]) for entry in wanted):
        entries = [(algorithm, length, flows, depth) for length in LENGTHS for depth in DEPTHS]
        aim = np.array([wanted[entry] for entry in entries])
        shares = aim + _shortest(rises, least - rises @ aim)
        table |= zip(entries, shares.round(3).tolist(), strict=True)
    return table


def _shortest(rows: np.ndarray, least: np.ndarray) -> np.ndarray:
    """The shortest x with rows @ x >= least (Lawson and Hanson, Solving Least Squares Problems, 23.4)."""
    dual, _ = nnls(np.vstack([rows.T, least]), np.eye(rows.shape[1] + 1)[-1])
    residual = np.append(rows.T @ dual, least @ dual - 1)
    return np.asarray(-residual[:-1] / residual[-1])


def _rises() -> tuple[np.ndarray, np.ndarray]:
    """What has to be at least how much: rows of factors of the table's entries, length by length.

    On a shorter way an exchange is longer and the queue, if it stays, deeper, both in bandwidth-delay
    products: a share s may not fall along a ray, l ds/dl + d ds/dd >= 0. Between four entries s is bilinear
    in length and depth, and so is that sum, so that it is least at one of them.
    """
    count = len(LENGTHS) * len(DEPTHS)
    entry = np.eye(count).reshape(len(LENGTHS), len(DEPTHS), count)
    longer = np.diff(entry, axis=0) / np.diff(LENGTHS)[:, None, None]
    deeper = np.diff(entry, axis=1) / np.diff(DEPTHS)[:, None]
    rows = [(row, 0.0) for row in deeper.reshape(-1, count)]
    rows += [(-row, -_MOST) for row in np.eye(count)]
    for i, j in product(range(len(LENGTHS)), range(len(DEPTHS))):
        along = [LENGTHS[i] * longer[k] for k in (i - 1, i) if 0 <= k < len(LENGTHS) - 1]
        down = [DEPTHS[j] * deeper[:, k] for k in (j - 1, j) if 0 <= k < len(DEPTHS) - 1]
        rows += [(a[j] + d[i], _MARGIN) for a in along for d in down]
        if DEPTHS[j] in (DEPTHS[0], 1.0):  # above the shallowest, and with a queue of a product, for itself
            rows += [(a[j], _MARGIN) for a in along]
        if j == len(DEPTHS) - 1:  # below the deepest 1 - s falls as one over the depth
            rows += [(a[j] - entry[i, j], _MARGIN - 1.0) for a in along]
    return np.array([row for row, _ in rows]), np.array([least for _, least in rows])


@app.command()
def main(
    anew: Annotated[bool, typer.Option("--simulate", help="simulate and keep the exchanges anew")] = False,
) -> None:
    """Print the table."""
    if anew:
        lines = ",\n".join(json.dumps([case, seconds]) for case, seconds in simulate().items())
        with whole_file(RESULTS) as part:
            part.write_text(f"[\n{lines}\n]\n")
    wanted = means(load())
    shares = in_order(wanted)
    table = Table(box=None, pad_edge=False)
    for head in ("", "length", "flows", *(f"queue {depth:g} BDP" for depth in DEPTHS)):
        table.add_column(head, justify="right")
    for algorithm, length, flows in product(("cubic", "reno", "bbr"), LENGTHS, FLOWS):
        row = (f"{shares[algorithm, length, flows, depth]:.3f}" for depth in DEPTHS)
        table.add_row(algorithm, f"{length:g}", str(flows), *row)
    console.print(table)
    moved = {entry: abs(shares[entry] - wanted[entry]) for entry in shares}
    far = max(moved, key=lambda entry: moved[entry])
    console.print(
        f"Moved to be in order by {fmean(moved.values()):.3f} in the mean, at most {moved[far]:.3f}: {far}."
    )
    apart = list(between_paths(load()).values())
    console.print(
        f"Two paths of an entry lie {max(apart):.2f} apart at most,"
        f" {sum(gap > 0.1 for gap in apart)} of {len(apart)} more than 0.1."
    )


if __name__ == "__main__":
    run_app(app, "two_way_shares")
