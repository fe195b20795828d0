"""The simulated window under periodic loss, beside RFC 8312, tables 1 and 2 (C = 0.04, 0.4, 4; 1500-byte packets)."""

import random

import pytest

from geosim.cost.tcp.bbr import Bbr
from geosim.cost.tcp.clock import Clock
from geosim.cost.tcp.cubic import Cubic
from geosim.cost.tcp.flow import Flow
from geosim.cost.tcp.queue import Queue
from geosim.cost.tcp.reno import Reno
from geosim.cost.tcp.response import mean_window

# Mean windows of RFC 8312, table 1 (round trip 0.1 s) and 2 (0.01 s): loss, Reno, CUBIC with C = 0.4.
RFC_8312 = {
    0.1: ((1e-2, 12, 12), (1e-3, 38, 38), (1e-4, 120, 187), (1e-5, 379, 1054), (1e-6, 1200, 5926)),
    0.01: ((1e-2, 12, 12), (1e-3, 38, 38), (1e-4, 120, 120), (1e-5, 379, 379), (1e-6, 1200, 1200)),
}


def periodic(control, loss: float, rtt_s: float, expected: float) -> float:
    return mean_window(control, rtt_s, lambda: round(1 / loss) - 1, max(4, int(0.7 * expected)), 20, 40)


@pytest.mark.parametrize(("loss", "window"), [(1e-3, 38), (1e-4, 120), (1e-5, 379)])
def test_reno_holds_the_published_window(loss, window):
    assert periodic(Reno(), loss, 0.1, window) == pytest.approx(window, rel=0.05)
