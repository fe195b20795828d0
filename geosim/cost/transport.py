"""Stateless laws of TCP over one path: what headers, windows, slow start, idle time and loss leave of a link.

How the bytes of one transfer leave a path is in `cost.sending`; here is what the path is, and what loss does.

Everything is in bytes on the wire and seconds; flows that are alike count together. Sources: slow start and
the initial window RFC 5681 and 6928; restart after idle as Linux does it (net/ipv4/tcp_output.c,
`tcp_cwnd_restart`: the window halves for every retransmission timeout of silence); CUBIC's response RFC 8312
(eq. 5, C = 0.4, beta = 0.7); Reno's Mathis et al. 1997.

Two habits of Linux kept as laws: HyStart ends CUBIC's slow start where the path is full, so the window
remembered is little more than the bandwidth-delay product; and where bulk flows both ways at once,
acknowledgements queue behind data, so that flows stream at part of the rate (`cost.tcp.shares`, from the
window model in `cost.tcp`, which is held against Linux: docs/transport.md). Left out here, but not in the
window model: recovery after a queue overflow, acknowledgements' own bytes.
"""

import math
from dataclasses import dataclass, replace
from typing import Any

from geosim.cost.sending import namespace, send_time, window_restart
from geosim.cost.tcp.shares import FLOWS, LENGTHS, share_of, shares_at, two_way_shares
from geosim.scenario import WanLink

HEADER_BYTES = 52  # IPv4 20, TCP 20, timestamps 12
LEAST_RTO_S = 0.2
_CUBIC_C = 0.4
_CUBIC_BETA = 0.7
_LEAST_QUEUE_BYTES = 256 * 1024  # of a link that states none
_LOSS_BASED_GAIN = 1.2  # window at the end of slow start over the bandwidth-delay product
_BBR_GAIN = 2.0  # its window over the bandwidth-delay product
_BBR_LOSS_LIMIT = 0.2
_LOSS_PARTS = 8
_KEPT = {"cubic": _CUBIC_BETA, "reno": 0.5, "bbr": 1.0}
_BBR_PACE_GAIN = 2.885  # as it starts up: 2 / ln 2
_BBR_START_UP_GAIN = 2.89  # its largest window over the bandwidth-delay product
# Windows of data in a send buffer that the kernel has let grow: it gives 2 windows (BBR: 3) of full packets
# with their bookkeeping (Linux, `tcp_sndbuf_expand`), 2304 bytes for 1448 of data, and holds 0.69 as data.
_BUFFER_WINDOWS = 2.2
_BBR_BUFFER_WINDOWS = 3.3


@dataclass(frozen=True)
class Path:
    """One direction between two sites, as every flow on it sees it.

    Attributes:
        rate_bytes_per_s: of the link.
        rtt_s: when idle.
        flow_window_bytes: the most that one flow has in flight.
        flow_initial_bytes: what one fresh flow sends at once.
        held_bytes: the most that all flows together keep in flight.
        stream_shares: of the rate, that `cost.tcp.shares.FLOWS` flows reach.
        rto_s: retransmission timeout; silence for that long halves a window.
        restarts: whether silence halves windows at all (BBR keeps its estimate of the bandwidth).
        loss_per_byte: losses expected of a byte on the wire.
        kept: of a window after a loss.
        flow_buffer_bytes: what one flow's socket buffers hold: the most in flight before anything was lost,
            and the most that the kernel takes before it has left.
        peak_bytes: the largest window that all flows together have had after many exchanges.
        buffer_windows: how many of its largest windows a send buffer holds.
        ends: that wait for each other's transfers: 2 where as much goes the other way.
        shares_by_length: `stream_shares` of exchanges of `cost.tcp.shares.LENGTHS`; none: all the same.
        pace_gain: pace over the rate that was last delivered, of flows that go on as they were after silence.
    """

    rate_bytes_per_s: float
    rtt_s: float
    flow_window_bytes: float
    flow_initial_bytes: float
    held_bytes: float
    stream_shares: tuple[float, ...]
    rto_s: float
    restarts: bool
    loss_per_byte: float = 0.0
    kept: float = 1.0
    flow_buffer_bytes: float = math.inf
    peak_bytes: float = math.inf
    buffer_windows: float = math.inf
    ends: int = 1
    shares_by_length: tuple[tuple[float, ...], ...] = ()
    pace_gain: float = math.inf

    def for_exchange(self, size_bytes: Any, flows: int) -> "Path":
        """The path as exchanges of `size_bytes` on the wire over `flows` flows meet it, one after another.

        The longer an exchange, the more of a link loss-based flows reach both ways. BBR that has not filled
        the path is still starting up and sends at `pace_gain` times what it last saw delivered: the exchange
        over the time t that it took to send and a round trip (Linux, `bbr_update_bw`, `bbr_cwnd_event`). So
        t = RTT / (gain - 1), a window of (gain - 1) exchanges; its first window is sent at that pace, too.
        """
        shares = self.stream_shares
        if self.shares_by_length:
            full = self.rate_bytes_per_s * self.rtt_s
            shares = shares_at(self.shares_by_length, size_bytes / full if full > 0 else math.inf)
        held = self.held_bytes
        if self.pace_gain < math.inf:
            first = self.pace_gain * flows * self.flow_initial_bytes
            held = min(held, max((self.pace_gain - 1) * size_bytes, first))
        return replace(self, stream_shares=shares, held_bytes=held)

    def limited(self, bytes_per_s: float) -> "Path":
        """The path with no more to be had: flows reach that, or their share of the path's own rate."""
        if bytes_per_s >= self.rate_bytes_per_s:
            return self
        wider = self.rate_bytes_per_s / bytes_per_s
        shares = tuple(min(1.0, wider * share) for share in self.stream_shares)
        return replace(self, rate_bytes_per_s=bytes_per_s, stream_shares=shares, shares_by_length=())

    @property
    def paced(self) -> bool:
        """Whether what is in flight is spread over a round trip, once out of slow start.

        BBR paces it; and a window that losses keep changing is a mean, which does not leave at once.
        """
        return self.pace_gain < math.inf or self.loss_per_byte > 0

    def window_limit(self, flows: int) -> float:
        """The most that `flows` flows together have in flight."""
        return min(flows * self.flow_window_bytes, self.held_bytes)

    def open_limit(self, flows: int) -> float:
        """As `window_limit`, before anything was lost (`time_under_loss`)."""
        return min(flows * self.flow_buffer_bytes, self.held_bytes)

    def share_rate(self, flows: int, alone: bool = False) -> float:
        """Bytes per second of the link that `flows` flows together reach, whatever their windows.

        `alone`: nothing comes the other way for now.
        """
        return (1.0 if alone else share_of(self.stream_shares, flows)) * self.rate_bytes_per_s

    def open_rate(self, flows: int, alone: bool = False) -> float:
        """As `stream_rate`, before anything was lost."""
        rate = self.share_rate(flows, alone)
        return min(rate, self.open_limit(flows) / self.rtt_s) if self.rtt_s > 0 else rate

    def initial_window(self, flows: int) -> float:
        """What `flows` fresh flows together send at once."""
        return min(flows * self.flow_initial_bytes, self.window_limit(flows))

    def send_buffer(self, flows: int) -> float:
        """What the kernel takes of `flows` flows together before it has been sent and acknowledged.

        Linux lets a socket's send buffer grow with the window and never shrinks it (`tcp_sndbuf_expand`,
        `net.ipv4.tcp_wmem`), so that the largest window counts: after some exchanges a loss-based flow has
        filled path and queue once, and BBR had its largest when it started up. Before that the buffer holds
        less, but who never filled a window's limit has sent no more than 1.5 of its windows
        (`window_after`), which a buffer holds.
        """
        largest = min(flows * self.flow_window_bytes, self.peak_bytes)
        return min(flows * self.flow_buffer_bytes, self.buffer_windows * largest)

    def stream_rate(self, flows: int, alone: bool = False) -> float:
        """Bytes per second that `flows` flows together reach once out of slow start.

        `alone`: nothing comes the other way for now.
        """
        rate = self.open_rate(flows, alone)
        return min(rate, self.window_limit(flows) / self.rtt_s) if self.rtt_s > 0 else rate


def segment_bytes(mtu_bytes: float) -> float:
    """Payload of one full segment."""
    return mtu_bytes - HEADER_BYTES


def payload_share(mtu_bytes: float) -> float:
    """Payload over bytes on the wire, for full segments."""
    return segment_bytes(mtu_bytes) / mtu_bytes


def loss_window(loss: float, rtt_s: float, mtu_bytes: float, congestion_control: str) -> float:
    """Mean window of one flow in payload bytes under random loss; infinite without loss.

    BBR does not answer to loss below 20 % (BBR v1: Cardwell et al., ACM Queue 2016).
    """
    if loss <= 0:
        return float("inf")
    reno = (1.5 / loss) ** 0.5
    cubic = (_CUBIC_C * (3 + _CUBIC_BETA) / (4 * (1 - _CUBIC_BETA))) ** 0.25 * (rtt_s / loss) ** 0.75
    segments = max(reno, cubic) if congestion_control == "cubic" else reno
    if congestion_control == "bbr" and loss < _BBR_LOSS_LIMIT:
        return float("inf")
    return max(1.0, segments) * segment_bytes(mtu_bytes)


def make_path(link: WanLink, source: str, two_way: bool = False) -> Path:
    """The path out of `source` over a link; `two_way`: as much goes the other way at the same time."""
    rate = link.bandwidth(source)
    share = payload_share(link.mtu_bytes)
    bbr = link.congestion_control == "bbr"
    lossy = loss_window(link.loss, link.rtt_s, link.mtu_bytes, link.congestion_control)
    full = rate * link.rtt_s
    gain = _BBR_GAIN if bbr else _LOSS_BASED_GAIN
    queue = max(full, _LEAST_QUEUE_BYTES) if link.queue_bytes is None else link.queue_bytes
    held = min(full * gain, full + queue)
    by_length = tuple(two_way_shares(link.congestion_control, full, queue, length) for length in LENGTHS)
    return Path(
        rate_bytes_per_s=rate,
        rtt_s=link.rtt_s,
        flow_window_bytes=min(link.window_bytes, lossy) / share,
        flow_initial_bytes=link.initial_window_bytes / share,
        held_bytes=held,
        stream_shares=by_length[0] if two_way else (1.0,) * len(FLOWS),
        rto_s=link.rtt_s + max(LEAST_RTO_S, 4 * link.jitter_s),
        restarts=not bbr,
        loss_per_byte=link.loss / link.mtu_bytes,
        kept=_KEPT[link.congestion_control],
        flow_buffer_bytes=link.window_bytes / share,
        peak_bytes=_BBR_START_UP_GAIN * full if bbr else full + queue,
        buffer_windows=_BBR_BUFFER_WINDOWS if bbr else _BUFFER_WINDOWS,
        ends=2 if two_way else 1,
        shares_by_length=by_length if two_way else (),
        pace_gain=_BBR_PACE_GAIN if bbr else math.inf,
    )


def wire_bytes(payload_bytes: float, link: WanLink) -> float:
    """Bytes on the wire for a payload: headers, and what loss makes go twice."""
    return payload_bytes / payload_share(link.mtu_bytes) / (1 - link.loss)


def time_under_loss(
    size_bytes: Any, path: Path, flows: int, window: Any, sent_bytes: Any = 0.0, alone: bool = False
) -> Any:
    """Mean seconds from the first byte's leaving until the last byte's, scalars or arrays alike.

    Slow start until the first loss, which comes after a number of bytes that is exponentially distributed.
    There the window falls to `kept` of itself, and again with every further loss, whose number in m bytes is
    Poisson: the mean of 1 / W grows with exp((1 / kept - 1) p m), until W is the response function's. Of n
    flows the slowest is taken to meet 1 + 1/2 + ... + 1/n times as many losses as the mean one. The first
    loss's place is the midpoint of one of eight equally likely parts; the mean is over these, or, where an
    exchange waits for both ends, over the later of two that are drawn apart. Never slower with more
    bandwidth, a shorter way or less to send, nor, but for a little, faster with more loss.

    After many times 1/p packets on the same connections this is `send_time` within `window_limit`, which is
    what simulated runs take from their first exchange on. Left out: what timeouts cost.

    Args:
        size_bytes: on the wire, of all flows.
        path: taken.
        flows: that share it evenly; the exchange lasts until the slowest is through.
        window: at the start, bytes, of all flows.
        sent_bytes: what the same connections have carried before.
        alone: nothing comes the other way for now.
    """
    limit, stream = path.open_limit(flows), path.open_rate(flows, alone)
    share = path.share_rate(flows, alone)
    before = replace(path, loss_per_byte=0.0).paced
    free = send_time(size_bytes, path.rate_bytes_per_s, path.rtt_s, window, limit, share, before)
    if path.loss_per_byte <= 0 or path.rtt_s <= 0:
        return free
    xp = namespace(size_bytes, window, sent_bytes)
    size, sent = xp.asarray(size_bytes, dtype=float), xp.asarray(sent_bytes, dtype=float)
    window = xp.maximum(xp.minimum(xp.asarray(window, dtype=float), limit), 1.0)
    steady = flows * path.flow_window_bytes
    ends = 1 if alone else path.ends
    slowest = sum(1 / (flow + 1) for flow in range(flows))
    growth = (1 / path.kept - 1) * path.loss_per_byte * slowest / flows
    # A loss just before the end costs no less than the ramp's own pace: else a later loss could cost more.
    at_least = xp.maximum(free, _ramp(xp, size, window, stream, path.rtt_s))
    total = 0.0
    for part in range(_LOSS_PARTS):
        first = -math.log1p(-(part + 0.5) / _LOSS_PARTS) / path.loss_per_byte
        until = xp.minimum(xp.maximum(first - sent, 0.0), size)
        begin = path.kept * min(path.initial_window(flows) + first, limit)
        begin = begin * xp.exp(-xp.minimum(growth * xp.maximum(sent - first, 0.0), 100.0))
        lossy = _ramp(xp, until, window, stream, path.rtt_s)
        lossy = lossy + _falling(xp, size - until, begin, steady, growth, stream, path.rtt_s)
        # Of two ends the one whose first loss comes earlier is the later one.
        after = _LOSS_PARTS - part - 1
        weight = ((after + 1) ** ends - after**ends) / _LOSS_PARTS**ends
        total = total + weight * xp.where(first - sent >= size, free, xp.maximum(at_least, lossy))
    # Something lost has to come again before the exchange is over.
    return total + path.rtt_s * (1 - xp.exp(-path.loss_per_byte * ends * size))


def _ramp(xp: Any, size: Any, window: Any, stream: float, rtt_s: float) -> Any:
    """Slow start as a line without steps: the window doubles within a round trip, up to the stream's pace."""
    early = xp.minimum(size, xp.maximum(stream * rtt_s / math.log(2) - window, 0.0))
    return rtt_s / math.log(2) * xp.log(1 + early / window) + (size - early) / stream


def _falling(
    xp: Any, size: Any, begin: Any, steady: float, growth: float, stream: float, rtt_s: float
) -> Any:
    """Seconds of `size` bytes at 1 / W = exp(growth m) / begin, within `stream`'s pace and the steady one."""
    most = stream * rtt_s
    if steady >= most or growth <= 0:
        return size / min(stream, steady / rtt_s)
    begin = xp.maximum(xp.minimum(begin, most), steady)
    falls = xp.minimum(size, xp.log(begin / steady) / growth)
    return rtt_s * ((xp.exp(growth * falls) - 1) / (growth * begin) + (size - falls) / steady)


def time_for(
    payload_bytes: float,
    link: WanLink,
    source: str,
    flows: int = 1,
    idle_s: float = float("inf"),
    two_way: bool = False,
    sent_bytes: float = 0.0,
) -> float:
    """Mean seconds from the receiver's readiness until it has `payload_bytes`: one exchange alone on a link.

    The receiver's notice crosses first, then the payload leaves after `idle_s` of silence on a once full
    window, then its last byte crosses (Gloo's send and receive over TCP: gloo/transport/tcp/pair.cc). Where
    the link loses packets, `sent_bytes` is what the same connections have carried before.
    """
    size = wire_bytes(payload_bytes, link)
    path = make_path(link, source, two_way).for_exchange(size, flows)
    limit, first = path.open_limit(flows), path.initial_window(flows)
    window = window_restart(limit, min(idle_s, 1e9), first, path.rto_s, path.restarts)
    return link.rtt_s + float(time_under_loss(size, path, flows, window, sent_bytes))
