"""`iperf3 -J`, TCP: bandwidth each way, MTU and congestion control of a link.

The client is the link's first end, the server its second. iperf3 counts payload; a scenario's bandwidth is
that of the wire, headers included. The first fifth of a run is left out: slow start, and sockets that fill.
"""

import re
from dataclasses import dataclass

from geosim.calibrate import iperf3_udp
from geosim.calibrate.reading import Fact, Reading, Unknown, Value
from geosim.calibrate.source import Fields, Source
from geosim.cost.transport import loss_window
from geosim.errors import UsageError
from geosim.units import BANDWIDTH, SIZE, TIME, show

_HEADERS = 52  # IPv4 20, TCP 20, timestamps 12
_CONTROLS = ("cubic", "reno", "bbr")
_LOSS_SLACK = 1.5  # times what the law of loss has; it is a mean over many losses
_RAMP = 5  # the first of so many parts
_ENDS = {"bandwidth": "client to server", "back_bandwidth": "server to client"}


@dataclass(frozen=True)
class _Steady:
    """After the ramp.

    Attributes:
        rate, least, most: payload bytes per second: mean, and of the slowest and fastest interval.
        seconds: over how long.
        settled: whether the ramp could be left out.
        retransmits: in that time; None where this end does not know them.
    """

    rate: float
    seconds: float
    least: float
    most: float
    settled: bool
    retransmits: float | None


def recognise(source: Source) -> bool:
    """Whether a file is iperf3's, JSON or not."""
    if source.is_json:
        data = source.data
        keys = {"start", "intervals", "end", "error"}
        return isinstance(data, dict) and len(keys & data.keys()) >= 2
    return bool(re.search(r"^Connecting to host .+, port \d+|^iperf3: ", source.text[:2000], re.MULTILINE))


def read(source: Source) -> Reading:
    """Bandwidth and more of one run.

    Raises:
        UsageError: a run that measured nothing, text instead of JSON, an unknown version: one line.
    """
    if not source.is_json:
        raise UsageError(f"{source.name}: iperf3's text output: run iperf3 with -J")
    data = source.fields
    error = data.word("error")
    version = data.word("start.version")
    if not re.match(r"iperf 3\.\d", version):
        was = f"'{version}'" if version else "none"
        raise UsageError(f"{source.name}: start.version: {was} is unknown: known is iperf 3.x")
    intervals = data.items("intervals")
    if error and not intervals:
        raise UsageError(f"{source.name}: iperf3 failed and measured nothing: {error}")
    protocol = data.word("start.test_start.protocol", "TCP")
    if protocol == "UDP":
        return iperf3_udp.read(data, source.name, version, error)
    if protocol != "TCP":
        raise UsageError(f"{source.name}: start.test_start.protocol: {protocol} is unknown: use TCP or UDP")
    return _tcp(data, intervals, source.name, version, error)


def _tcp(data: Fields, intervals: list[Fields], file: str, version: str, error: str) -> Reading:
    reverse = data.flag("start.test_start.reverse")
    both = any(i.has("sum_bidir_reverse") for i in intervals) or data.has("end.sum_sent_bidir_reverse")
    ways = {"back_bandwidth" if reverse else "bandwidth": "sum"}
    if both:
        ways = {"bandwidth": "sum", "back_bandwidth": "sum_bidir_reverse"}
    mtu, mtu_known = _mtu(data, intervals)
    values: list[Value] = []
    facts: list[Fact] = []
    unknown: list[Unknown] = []
    least = _at_least(data, both)
    for field, key in ways.items():
        found = _steady(data, intervals, key)
        wire = found.rate * mtu / (mtu - _HEADERS)
        note = f"{_ENDS[field]}: {_shown(found)}, {1500 if not mtu_known else mtu:.0f} B packets"
        low = [
            *least,
            *_loss_bound(data, found, mtu),
            *([] if found.settled else ["it ended before slow start did"]),
        ]
        if low:
            note += f"; at least, as {' and '.join(low)}"
        trust = 1 if not found.settled else 2 if low else 3
        values.append(Value(f"link.{field}", wire, BANDWIDTH, note, trust, at_least=bool(low)))
        if found.retransmits is not None:
            facts.append(_retransmits(found, mtu))
            if found.retransmits:
                unknown.append(
                    Unknown(
                        "loss: retransmits are also of what a full queue drops (ping, iperf3 -u tell)",
                        ("link.loss",),
                    )
                )
    if len(ways) == 1:
        other = "bandwidth" if reverse else "back_bandwidth"
        text = f"bandwidth {_ENDS[other]}: taken as the same (iperf3{'' if reverse else ' -R'} tells)"
        unknown.append(Unknown(text, (f"link.{other}",)))
    facts += _rtt(data)
    unknown.append(Unknown("RTT and jitter of the idle link (ping tells)", ("link.rtt",)))
    unknown.append(
        Unknown("socket buffers of the training hosts (link.window): iperf3 sets or tunes its own")
    )
    if mtu_known:
        values.append(
            Value("link.mtu", float(mtu), SIZE, "path MTU that the sender's kernel knows", shown=f"{mtu} B")
        )
    control = data.word("end.sender_tcp_congestion")
    if control != "bbr" and all(fact.name != "retransmits" for fact in facts):
        unknown.append(
            Unknown(
                "whether loss held the sender back: only its own end counts retransmits (iperf3 from there)"
            )
        )
    if control in _CONTROLS:
        values.append(Value("link.congestion_control", control, None, "of the sending host"))
    elif control:
        unknown.append(
            Unknown(f"congestion control: the sender ran {control}: geosim has {', '.join(_CONTROLS)}")
        )
    if error:
        unknown.append(Unknown(f"the rest of the run: iperf3 was stopped ({error})"))
    return Reading("iperf3", file, version, tuple(values), tuple(facts), tuple(unknown))


def _at_least(data: Fields, both: bool) -> list[str]:
    """Why more may fit through the link."""
    out = []
    buffer, target = data.number("start.sock_bufsize", 0.0), data.number("start.target_bitrate", 0.0)
    if buffer:
        out.append(f"-w held the window to {show(buffer, SIZE)}")
    if target:
        out.append(f"-b held it to {show(target / 8, BANDWIDTH)}")
    if both:
        out.append("both ways were busy at once")
    return out


def _loss_bound(data: Fields, found: _Steady, mtu: int) -> list[str]:
    """Whether the flows got no more than their congestion control takes at the share that they sent again.

    With a full queue it is more, as one overflow drops many segments at once.
    """
    control = data.word("end.sender_tcp_congestion")
    rtts = [s.number("sender.mean_rtt", 0.0) * 1e-6 for s in data.items("end.streams")]
    rtts = [rtt for rtt in rtts if rtt > 0]
    if control not in ("cubic", "reno") or not found.retransmits or not rtts:
        return []
    share = min(found.retransmits * (mtu - _HEADERS) / (found.rate * found.seconds), 0.5)
    rtt = sum(rtts) / len(rtts)
    allowed = len(rtts) * loss_window(share, rtt, mtu, control) / rtt
    if found.rate > _LOSS_SLACK * allowed:
        return []
    return [f"{control} gave way to loss ({100 * share:.2g} % sent again)"]


def _mtu(data: Fields, intervals: list[Fields]) -> tuple[int, bool]:
    """Of the path: what the sender's kernel says, or by its segment; or else 1500 and False."""
    for interval in reversed(intervals):
        for stream in interval.items("streams"):
            if stream.number("pmtu", 0.0) >= 576:
                return int(stream.number("pmtu")), True
    segment = data.number("start.tcp_mss_default", 0.0)
    return (int(segment) + _HEADERS, True) if 524 <= segment <= 65483 else (1500, False)


def _steady(data: Fields, intervals: list[Fields], key: str) -> _Steady:
    rows = [Fields(i.find(key), f"{i.where}.{key}") for i in intervals if isinstance(i.find(key), dict)]
    timed = [(r.number("bytes"), r.number("seconds"), r) for r in rows if not r.flag("omitted")]
    timed = [row for row in timed if row[1] > 0]
    longest = max((seconds for _, seconds, _ in timed), default=0.0)
    timed = [row for row in timed if row[1] >= longest / 2]
    if not timed:
        return _whole(data, key)
    skipped = 0 if data.number("start.test_start.omit", 0.0) else -(-len(timed) // _RAMP)
    kept = timed[skipped:] or timed
    seconds = sum(row[1] for row in kept)
    rates = [size / time for size, time, _ in kept]
    retransmits = [r.number("retransmits") for _, _, r in kept if r.has("retransmits")]
    rate = sum(row[0] for row in kept) / seconds
    if not rate:
        raise UsageError(f"{data.where}: no byte went through: nothing was measured")
    settled = len(kept) < len(timed) or bool(data.number("start.test_start.omit", 0.0))
    lost = sum(retransmits) if len(retransmits) == len(kept) else None
    return _Steady(rate, seconds, min(rates), max(rates), settled and seconds >= 1, lost)


def _whole(data: Fields, key: str) -> _Steady:
    """From the totals, where there are no intervals (-i 0)."""
    end = "end.sum_received" + key.removeprefix("sum")
    rate = data.number(f"{end}.bits_per_second") / 8
    seconds = data.number(f"{end}.seconds")
    if not rate or not seconds:
        raise UsageError(f"{data.where}: {end}: no byte went through: nothing was measured")
    return _Steady(rate, seconds, rate, rate, False, None)


def _shown(found: _Steady) -> str:
    payload = f"payload {show(found.rate, BANDWIDTH, 4)}"
    if not found.settled:
        return f"{payload} over {found.seconds:.2g} s"
    span = f"{show(found.least, BANDWIDTH)} to {show(found.most, BANDWIDTH)}"
    return f"{payload} over {found.seconds:.2g} s after the ramp ({span})"


def _retransmits(found: _Steady, mtu: float) -> Fact:
    segments = found.rate * found.seconds / (mtu - _HEADERS)
    share = 100 * (found.retransmits or 0) / max(segments, 1)
    return Fact(
        "retransmits",
        f"{share:.2g} %",
        f"{found.retransmits:,.0f} of {segments:,.0f} segments after the ramp",
    )


def _rtt(data: Fields) -> list[Fact]:
    """What the sender's kernel measured, the queues that the run itself filled included."""
    streams = [s for s in data.items("end.streams") if s.number("sender.min_rtt", 0.0) > 0]
    if not streams:
        return []
    low = min(s.number("sender.min_rtt") for s in streams) * 1e-6
    high = max(s.number("sender.max_rtt", 0.0) for s in streams) * 1e-6
    return [
        Fact(
            "RTT under load",
            f"{show(low, TIME, 4)} to {show(high, TIME, 4)}",
            "idle it is no more than the least",
        )
    ]
