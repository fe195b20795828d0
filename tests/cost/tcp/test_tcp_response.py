"""Windows and rates of simulated flows under loss, beside published ones."""

import random
from statistics import fmean

import pytest

from geosim.cost.tcp.bbr import Bbr
from geosim.cost.tcp.clock import Clock
from geosim.cost.tcp.control import Control
from geosim.cost.tcp.cubic import Cubic
from geosim.cost.tcp.flow import Flow
from geosim.cost.tcp.queue import Queue
from geosim.cost.tcp.reno import Reno
from geosim.cost.tcp.response import mean_window

# RFC 8312, tables 1 and 2, 1500-byte packets: round trip, loss, windows of Reno and of CUBIC with these C.
AGGRESSIVENESS = (0.04, 0.4, 4.0)
PUBLISHED = (
    (0.1, 1e-2, 12, (12, 12, 12)),
    (0.1, 1e-3, 38, (38, 38, 59)),
    (0.1, 1e-4, 120, (120, 187, 333)),
    (0.1, 1e-5, 379, (593, 1054, 1874)),
    (0.1, 1e-6, 1200, (3332, 5926, 10538)),
    (0.1, 1e-7, 3795, (18740, 33325, 59261)),
    (0.1, 1e-8, 12000, (105383, 187400, 333250)),
    (0.01, 1e-2, 12, (12, 12, 12)),
    (0.01, 1e-3, 38, (38, 38, 38)),
    (0.01, 1e-4, 120, (120, 120, 120)),
    (0.01, 1e-5, 379, (379, 379, 379)),
    (0.01, 1e-6, 1200, (1200, 1200, 1874)),
    (0.01, 1e-7, 3795, (3795, 5926, 10538)),
    (0.01, 1e-8, 12000, (18740, 33325, 59261)),
)
RENO = [(rtt, loss, window) for rtt, loss, window, _ in PUBLISHED]
CUBIC = [
    (rtt, loss, c, window, window > 1.03 * reno)
    for rtt, loss, reno, windows in PUBLISHED
    for c, window in zip(AGGRESSIVENESS, windows, strict=True)
]
# Where the friendly line and the cubic curve cross within a period; the table has the higher of their means.
CROSSING = {(0.1, 1e-3, 0.4), (0.1, 1e-4, 0.04), (0.01, 1e-5, 4.0), (0.01, 1e-6, 0.4), (0.01, 1e-7, 0.04)}
# Windows of 12 segments, and of 38 at 10 ms: whole numbers, rounded down, looked at 32 times a second.
SMALL = {row[:3] for row in CUBIC if row[1] == 1e-2 or row[:2] == (0.01, 1e-3)}
PLAIN = [row for row in CUBIC if row[:3] not in CROSSING | SMALL]


def periodic(control, rtt_s: float, loss: float, begin: float, losses: int = 4, skipped: int = 2) -> float:
    """Mean window where every 1/loss-th segment is lost and the first period begins at `begin` segments."""
    return mean_window(control, rtt_s, lambda: round(1 / loss) - 1, max(4, int(begin)), losses, skipped)


def top_of(window: float, is_curve: bool) -> float:
    """The window at a loss whose (3 + beta) / 4 on the curve, or 0.85 on the line, is the mean `window`."""
    return window / (0.925 if is_curve else 0.85)


def linux(rtt_s: float, loss: float, c: float, window: float, is_curve: bool, **more: int) -> float:
    """Linux's CUBIC from the published cycle on; it gives way to nobody here, as in the derivation."""
    top = top_of(window, is_curve)
    control = Cubic(c, hystart=False, fast_convergence=False, w_max=top)
    return periodic(control, rtt_s, loss, 0.7 * top, **more)


class Written(Control):
    """CUBIC, or Reno with c = 0, as the RFC writes it: a real window that follows every acknowledgement."""

    def __init__(self, c: float, beta: float, start: float) -> None:
        self.c, self.beta, self.slope = c, beta, 3 * (1 - beta) / (1 + beta)
        self.window, self.begin, self.epoch = start, start, -1.0
        self.w_max = start / beta

    def grow(self, flow, sample) -> None:
        if self.epoch < 0:
            self.epoch = sample.now - flow.srtt_s
        t = sample.now - self.epoch
        k = ((self.w_max - self.begin) / self.c) ** (1 / 3) if self.c else 0.0
        curve = self.w_max + self.c * (t - k) ** 3 if self.c else 0.0
        self.window = max(curve, self.begin + self.slope * t / flow.srtt_s)
        flow.cwnd = round(self.window)

    def threshold(self, flow, now) -> int:
        self.epoch, self.w_max, self.begin = -1.0, self.window, self.beta * self.window
        self.window = self.begin
        return max(2, round(self.begin))


def fluid(rtt_s: float, loss: float, c: float, window: float, is_curve: bool) -> float:
    """Mean over periods of the higher of curve and line (section 4), answered at once, with real windows."""
    top, means = top_of(window, is_curve), []
    for _ in range(30):
        k = (0.3 * top / c) ** (1 / 3)
        step = min(rtt_s, k / 1000)
        sent = t = 0.0
        while sent < 1 / loss:
            now = max(top + c * (t - k) ** 3, 0.7 * top + 0.9 / 1.7 * t / rtt_s)
            sent, t = sent + now * step / rtt_s, t + step
        top = now
        means.append(sent / t * rtt_s)
    return fmean(means[10:])


@pytest.mark.parametrize(("rtt_s", "loss", "window"), [row for row in RENO if row[1] < 1e-2])
def test_reno_holds_the_published_window(rtt_s, loss, window):
    assert periodic(Reno(), rtt_s, loss, 0.5 * window / 0.75) == pytest.approx(window, rel=0.05)


@pytest.mark.parametrize("row", PLAIN)
def test_cubic_holds_the_published_window(row):
    assert linux(*row) == pytest.approx(row[3], rel=0.05)


@pytest.mark.parametrize("row", [row for row in CUBIC if row[:3] in CROSSING])
def test_where_curve_and_line_cross_the_window_is_the_mean_of_the_higher_one(row):
    """The table has the higher mean instead, 5 % less, and its line has 1.2 / sqrt(p), not sqrt(3 / 2p)."""
    expected = fluid(*row)
    assert row[3] * 1.03 < expected < row[3] * 1.06
    assert linux(*row) == pytest.approx(expected, rel=0.05)


@pytest.mark.parametrize("row", [row for row in CUBIC if row[:3] in SMALL])
def test_small_windows_are_the_published_ones_but_for_whole_numbers_rounded_down(row):
    """Linux loses 2.5 segments at most: 0.7 x 15 is 10, its line is a whole number (up to 1 less each) and
    a round late, or three where it looks again only after 1/32 s (0.53 a round).
    """
    rtt_s, loss, c, window, is_curve = row
    begin = 0.7 * top_of(window, is_curve)
    assert periodic(Written(c, 0.7, begin), rtt_s, loss, begin, 40, 20) == pytest.approx(window, rel=0.05)
    assert window - 2.5 <= linux(*row, losses=40, skipped=20) <= 1.05 * window


def test_renos_window_of_twelve_is_the_published_one_but_for_whole_numbers_rounded_down():
    """15 segments give 7, and the round of recovery adds none: a segment at most."""
    begin = 0.5 * 12 / 0.75
    assert periodic(Written(0.0, 0.5, begin), 0.1, 1e-2, begin, 40, 20) == pytest.approx(12, rel=0.05)
    assert 11 <= periodic(Reno(), 0.1, 1e-2, begin, 40, 20) <= 12


@pytest.mark.parametrize("off", [-0.08, 0.08])
def test_cubic_draws_near_the_published_window_as_slowly_as_its_plateau_is_flat(off):
    """With N = 1/p fixed, a top off by e is off by e - 0.3 (4 e / 3)^3 a loss later: 1/e^2 grows by 1.42."""
    losses, measured = 40, 4
    rtt_s, loss, c, window = 0.1, 1e-8, 4.0, 333250
    seen = linux(rtt_s, loss, c, (1 + off) * window, True, losses=measured, skipped=losses) / window - 1
    assert abs(seen) == pytest.approx((1 / off**2 + 2 * 0.3 * (4 / 3) ** 3 * losses) ** -0.5, rel=0.1)
    assert seen * off > 0


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
