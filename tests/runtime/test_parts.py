"""Small parts: pacing, percentiles, warm-up, and a scenario's WAN as links."""

import math
import time
from itertools import pairwise

import pytest

from geosim.errors import UsageError
from geosim.scenario import load_scenario
from runtime.job import warmup_cosine
from runtime.measure import Clock, percentile, warm_steps
from runtime.pace import Pacer, sleep_until
from runtime.supported import check_steps
from runtime.wan import check_connected, emulated_wan


def test_sleep_until_is_never_early_and_hardly_late():
    late = []
    for _ in range(20):
        deadline = time.perf_counter() + 0.003
        sleep_until(deadline)
        late.append(time.perf_counter() - deadline)
    assert min(late) >= 0
    assert sorted(late)[10] < 0.001
    sleep_until(time.perf_counter() - 1)


def test_a_paced_step_takes_its_time_and_an_unpaced_one_does_not():
    pacer = Pacer(0.02, numel=10)
    pacer.begin()
    assert pacer.end() < 0.005
    assert 0.02 <= pacer.computation_s < 0.03
    free = Pacer(None, numel=10)
    free.begin()
    free.end()
    assert free.computation_s < 0.005


def test_percentile_is_numpys():
    assert percentile([4.0, 1.0, 3.0, 2.0], 0.5) == 2.5
    assert percentile([1.0, 2.0, 3.0], 0.95) == pytest.approx(2.9)
    assert percentile([], 0.5) == 0.0


@pytest.mark.parametrize(
    ("steps", "interval", "warm"),
    [(16, 16, 0), (32, 16, 16), (64, 16, 32), (20, 1, 4), (3, 1, 2), (12, 3, 6)],
)
def test_warm_up_leaves_a_window(steps, interval, warm):
    assert warm_steps(steps, interval) == warm


def test_clock_counts_each_part_and_starts_again():
    clock = Clock()
    with clock.part("wait"):
        time.sleep(0.002)
    clock.add("compute", 1.0)
    taken = clock.take()
    assert taken["wait"] >= 0.002
    assert taken["compute"] == 1.0
    assert not any(clock.take().values())


def test_learning_rate_warms_up_and_falls():
    factor = warmup_cosine(100)
    rates = [factor(n) for n in range(101)]
    assert rates[0] == pytest.approx(0.1)
    assert max(rates) == rates[10] == 1.0
    assert rates[100] == pytest.approx(0.1)


@pytest.mark.parametrize(("steps", "nearest"), [(20, "16 or 32"), (5, "use 16"), (0, "1 or more")])
def test_steps_that_end_no_window(steps, nearest):
    with pytest.raises(UsageError, match=nearest):
        check_steps(steps, 16)
    check_steps(32, 16)


def test_what_the_emulator_cannot_do_is_refused():
    with pytest.raises(UsageError, match="uplink"):
        emulated_wan(load_scenario("laptop", {"sites.0.uplink": "10 Mbit/s"}), 0)
    with pytest.raises(UsageError, match="no link between 'east' and 'west'"):
        check_connected(load_scenario("laptop", {"wan": []}))


def test_jitter_of_a_scenario_is_a_standard_deviation():
    """The emulator's path through uniform draws, sampled evenly, has the deviation that was asked for."""
    from random import Random

    from runtime.wan import _JITTER_DEVIATION

    draw = Random(1)
    points = [draw.uniform(-1, 1) for _ in range(20001)]
    values = [a + (b - a) * k / 8 for a, b in pairwise(points) for k in range(8)]
    deviation = math.sqrt(sum(v * v for v in values) / len(values))
    assert deviation == pytest.approx(_JITTER_DEVIATION, rel=0.02)
