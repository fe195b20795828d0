"""Exchanges between two ends, one after another, over connections that stay: how long each takes.

`n` connections join two ends over one queue each way. In an exchange both ends begin at once to send the same
number of segments over each; it is over when the last has come. Acknowledgements of one way wait behind data
of the other (Zhang, Shenker and Clark, SIGCOMM 1991).
"""

import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from geosim.cost.tcp.bbr import Bbr
from geosim.cost.tcp.clock import Clock
from geosim.cost.tcp.control import Control
from geosim.cost.tcp.cubic import Cubic
from geosim.cost.tcp.flow import Flow
from geosim.cost.tcp.queue import Queue
from geosim.cost.tcp.reno import Reno

NOTICE_BYTES = 100.0  # Gloo's preamble of 48 bytes, and headers
_FOREVER_S = 3600.0
_PART = 45  # segments that a sender's thread hands over before the next one's turn: 64 KiB
CONTROLS: dict[str, Callable[[int], Control]] = {
    "cubic": lambda number: Cubic(),
    "reno": lambda number: Reno(),
    "bbr": Bbr,
}


@dataclass(frozen=True)
class Duplex:
    """A link between two ends, alike both ways; wire bytes and seconds.

    Attributes:
        rate_bytes_per_s: each way.
        rtt_s: when idle.
        queue_bytes: what each way buffers.
        segment_bytes: a full segment on the wire.
        window_segments: the most of one flow in flight.
        algorithm: "cubic", "reno" or "bbr".
        loss: probability that a segment is lost.
        host_s: mean time that hosts take to see what has arrived, evenly spread from none to twice that. It
            also keeps flows out of step that nothing else tells apart (Floyd and Jacobson, 1992).
        apart_s: mean time from one of an end's connections' beginning to send to the next one's, in an order
            drawn anew for each exchange: threads that wake one by one.
        copy_bytes_per_s: how fast a thread copies what its send buffer takes; the next one begins after that.
        wake_s: how much longer it takes where nothing has arrived for a millisecond: processors that sleep.
        seed: of losses and of these.
    """

    rate_bytes_per_s: float
    rtt_s: float
    queue_bytes: float
    segment_bytes: float = 1500.0
    window_segments: int = 2000
    algorithm: str = "cubic"
    loss: float = 0.0
    host_s: float = 5e-5
    wake_s: float = 0.0
    apart_s: float = 0.0
    copy_bytes_per_s: float = math.inf
    seed: int = 0


@dataclass
class Progress:
    """One exchange: seconds, (time, segments received so far) of each way, and the first flow's windows."""

    seconds: float = 0.0
    received: list[list[tuple[float, int]]] = field(default_factory=lambda: [[], []])
    windows: list[tuple[float, int]] = field(default_factory=list)


def exchanges(
    link: Duplex,
    segments: int,
    flows: int,
    count: int,
    gap_s: float,
    both: bool = True,
    watch: bool = False,
    skew_s: float = 0.0,
) -> list[Progress]:
    """`count` exchanges after each other over the same connections, `gap_s` of silence before each.

    Args:
        link: between the ends.
        segments: that each connection sends each way.
        flows: connections.
        count: of exchanges.
        gap_s: from one exchange's end to the next one's start.
        both: whether both ends send.
        watch: whether to keep the windows of the first end's first flow.
        skew_s: how much later than the first the second end begins at most; drawn anew for each exchange.
    """
    clock = Clock()
    chance = random.Random(link.seed)
    until_loss = _losses(link.loss, chance) if link.loss > 0 else None
    host_s = (lambda: 2 * link.host_s * chance.random()) if link.host_s > 0 else None
    ways = [
        Queue(
            link.rate_bytes_per_s,
            link.rtt_s / 2,
            link.queue_bytes,
            link.segment_bytes,
            until_loss,
            host_s,
            link.wake_s,
        )
        for _ in range(2)
    ]
    make = CONTROLS[link.algorithm]
    senders = [
        [Flow(clock, ways[way], ways[1 - way], make(i), link.window_segments) for i in range(flows)]
        for way in range(2 if both else 1)
    ]
    out = []
    for k in range(count):
        if k:
            clock.idle(gap_s)
        apart = [_begins(link, side, segments, chance) for side in senders]
        out.append(_one(clock, ways, senders, segments, watch, skew_s * chance.random(), apart))
    return out


def _one(
    clock: Clock,
    ways: list[Queue],
    senders: list[list[Flow]],
    segments: int,
    watch: bool,
    skew_s: float,
    apart: list[list[float]],
) -> Progress:
    start = clock.now
    progress = Progress()
    goal = [sum(f.received for f in side) + segments * len(side) for side in senders]
    totals = [sum(f.received for f in side) for side in senders]
    left = [len(side) for side in senders]

    def notice(way: int, number: int) -> None:
        """A receiver's, that it is ready for the next one, on the same connection."""
        if way < len(senders):
            senders[way][number].give_small(NOTICE_BYTES)
        else:
            ways[way].offer_small(clock.now, NOTICE_BYTES)

    def watching(way: int, number: int, flow: Flow) -> Callable[[float], None]:
        need = flow.received + segments
        seen = flow.received
        over = False
        base = goal[way] - segments * len(senders[way])
        received = progress.received[way]

        def on_receipt(now: float) -> None:
            nonlocal seen, over
            totals[way] += flow.received - seen
            seen = flow.received
            received.append((now - start, totals[way] - base))
            if seen >= need and not over:
                over = True
                left[way] -= 1
                if left[way] == 0:
                    progress.seconds = max(progress.seconds, now - start)
                notice(1 - way, number)

        return on_receipt

    for way, side in enumerate(senders):
        for number, flow in enumerate(side):
            flow.on_receipt = watching(way, number, flow)
    if watch:
        senders[0][0].windows = []
    for way, side in enumerate(senders):
        groups: dict[float, list[Flow]] = {}
        for flow, later in zip(side, apart[way], strict=True):
            groups.setdefault(later, []).append(flow)
        for later, together in groups.items():
            clock.at(start + way * skew_s + later, partial(_give, segments=segments), together)
    clock.run(lambda: not any(left), start + _FOREVER_S)
    if any(left):
        raise RuntimeError(f"an exchange of {segments} segments a flow did not end within {_FOREVER_S:g} s")
    for side in senders:
        for flow in side:
            flow.on_receipt = lambda now: None
    progress.windows = [(at - start, cwnd) for at, cwnd in senders[0][0].windows or ()]
    return progress


def _begins(link: Duplex, side: list[Flow], segments: int, chance: random.Random) -> list[float]:
    """How much later than the exchange each of an end's connections begins."""
    begins = [0.0] * len(side)
    if len(side) == 1 or (not link.apart_s and link.copy_bytes_per_s == math.inf):
        return begins
    later = 0.0
    for i in chance.sample(range(len(side)), len(side)):
        begins[i] = later
        # Linux, `tcp_sndbuf_expand`: two windows.
        taken = min(segments, link.window_segments, 2 * side[i].cwnd)
        later += 2 * link.apart_s * chance.random() + taken * link.segment_bytes / link.copy_bytes_per_s
    return begins


def _give(side: list[Flow], segments: int) -> None:
    """Connections that begin at one time are given data in turns: what they send at first is interleaved."""
    for flow in side:
        flow.give(min(segments, _PART))
    for at in range(_PART, segments, _PART):
        for flow in side:
            flow.add(min(_PART, segments - at))


def _losses(loss: float, chance: random.Random) -> Callable[[], int]:
    from math import log, log1p

    return lambda: int(log(1 - chance.random()) / log1p(-loss))
