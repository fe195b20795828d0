"""Small parts: pacing, percentiles, warm-up, and a scenario's WAN as links."""

import math
import subprocess
import sys
import time
from itertools import pairwise
from types import SimpleNamespace

import pytest

from geosim.cost.assemble import _table, ddp_wan_bytes
from geosim.errors import RunError, UsageError
from geosim.scenario import load_scenario
from runtime.crew import Crew
from runtime.job import warmup_cosine
from runtime.measure import Clock, percentile, warm_steps
from runtime.pace import Pacer, sleep_until
from runtime.report import _against_ddp, _optimizer_step, timed_windows
from runtime.supported import check_steps
from runtime.wan import _sysctls, check_connected, emulated_wan, start_traces


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


def test_a_computation_slower_than_its_pace_is_late():
    pacer = Pacer(0.01, numel=10)
    late = []
    for busy in (0.0, 0.02, 0.0):
        pacer.begin()
        time.sleep(busy)
        pacer.end()
        late.append(pacer.late)
    assert late == [False, True, False]


def test_a_window_with_a_pause_is_not_measured():
    job = SimpleNamespace(policy=SimpleNamespace(interval=2), steps=10)
    rank = {"first_step": 0, "warm_step": 2, "pauses": [4, 7, 10]}
    assert timed_windows(job, rank) == [[2, 3], [8, 9]]


def test_wan_bytes_are_held_against_those_that_the_simulator_says_ddp_has():
    scenario = load_scenario("four-regions", {"wan.0.mtu": "9000 B"})
    numel = _table(scenario.workload).numel
    job = SimpleNamespace(sites=[site.name for site in scenario.sites], scenario=scenario)
    links = {"a->b": {"bytes_per_step": 3e6}, "b->a": {"bytes_per_step": 1e6}}
    assert _against_ddp(job, numel, links, "tun") == pytest.approx(4e6 / ddp_wan_bytes(scenario), rel=1e-9)
    assert _against_ddp(SimpleNamespace(sites=["a"], scenario=scenario), numel, {}, "tun") == 0.0


@pytest.mark.parametrize(("kind", "want"), [("accumulate", 8.0), ("local", 0.5)])
def test_the_optimizer_steps_cost(kind, want):
    job = SimpleNamespace(
        policy=SimpleNamespace(is_flat=False, interval=4, update=SimpleNamespace(kind=kind))
    )
    split = {"parts_inside": {"apply": 0.5}}
    assert _optimizer_step(job, {"apply": 2.0}, split) == want


def test_a_follower_is_not_taken_for_the_cause():
    """Its process has ended, and what it said of another one's end is still on its way."""
    slow = "import os, sys, time; os.close(2); sys.stdin.readline(); os.fork() or (time.sleep(0.4), "
    slow += 'print(\'{"event": "error", "message": "lost", "status": 1, "follows": true}\', flush=True),'
    slow += " os._exit(0)); os._exit(1)"
    cause = "import sys, time; sys.stdin.readline(); time.sleep(0.6); sys.exit(7)"
    with Crew(stall_s=20) as crew:
        for site, code in (("east", slow), ("west", cause)):
            process = subprocess.Popen(
                [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                stderr=subprocess.PIPE, text=True,
            )  # fmt: skip
            crew.add(site, 0, process, {})
        with pytest.raises(RunError, match="'west' rank 0 ended with status 7"):
            list(crew.events())


def test_the_first_word_may_take_longer_than_the_next_ones():
    """Kernels are compiled before it."""
    code = (
        'import sys, time; sys.stdin.readline(); time.sleep(1.5); print(\'{"event": "step"}\', flush=True);'
    )
    code += " time.sleep(60)"
    with Crew(stall_s=1, start_s=30) as crew:
        process = subprocess.Popen(
            [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        crew.add("east", 0, process, {})
        events = crew.events()
        assert next(events)[1] == {"event": "step"}
        with pytest.raises(RunError, match="no rank has made progress for 1 s"):
            next(events)


def test_a_link_keeps_its_window_in_flight_and_starts_its_trace_when_told():
    trace = [{"at": "0 s", "bandwidth": "10 Mbit/s"}, {"at": "2 s", "bandwidth": "20 Mbit/s"}]
    changes = {"wan.0.trace": trace, "wan.0.bandwidth": "100 Mbit/s", "wan.0.back_bandwidth": "50 Mbit/s"}
    loaded = load_scenario("laptop", changes)
    _, start, most = map(int, _sysctls(loaded)["net.ipv4.tcp_wmem"].split())
    assert most * 0.69 == pytest.approx(4 * 2**20, rel=0.01)
    assert start <= most
    set_to = {}
    network = SimpleNamespace(set_link=lambda a, b, trace: set_to.update({(a, b): trace}))
    start_traces(loaded, network)
    assert set_to["east", "west"] == ((0.0, 1.25e6), (2.0, 2.5e6))
    assert set_to["west", "east"] == ((0.0, 0.625e6), (2.0, 1.25e6))


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
