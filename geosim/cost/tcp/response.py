"""The window that a loss-based flow holds on a path without a limit of its own, under given losses."""

from collections.abc import Callable

from geosim.cost.tcp.clock import Clock
from geosim.cost.tcp.control import Control
from geosim.cost.tcp.flow import Flow
from geosim.cost.tcp.queue import Queue

_ENDLESS = 1 << 60


def mean_window(
    control: Control, rtt_s: float, until_loss: Callable[[], int], first: int, losses: int, skipped: int
) -> float:
    """Segments in flight on the mean, between two losses far apart: what is sent a round trip (Little).

    Args:
        control: of the one flow.
        rtt_s: round trip.
        until_loss: draws how many segments pass before the next one is lost.
        first: where its slow start ends, segments.
        losses: how many the measured stretch has.
        skipped: how many come before it.
    """
    clock = Clock()
    lost = 0

    def draw() -> int:
        nonlocal lost
        lost += 1
        return until_loss()

    forward = Queue(float("inf"), rtt_s / 2, float("inf"), 1500.0, draw)
    backward = Queue(float("inf"), rtt_s / 2, float("inf"), 1500.0)
    flow = Flow(clock, forward, backward, control, _ENDLESS, rounds=True)
    flow.ssthresh = first
    flow.give(_ENDLESS)
    clock.run(lambda: lost > skipped, float("inf"))
    began, before = clock.now, flow.received + forward.dropped
    clock.run(lambda: lost > skipped + losses, float("inf"))
    return (flow.received + forward.dropped - before) / (clock.now - began) * rtt_s
