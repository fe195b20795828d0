"""What flows reach of a link while as many go the other way: the table of `cost.tcp.shares`.

    python -m experiments.two_way_shares            # 5 minutes

With a second of silence before each, as in `experiments.exchange_alone`: the share at which the law of
`cost.transport` has to stream, after its slow start, so that an exchange takes as long as in the window
model; mean over paths, exchanges and seeds. The longest exchanges only on the shorter path.
"""

from statistics import fmean

from rich.table import Table

from experiments.console import console
from experiments.exchange_alone.predict import APART_S
from geosim.cost.tcp.exchange import Duplex, exchanges
from geosim.cost.tcp.shares import DEPTHS, FLOWS, LENGTHS
from geosim.cost.transport import make_path, slow_start, window_after, window_restart
from geosim.scenario import WanLink

_PATHS = ((170, 0.02), (500, 0.06))  # segments in a round trip, round trip
_SEEDS = 2
_GAP_S = 1.0
_COUNT = 4
_ENDLESS = 10**6  # segments


def stream_share(
    algorithm: str, length: float, flows: int, depth: float, full_segments: int, rtt_s: float, seed: int = 0
) -> float:
    """Share of a link's rate after the ramp, mean over all exchanges but the first.

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
    took = fmean(p.seconds - rtt_s / 2 for p in exchanges(link, segments, flows, _COUNT, _GAP_S)[1:])
    early, late = zip(*_ramps(link, segments * flows * link.segment_bytes, flows)[1:], strict=True)
    return fmean(late) / link.rate_bytes_per_s / max(took - fmean(early), 1e-9)


def _ramps(link: Duplex, size_bytes: float, flows: int) -> list[tuple[float, float]]:
    """Of each exchange by the law: seconds of slow start, and bytes that are left then."""
    wan = WanLink(
        between=("a", "b"), bandwidth_bytes_per_s=link.rate_bytes_per_s, rtt_s=link.rtt_s,
        congestion_control=link.algorithm, window_bytes=_ENDLESS * 1448.0, queue_bytes=link.queue_bytes,
    )  # fmt: skip
    path = make_path(wan, "a", two_way=True).for_exchange(size_bytes, flows)
    limit, first = path.window_limit(flows), path.initial_window(flows)
    window, out = first, []
    for k in range(_COUNT):
        if k:
            window = float(window_restart(window, _GAP_S, first, path.rto_s, path.restarts))
        out.append(
            slow_start(size_bytes, path.rate_bytes_per_s, path.rtt_s, window, limit, path.stream_rate(flows))
        )
        window = float(window_after(window, size_bytes, limit))
    return out


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
