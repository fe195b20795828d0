"""Windows and rates of simulated flows under loss, beside published ones."""

import random

import pytest

from geosim.cost.tcp.bbr import Bbr
from geosim.cost.tcp.clock import Clock
from geosim.cost.tcp.cubic import Cubic
from geosim.cost.tcp.flow import Flow
from geosim.cost.tcp.queue import Queue
from geosim.cost.tcp.reno import Reno
from geosim.cost.tcp.response import mean_window


def periodic(control, loss: float, rtt_s: float, expected: float) -> float:
    return mean_window(control, rtt_s, lambda: round(1 / loss) - 1, max(4, int(0.7 * expected)), 20, 20)


# Mean windows of RFC 8312, tables 1 (round trip 0.1 s) and 2 (0.01 s), 1500-byte packets: Reno's column.
@pytest.mark.parametrize(("loss", "window"), [(1e-3, 38), (1e-4, 120), (1e-5, 379)])
def test_reno_holds_the_published_window(loss, window):
    assert periodic(Reno(), loss, 0.1, window) == pytest.approx(window, rel=0.05)


# The same tables, CUBIC with C = 0.4, where one law rules a whole period.
@pytest.mark.parametrize(
    ("rtt_s", "loss", "window"), [(0.01, 1e-4, 120), (0.01, 1e-5, 379), (0.1, 1e-6, 5926)]
)
def test_cubic_holds_the_published_window(rtt_s, loss, window):
    assert periodic(Cubic(hystart=False), loss, rtt_s, window) == pytest.approx(window, rel=0.05)


# Misses 5 %: windows of ten segments are whole numbers, rounded down; at 1e-4 a loss comes while such a
# window stands on the plateau of its curve, so that each period repeats the last (docs/transport.md).
@pytest.mark.parametrize(
    ("rtt_s", "loss", "window"),
    [(0.1, 1e-2, 12), (0.1, 1e-3, 38), (0.1, 1e-4, 187), (0.1, 1e-5, 1054), (0.01, 1e-3, 38)],
)
def test_cubic_is_near_the_published_window_where_numbers_are_small_or_curves_flat(rtt_s, loss, window):
    assert periodic(Cubic(hystart=False), loss, rtt_s, window) == pytest.approx(window, rel=0.12)


def random_loss(control, loss: float, rtt_s: float, rate: float, seconds: float) -> float:
    """Payload bytes per second of one flow, one way, with random loss; the first fifth is left out."""
    chance = random.Random(3)
    clock = Clock()

    def draw() -> int:
        return int(chance.expovariate(loss))

    full = rate * rtt_s
    forward = Queue(rate, rtt_s / 2, full, 1500.0, draw)
    backward = Queue(rate, rtt_s / 2, full, 1500.0)
    flow = Flow(clock, forward, backward, control, 1 << 40)
    flow.give(1 << 50)
    clock.run(lambda: False, seconds / 5)
    before = flow.received
    clock.run(lambda: False, seconds)
    return (flow.received - before) * 1448 / (seconds * 0.8)


def test_cubic_at_one_per_cent_loss_is_as_slow_as_published():
    """3.27 Mbit/s by netperf at 100 ms and 1 % (E. Dumazet, BBR patch note); Mathis et al. give 1.4.

    Why they measured more than twice Mathis is not known; hence the band of a factor of three.
    """
    rate = 8 * random_loss(Cubic(), 0.01, 0.1, 1.25e9, 120.0)
    assert 3.27e6 / 3 <= rate <= 3.27e6
    mathis = 1.22 * 1448 * 8 / 0.1 / 0.01**0.5
    assert rate == pytest.approx(mathis, rel=0.25)


def test_reno_obeys_mathis():
    """Rate <= MSS / RTT * 1.22 / sqrt(p), below 1 % of loss (Mathis et al. 1997)."""
    for loss in (1e-3, 3e-3):
        rate = random_loss(Reno(), loss, 0.05, 1.25e9, 200.0)
        assert rate == pytest.approx(1.22 * 1448 / 0.05 / loss**0.5, rel=0.2)


@pytest.mark.parametrize("loss", [0.01, 0.05])
def test_bbr_fills_a_lossy_path(loss):
    """9150 Mbit/s of 10 Gbit/s by netperf at 100 ms and 1 % (same note); here of 100 Mbit/s, to be quick."""
    rate = random_loss(Bbr(), loss, 0.1, 12.5e6, 10.0)
    assert rate >= 0.88 * 12.5e6 * 1448 / 1500 * (1 - loss)
