"""`ping` of iputils, BusyBox, GNU inetutils, the BSDs and macOS: RTT, jitter and loss of a link.

Replies are one a line, then a summary; a double counts once. The jitter of a scenario is the standard
deviation one way: that of the RTT over sqrt(2), both ways being alike and independent.
"""

import math
import re
from dataclasses import dataclass

from geosim.calibrate.reading import Fact, Reading, Unknown, Value
from geosim.calibrate.source import Source
from geosim.errors import UsageError
from geosim.units import TIME, show

_HEADER = re.compile(r"^PING6? ?\(?\S+", re.MULTILINE)
_REPLY = re.compile(
    r"^\s*(?:\[[\d.]+\] )?\d+ bytes from .*?(?:icmp_seq|seq)=(\d+).*?time[=<]([\d.,]+) ?(ms|us|s)\b(.*)$",
    re.MULTILINE,
)
_COUNTS = re.compile(
    r"^(\d+) packets transmitted, (\d+)(?: packets)? received(.*?), ([\d.,]+)% packet loss", re.MULTILINE
)
_SUMMARY = re.compile(
    r"^(?:rtt|round-trip) min/avg/max(/(?:mdev|stddev|std-dev))? = ([\d.,/]+) ?(ms|us|s)\b", re.MULTILINE
)
_FOREIGN = re.compile(r"^Pinging .+ with \d+ bytes|^Ping statistics for", re.MULTILINE)
_SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6}
_FEWEST = 10


@dataclass(frozen=True)
class _Summary:
    """Seconds: mean, least, most, standard deviation (None where ping prints none)."""

    mean_s: float
    least_s: float
    most_s: float
    deviation_s: float | None


def recognise(source: Source) -> bool:
    """Whether a file is ping's."""
    head = source.text[:100_000]
    return bool(_HEADER.search(head) or "ping statistics" in head or _FOREIGN.search(head))


def read(source: Source) -> Reading:
    """RTT, jitter and loss.

    Raises:
        UsageError: no reply, several runs, or a format that is not known: one line.
    """
    text = source.text
    if _FOREIGN.search(text):
        raise UsageError(
            f"{source.name}: ping of Windows shows whole milliseconds: use one of Linux, a BSD or macOS"
        )
    if len(_HEADER.findall(text)) > 1 or len(_COUNTS.findall(text)) > 1:
        raise UsageError(f"{source.name}: holds several runs of ping: give each a file of its own")
    replies, doubles = _replies(source)
    counts = _COUNTS.search(text)
    if counts is not None and int(counts[2]) > int(counts[1]):
        raise UsageError(f"{source.name}: {counts[2]} of {counts[1]} packets received: more than were sent")
    if counts is not None and int(counts[2]) == 0:
        raise UsageError(
            f"{source.name}: no reply: {counts[1]} packets sent, 0 received: the path is down or filters ICMP"
        )
    summary = _of_replies(replies) if doubles else _summary(source, replies)  # ping counts doubles in
    values = [_rtt(summary, replies), *_jitter(summary, replies)]
    unknown = [
        Unknown(
            "bandwidth: ping sends too little to fill a link (iperf3 -J tells)",
            ("link.bandwidth", "link.back_bandwidth"),
        ),
        Unknown("which direction jitter and loss belong to: taken as alike both ways"),
    ]
    facts = []
    if counts is None:
        unknown.append(
            Unknown(
                "loss: the summary is missing, so the run was cut off (stop ping with Ctrl-C, not kill)",
                ("link.loss",),
            )
        )
    else:
        sent, received = int(counts[1]), int(counts[2])
        values.append(_loss(sent, received))
        if sent < 1000:
            unknown.append(
                Unknown(
                    f"loss below about {100 * 3 / sent:.2g} %: {sent:,} packets are too few",
                    ("link.loss",),
                )
            )
    if doubles:
        facts.append(
            Fact("duplicates", f"{doubles}", "counted once: something on the path sends packets twice")
        )
    if not replies:
        unknown.append(Unknown("how the RTT is distributed: ping -q lists no replies"))
    return Reading("ping", source.name, _flavour(text), tuple(values), tuple(facts), tuple(unknown))


def _replies(source: Source) -> tuple[list[float], int]:
    """Seconds of every first reply, and how many doubles there were."""
    seen: dict[int, float] = {}
    doubles = 0
    for number, time, unit, rest in _REPLY.findall(source.text):
        if "DUP" in rest or int(number[:12]) in seen:
            doubles += 1
        else:
            seen[int(number[:12])] = _number(source, time) * _SECONDS[unit]
    return list(seen.values()), doubles


def _summary(source: Source, replies: list[float]) -> _Summary:
    found = _SUMMARY.search(source.text)
    if found is None:
        if not replies:
            raise UsageError(
                f"{source.name}: no replies and no known summary: run ping with LC_ALL=C, to its end"
            )
        return _of_replies(replies)
    numbers = [_number(source, n) * _SECONDS[found[3]] for n in found[2].split("/")]
    if len(numbers) != (4 if found[1] else 3) or not numbers[0] <= numbers[1] <= numbers[2]:
        raise UsageError(f"{source.name}: '{found[0][:80]}': not a least, mean and largest time")
    deviation = numbers[3] if found[1] else (_of_replies(replies).deviation_s if replies else None)
    return _Summary(numbers[1], numbers[0], numbers[2], deviation)


def _of_replies(replies: list[float]) -> _Summary:
    mean = sum(replies) / len(replies)
    deviation = math.sqrt(sum((r - mean) ** 2 for r in replies) / len(replies))
    return _Summary(mean, min(replies), max(replies), deviation)


def _number(source: Source, text: str) -> float:
    try:
        value = float(text.replace(",", "."))
    except ValueError:
        raise UsageError(f"{source.name}: '{text[:40]}' is no time") from None
    if not value < 1e9:
        raise UsageError(f"{source.name}: '{text[:40]}' is no time of a ping")
    return value


def _rtt(summary: _Summary, replies: list[float]) -> Value:
    span = f"{show(summary.least_s, TIME, 4)} to {show(summary.most_s, TIME, 4)}"
    count = f"{len(replies):,} replies" if replies else "all replies"
    note = f"mean of {count}, {span}"
    if replies:
        middle = sorted(replies)[len(replies) // 2]
        if summary.mean_s > 1.2 * middle:
            note += f"; a few slow ones pull it up: the median is {show(middle, TIME, 4)}"
    return Value("link.rtt", summary.mean_s, TIME, note, trust=2)


def _jitter(summary: _Summary, replies: list[float]) -> list[Value]:
    """Nothing where no deviation is known, or where there are too few replies to have one."""
    if summary.deviation_s is None or 0 < len(replies) < _FEWEST:
        return []
    note = f"one way: deviation of the RTT, {show(summary.deviation_s, TIME)}, over sqrt(2)"
    return [Value("link.jitter", summary.deviation_s / math.sqrt(2), TIME, note, trust=2)]


def _loss(sent: int, received: int) -> Value:
    lost = 1 - received / sent
    note = f"{sent - received:,} of {sent:,} round trips lost"
    return Value("link.loss", 1 - math.sqrt(1 - lost), None, f"one way; {note}", trust=2)


def _flavour(text: str) -> str:
    """Which ping it was, by what only it prints."""
    if " bytes of data" in text or "/mdev" in text:
        return "iputils"
    if re.search(r"\d bytes from .*: seq=", text):
        return "BusyBox"
    return "BSD, macOS or inetutils"
