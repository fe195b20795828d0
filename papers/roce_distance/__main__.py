"""`python -m papers.roce_distance`: what a ring is left with over distance, as a table and a figure."""

import sys
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from geosim.console import run_quietly
from geosim.cost import ring, roce
from geosim.report.style import CYCLE, drawing
from geosim.scenario import Nccl, WanLink
from geosim.units import BANDWIDTH, parse
from papers.arguments import Arguments

FIGURE = Path(__file__).resolve().parents[2] / "docs/figures/ring_over_distance.png"
RATE = parse("100 Gbit/s", BANDWIDTH)
MIB = 1 << 20
FLIGHTS = ((2, 4), (2, 8), (16, 4), (16, 64))  # channels, MiB of a buffer; the first is NCCL's own
KM = (1, 10, 100, 500, 2000, 10_000)
_RANKS = 16
_SIZE_BYTES = 1e12  # so large that only bandwidth shows
_MTU_BYTES = 4200.0
_GBIT = 1e9 / 8


def bus_gbit(rtt_s: float, channels: int, buffer_bytes: float) -> float:
    """Bus bandwidth of a ring all-reduce over two sites whose NICs are as fast as the link, Gbit/s."""
    link = WanLink(between=("a", "b"), bandwidth_bytes_per_s=RATE, rtt_s=rtt_s, mtu_bytes=_MTU_BYTES)
    path = roce.make_path(link, RATE, Nccl(net="ib"), channels, buffer_bytes, RATE)
    edge = ring.Edge(path, 1 / roce.payload_share(_MTU_BYTES), channels)
    took = ring.nccl_times(np.array([_SIZE_BYTES]), _RANKS, (edge, edge), channels * buffer_bytes)[0]
    return float(ring.crossing_bytes(_SIZE_BYTES, _RANKS) / took / _GBIT)


def print_table() -> None:
    """Gbit/s by distance and bytes in flight, and the buffer of 16 channels that restores all of it."""
    table = Table(box=None, pad_edge=False)
    for head in ("km", "RTT, ms", *(f"{n} x {b} MiB" for n, b in FLIGHTS), "16 channels need, MiB each"):
        table.add_column(head, justify="right")
    for km in KM:
        rtt = roce.fibre_rtt(km)
        each = roce.full_flight(RATE, rtt) * roce.payload_share(_MTU_BYTES) / 16 / MIB
        cells = (f"{bus_gbit(rtt, n, b * MIB):.3g}" for n, b in FLIGHTS)
        table.add_row(f"{km:,}", f"{1e3 * rtt:.3g}", *cells, f"{each:.3g}")
    Console(width=120, highlight=False).print(table)


def draw(path: Path = FIGURE) -> None:
    """Bus bandwidth over distance, a line for each number of bytes in flight."""
    km = np.geomspace(KM[0], KM[-1], 200)
    with drawing(path, 1, 1, (5.0, 3.2)) as axes:
        (ax,) = axes
        for colour, (n, b) in zip(CYCLE, FLIGHTS, strict=False):
            gbit = [bus_gbit(roce.fibre_rtt(x), n, b * MIB) for x in km]
            ax.plot(km, gbit, color=colour, label=f"{n} channels x {b} MiB")
        ax.set_xscale("log")
        ax.set_yscale("log")
        ax.set_xlabel("fibre, km")
        ax.set_ylabel("ring all-reduce, Gbit/s")
        ax.legend(fontsize=7)


def main() -> int:
    """Table and figure."""
    Arguments("python -m papers.roce_distance", description=str(__doc__)).parse_args()
    print_table()
    draw()
    return 0


if __name__ == "__main__":
    sys.exit(run_quietly(main, "roce_distance"))
