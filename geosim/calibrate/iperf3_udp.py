"""`iperf3 -J -u`: loss of a link where it is not full, its bandwidth where it is."""

from geosim.calibrate.reading import Fact, Reading, Unknown, Value
from geosim.calibrate.source import Fields
from geosim.errors import UsageError
from geosim.units import BANDWIDTH, show

_FULL = 0.05  # beyond this share lost, the link was full
_IP, _UDP, _FRAGMENT = 20, 8, 1480


def read(data: Fields, file: str, version: str, error: str) -> Reading:
    """Loss or bandwidth of one run.

    Raises:
        UsageError: if nothing arrived, or this end does not know what arrived: one line.
    """
    back = data.flag("start.test_start.reverse")
    field, ends = ("back_bandwidth", "server to client") if back else ("bandwidth", "client to server")
    if data.has("end.sum_sent_bidir_reverse"):
        raise UsageError(f"{file}: UDP both ways at once: run each way alone (-u, then -u -R)")
    packets, lost = data.number("end.sum.packets", 0.0), data.number("end.sum.lost_packets", 0.0)
    if not packets or lost >= packets:
        stopped = f" ({error})" if error else ""
        raise UsageError(
            f"{file}: end.sum: no packet is known to have arrived: nothing was measured{stopped}"
        )
    share = lost / packets
    size = data.whole("start.test_start.blksize")
    factor = (size + _UDP + _IP * -(-(size + _UDP) // _FRAGMENT)) / size
    whole = data.number("end.sum.bits_per_second") / 8
    arrived = data.number("end.sum_received.bits_per_second", 8 * whole * (1 - share)) / 8 or whole * (
        1 - share
    )
    wire = arrived * factor
    counted = f"{lost:,.0f} of {packets:,.0f} packets lost"
    values = []
    unknown = [Unknown("RTT and jitter of the idle link (ping tells)", ("link.rtt",))]
    if share > _FULL:
        note = f"{ends}: what arrived of UDP at {show(whole * factor, BANDWIDTH)}; {counted}"
        values.append(Value(f"link.{field}", wire, BANDWIDTH, note, trust=2))
        unknown.append(
            Unknown(
                f"loss: {counted}, by a full queue or on the way (a run at less than half of it tells: -b)",
                ("link.loss",),
            )
        )
    else:
        note = f"{ends}, UDP at {show(whole * factor, BANDWIDTH)}: {counted}"
        values.append(Value("link.loss", share, None, note, trust=3))
        unknown.append(
            Unknown(
                f"bandwidth: at least the {show(wire, BANDWIDTH)} that UDP sent (iperf3 without -u tells)",
                ("link.bandwidth", "link.back_bandwidth"),
            )
        )
        if packets < 1000:
            unknown.append(
                Unknown(
                    f"loss below about {100 * 3 / packets:.2g} %: {packets:,.0f} packets are too few",
                    ("link.loss",),
                )
            )
    jitter = data.number("end.sum.jitter_ms", 0.0)
    facts = (
        Fact(
            "UDP jitter", f"{jitter:.3g} ms", "between neighbours (RFC 3550): not the deviation of the delay"
        ),
    )
    if error:
        unknown.append(Unknown(f"the rest of the run: iperf3 was stopped ({error})"))
    return Reading("iperf3", file, version, tuple(values), facts, tuple(unknown))
