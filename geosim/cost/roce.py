"""RoCEv2 over distance: what a link gives queue pairs that keep a bounded number of bytes in flight.

Stateless laws, in bytes on the wire and seconds. A queue pair starts at the link's rate, so there is no slow
start; it is held by its window, by marks, by losses and by its timeout:

- window: n queue pairs with B bytes in flight each reach at most n B over the round trip.
- marks (ECN, DCQCN: Zhu et al., SIGCOMM 2015, eq. 1): a marked queue pair sends half as fast and grows back.
  Where the switch marks before it holds a bandwidth-delay product, the queue runs dry before rates have
  grown back. In the sawtooth below all queue pairs halve at once, at the first mark: a floor.
- no marks: where senders are faster than the link, what is in flight beyond the path and its buffer is
  dropped. Under go-back-N all that follows a dropped packet is sent again. A window that a longer path would
  hold can so be too much for a shorter one.
- loss p: go-back-N loses W packets for each, so (1 - p) / (1 - p + p W) is left (Towsley 1979; about
  1 / (1 + p W)); selective repeat loses the packet itself.
- timeout: 4.096 us x 2^t (InfiniBand specification, volume 1, 9.7.6.1.3). A round trip beyond it sends a
  window again, and after `retry_count` more of them in a row a queue pair gives up.

Left out: DCQCN's recovery timers, pause frames that spread to other flows, NICs' adaptive retransmission.
"""

import math
from dataclasses import dataclass

from geosim.cost.tcp.shares import FLOWS
from geosim.cost.transport import Path
from geosim.errors import UsageError
from geosim.scenario import Nccl, WanLink
from geosim.units import TIME, show

HEADER_BYTES = 44  # IPv4 20, UDP 8, base transport header 12, its checksum 4
MTUS = (4096, 2048, 1024, 512, 256)
MARK_SHARE = 0.3  # of the bottleneck's buffer: where the source of `papers/roce_distance` begins to mark
_LEAST_QUEUE_BYTES = 16 * 1024 * 1024  # of a link that states none: what small data-centre switches share
_FIBRE_S_PER_KM = 10.10e-6
_FIBRE_S = 127e-6
_CUT = 0.5
_TIMEOUT_S = 4.096e-6


def fibre_rtt(km: float) -> float:
    """Round-trip seconds over a fibre, equipment included: a line through measured loops of 50 to 500 km.

    Source: HPE/Juniper PTX scale-across note (K. Nawaz, 2026), in `papers/roce_distance`. Light takes 4.9 us
    for a kilometre one way; the rest are amplifiers and error correction.
    """
    return _FIBRE_S + _FIBRE_S_PER_KM * km


def payload_bytes(mtu_bytes: float) -> int:
    """Data in a full packet: the largest RDMA MTU that the path's takes with its headers."""
    return next((size for size in MTUS if size + HEADER_BYTES <= mtu_bytes), MTUS[-1])


def payload_share(mtu_bytes: float) -> float:
    """Payload over bytes on the wire, for full packets."""
    payload = payload_bytes(mtu_bytes)
    return payload / (payload + HEADER_BYTES)


def window_rate(rate_bytes_per_s: float, rtt_s: float, flight_bytes: float) -> float:
    """Bytes per second with `flight_bytes` in flight over all queue pairs."""
    return min(rate_bytes_per_s, flight_bytes / rtt_s) if rtt_s > 0 else rate_bytes_per_s


def full_flight(rate_bytes_per_s: float, rtt_s: float) -> float:
    """The bandwidth-delay product: bytes in flight that fill a path."""
    return rate_bytes_per_s * rtt_s


def go_back_n(loss: float, packets_in_flight: float) -> float:
    """Share of what is sent that counts, where a loss sends a queue pair's window again."""
    return (1 - loss) / (1 - loss + loss * max(1.0, packets_in_flight))


def selective_repeat(loss: float) -> float:
    """Share of what is sent that counts, where a loss sends one packet again."""
    return 1 - loss


def mark_share(mark_bytes: float, full_bytes: float) -> float:
    """Share of a link that queue pairs reach which halve together when the queue holds `mark_bytes`.

    In units of the bandwidth-delay product: the window grows by a fixed part a round trip, from (1 + q) / 2
    back to 1 + q; below 1 it carries its share of the link, above it fills the link and round trips stretch.
    """
    if full_bytes <= 0:
        return 1.0
    top = 1 + mark_bytes / full_bytes
    low = (1 - _CUT) * top
    if low >= 1:
        return 1.0
    below, above = 1 - low, (top - 1) * (1 + top) / 2
    return (below * (1 + low) / 2 + above) / (below + above)


def overflow_share(flight_bytes: float, room_bytes: float, retransmission: str) -> float:
    """Share of what passes that counts, where nothing slows queue pairs with more in flight than fits.

    Args:
        flight_bytes: in flight over all queue pairs, were nothing dropped.
        room_bytes: the path's bandwidth-delay product and the bottleneck's buffer.
    """
    if flight_bytes <= room_bytes or retransmission == "selective-repeat":
        return 1.0
    return room_bytes / flight_bytes


def pause_headroom(rate_bytes_per_s: float, rtt_s: float, mtu_bytes: float) -> float:
    """Bytes of buffer that a port needs to lose nothing (IEEE 802.1Qbb): what arrives after it said pause.

    A round trip of the link at full rate, a packet that is being sent at each end.
    """
    return rate_bytes_per_s * rtt_s + 2 * mtu_bytes


def timeout_s(exponent: int) -> float:
    """Seconds that a queue pair waits for an acknowledgement, by NCCL_IB_TIMEOUT."""
    return _TIMEOUT_S * 2.0**exponent


def gives_up_s(exponent: int, retry_count: int) -> float:
    """Seconds without any answer after which a queue pair fails: the first wait and its retries."""
    return timeout_s(exponent) * (retry_count + 1)


def spurious(exponent: int, rtt_s: float, jitter_s: float) -> float:
    """Probability that a round trip outlasts the timeout; delays each way vary by `jitter_s`, normally."""
    slack = timeout_s(exponent) - rtt_s
    if jitter_s <= 0:
        return 0.0 if slack >= 0 else 1.0
    return 0.5 * math.erfc(slack / (2 * jitter_s))


def least_timeout(rtt_s: float, jitter_s: float, chance: float) -> int:
    """The least NCCL_IB_TIMEOUT under which round trips outlast it less often than `chance`."""
    return next((t for t in range(1, 31) if spurious(t, rtt_s, jitter_s) <= chance), 31)


@dataclass(frozen=True)
class Rates:
    """What decides the rate of queue pairs over one direction of a link, each a share or in bytes.

    Attributes:
        full_bytes: the path's bandwidth-delay product. queue_bytes: what the bottleneck buffers.
        flight_bytes: what all queue pairs may have in flight.
        marks: share of the link under marks, or left by overflow without them.
        losses: share that losses leave.
        timeouts: share that spurious timeouts leave.
    """

    full_bytes: float
    queue_bytes: float
    flight_bytes: float
    marks: float
    losses: float
    timeouts: float

    @property
    def share(self) -> float:
        """Of the link, windows apart."""
        return self.marks * self.losses * self.timeouts


def rates(
    link: WanLink,
    rate_bytes_per_s: float,
    nccl: Nccl,
    channels: int,
    channel_bytes: float,
    sender_bytes_per_s: float = math.inf,
) -> Rates:
    """The parts of the rate of `channels` channels with `channel_bytes` of data in flight each.

    Args:
        rate_bytes_per_s: what the link has at the time, this way.
        sender_bytes_per_s: at which packets come to the link; no queue builds where that is no faster.

    Raises:
        UsageError: a timeout that is over before an acknowledgement can be there: one line.
    """
    if timeout_s(nccl.timeout) < link.rtt_s:
        raise UsageError(
            f"nccl.timeout: {nccl.timeout} is {show(timeout_s(nccl.timeout), TIME)}, less than the round trip"
            f" of {show(link.rtt_s, TIME)} between {' and '.join(link.between)}: no acknowledgement comes in"
            f" time; use {least_timeout(link.rtt_s, 0.0, 0.0)} or more"
        )
    share = payload_share(link.mtu_bytes)
    full = full_flight(rate_bytes_per_s, link.rtt_s)
    queue = max(full, _LEAST_QUEUE_BYTES) if link.queue_bytes is None else link.queue_bytes
    flight = channels * channel_bytes / share
    if sender_bytes_per_s <= rate_bytes_per_s:
        marks = 1.0
    elif nccl.answers_ecn:
        mark = MARK_SHARE * queue
        marks = mark_share(mark, full) if flight > full + mark else 1.0
    else:
        marks = overflow_share(flight, full + queue, nccl.retransmission)
    pairs = channels * nccl.queue_pairs
    each = min(flight, full + queue) / pairs / (payload_bytes(link.mtu_bytes) + HEADER_BYTES)
    again = nccl.retransmission == "selective-repeat"
    losses = selective_repeat(link.loss) if again else go_back_n(link.loss, each)
    late = spurious(nccl.timeout, link.rtt_s, link.jitter_s)
    return Rates(full, queue, flight, marks, losses, 1 / (1 + late))


def make_path(
    link: WanLink,
    rate_bytes_per_s: float,
    nccl: Nccl,
    channels: int,
    channel_bytes: float,
    sender_bytes_per_s: float = math.inf,
) -> Path:
    """The path one way for `channels` channels; nothing starts slowly. Arguments as of `rates`."""
    made = rates(link, rate_bytes_per_s, nccl, channels, channel_bytes, sender_bytes_per_s)
    # What is sent again takes its share of a window as it does of the link.
    window = channel_bytes / payload_share(link.mtu_bytes) * made.losses * made.timeouts
    return Path(
        rate_bytes_per_s=rate_bytes_per_s,
        rtt_s=link.rtt_s,
        flow_window_bytes=window,
        flow_initial_bytes=window,
        held_bytes=channels * window,
        stream_shares=(made.share,) * len(FLOWS),
        rto_s=timeout_s(nccl.timeout),
        restarts=False,
    )


def tail_stall(link: WanLink, nccl: Nccl, channels: int) -> float:
    """Mean seconds a collective waits for timeouts: no later packet tells of the loss of its last ones."""
    return link.loss * channels * timeout_s(nccl.timeout)
