"""What `geosim.cost.roce` says to what was measured over fibre."""

from pathlib import Path

from geosim.cost import roce
from geosim.units import BANDWIDTH, parse
from papers.rows import read

_LOOPS = Path(__file__).parent / "fibre_rtt.csv"
_GBIT = 1e9 / 8
_RATE = parse("100 Gbit/s", BANDWIDTH)
_MESSAGE_BYTES = 64 * 1024
_MESSAGES, _PAIRS = 64, 16
_PACKET_BYTES = 4096
_HALL_S = 1e-4


def _gbit(km: float, flight_bdp: float, mark_rtts: float | None = None) -> float:
    """Gbit/s over a fibre by bytes in flight and where marks begin, in bandwidth-delay products."""
    full = roce.full_flight(_RATE, roce.fibre_rtt(km))
    rate = roce.window_rate(_RATE, roce.fibre_rtt(km), flight_bdp * full)
    share = 1.0 if mark_rtts is None else roce.mark_share(mark_rtts * full, full)
    return rate * share / _GBIT


def reproduce() -> dict[str, float]:
    """Our value of every claim, in the claim's unit."""
    loops = [(float(row["km"]), 1e-6 * float(row["rtt_us"])) for row in read(_LOOPS)]
    far = roce.full_flight(_RATE, roce.fibre_rtt(500))
    hall = roce.full_flight(_RATE, _HALL_S) / _PACKET_BYTES
    flight = _PAIRS * _MESSAGES * _MESSAGE_BYTES / far
    return {
        "RD-rtt": 100 * max(abs(roce.fibre_rtt(km) / rtt - 1) for km, rtt in loops),
        "RD-flight": flight,
        "RD-500-16": _gbit(500, flight, 0.75),
        "RD-500-8": _gbit(500, 1.7, 0.75),
        "RD-200": _gbit(200, flight, 0.5),
        "RD-loss": 100 * roce.go_back_n(1e-5, hall),
        "flight_gbit": _gbit(500, flight),
        "quarter_gbit": _gbit(500, flight / 4),
        "eight_gbit": _gbit(500, 1.0),
        "mark_500": 100 * (1 - roce.mark_share(0.75 * far, far)),
        "far_loss": 100 * roce.go_back_n(1e-5, far / _PACKET_BYTES),
        "far_loss_16": 100 * roce.go_back_n(1e-5, far / _PACKET_BYTES / _PAIRS),
        "hall_4": 100 * roce.go_back_n(1e-4, hall),
        "hall_3": 100 * roce.go_back_n(1e-3, hall),
    }
