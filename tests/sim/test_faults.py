"""Faults: their draws, the walk over days, and both held against the engine running every second."""

import math
from statistics import fmean

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sim_worlds import TOPK, policy, world

from geosim.cost import build
from geosim.errors import UsageError
from geosim.scenario import Faults
from geosim.scenario.loader import change_scenario
from geosim.sim import Tracer, simulate
from geosim.sim.exact import useful_windows
from geosim.sim.faults import Fault, draw_faults
from geosim.sim.goodput import PARTS, Absence, Loss, Stall, spend, walk
from geosim.sim.impact import Impacts
from geosim.sim.inject import Injected
from geosim.spec import from_dict

RULES = {
    "blocking": policy(update="local", interval=10),
    "delayed": policy(update="local", interval=10, overlap={"kind": "delayed", "windows": 2}, codec=TOPK),
    "streaming": policy(
        update="local", interval=10, overlap={"kind": "streaming", "fragments": 2, "steps": 3}
    ),
    "flat": policy(topology="flat-ring"),
}
CHECKPOINT = {"interval": "30 s", "time": "1 s"}
KINDS = {
    "stragglers": {"straggler": {"mtbf": "400 s", "lasts": "20 s", "slowdown": 2}},
    "links": {"link": {"mtbf": "200 s", "lasts": "6 s"}},
    "losses": {
        "accelerator": {"mtbf": "1200 s"},
        "site": {"mtbf": "800 s", "lasts": "30 s"},
        "restart": "20 s",
        "checkpoint": CHECKPOINT,
    },
    "timeouts": {
        "link": {"mtbf": "200 s", "lasts": "10 s"},
        "timeout": {"after": "3 s", "retries": 2, "backoff": "1 s"},
        "restart": "20 s",
        "checkpoint": CHECKPOINT,
    },
    "all": {
        "straggler": {"mtbf": "1000 s", "lasts": "20 s", "slowdown": 2},
        "link": {"mtbf": "200 s", "lasts": "6 s"},
        "accelerator": {"mtbf": "2000 s"},
        "restart": "20 s",
        "checkpoint": CHECKPOINT,
    },
}


def made(faults, **fields):
    return world(**fields).model_copy(update={"faults": from_dict(Faults, faults, "faults")})


def setting(faults, rule, **fields):
    """Scenario, problem and seconds of a window without faults."""
    scenario = made(faults, **fields)
    base = simulate(scenario, rule, seeds=1, windows=60)
    return scenario, build(scenario, rule), base.step_time_s.mean * rule.interval


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("kind", KINDS)
def test_the_walk_agrees_with_an_engine_that_runs_every_second(rule, kind):
    """Rates a thousand times those of real machines, over 400 s, mean of four seeds.

    The walk prices faults one by one, each at a place in a window that it draws, where the engine has the
    place it comes to, faults of one link that meet, and sites ahead of each other after an earlier fault. At
    these rates that is some 1 % of the time.
    """
    scenario, problem, window = setting(KINDS[kind], RULES[rule])
    horizon, seeds = 400.0, range(4)
    walked = [spend(scenario, problem, window, horizon, seed).goodput for seed in seeds]
    exact = [useful_windows(scenario, problem, window, horizon, seed) * window / horizon for seed in seeds]
    assert np.mean(exact) < 0.99
    assert np.mean(walked) == pytest.approx(np.mean(exact), abs=0.02)
    if kind == "losses":
        assert walked == pytest.approx(exact, abs=0.01)  # restarts are exact, up to the cold start


@pytest.mark.parametrize("rule", RULES)
def test_without_faults_nothing_is_lost_at_all(rule):
    scenario, problem, window = setting({}, RULES[rule])
    spent = spend(scenario, problem, window, 604800.0, 0)
    assert spent.goodput == 1.0
    assert not any(spent.parts_s.values())
    assert not any(spent.counts.values())


MTBF = st.floats(50, 5000)


@settings(max_examples=8)
@given(MTBF, MTBF, MTBF, MTBF, st.floats(1, 4), st.sampled_from(sorted(RULES)), st.integers(0, 99))
def test_more_faults_are_never_better_and_the_time_adds_up(slow, link, rank, site, more, rule, seed):
    def faults(factor):
        return {
            "straggler": {"mtbf": f"{slow / factor} s", "lasts": "20 s", "slowdown": 2},
            "link": {"mtbf": f"{link / factor} s", "lasts": "6 s"},
            "accelerator": {"mtbf": f"{rank / factor} s"},
            "site": {"mtbf": f"{site / factor} s", "lasts": "30 s"},
            "restart": "20 s",
            "checkpoint": CHECKPOINT,
        }

    few, problem, window = setting(faults(1), RULES[rule])
    many = made(faults(more))
    spent = [spend(scenario, problem, window, 600.0, seed) for scenario in (few, many)]
    assert spent[1].goodput <= spent[0].goodput + 1e-12
    for each in spent:
        assert 0 <= each.goodput <= 1
        assert each.useful_s + sum(each.parts_s.values()) == pytest.approx(600.0)


def test_draws_have_the_stated_rate_and_length():
    scenario = made({"straggler": {"mtbf": "1000 s", "lasts": "20 s"}, "link": {"mtbf": "500 s"}}, ranks=4)
    runs = [draw_faults(scenario, 1e5, seed) for seed in range(20)]
    slow = [f for run in runs for f in run if f.kind == "straggler"]
    assert len(slow) / 20 == pytest.approx(2 * 4 * 1e5 / 1000, rel=0.05)  # two sites of four
    assert np.mean([f.lasts_s for f in slow]) == pytest.approx(20, rel=0.05)
    assert np.mean([f.at_s for f in slow]) == pytest.approx(5e4, rel=0.05)
    assert sum(f.kind == "link" for run in runs for f in run) / 20 == pytest.approx(200, rel=0.1)


@settings(max_examples=30)
@given(st.floats(10, 1e5), st.floats(1, 50), st.integers(0, 1000))
def test_a_higher_rate_adds_faults_and_moves_none(mtbf, factor, seed):
    few = draw_faults(made({"link": {"mtbf": f"{mtbf} s"}}), 1e4, seed)
    many = draw_faults(made({"link": {"mtbf": f"{max(1, mtbf / factor)} s"}}), 1e4, seed)
    assert set(few) <= set(many)


def test_the_walk_by_hand():
    """Checkpoints after every 10 s of work, each 1 s; a restart takes 5 s."""
    nothing = walk(100.0, [], [], [], 10.0, 0.0)
    assert nothing == (100.0, dict.fromkeys(PARTS, 0.0))
    useful, parts = walk(100.0, [], [Loss(27.0, 5.0)], [], 10.0, 1.0)
    # At 27 s two checkpoints are there (22 s of work); 68 s are left from 32 s on.
    assert parts["restarts"] == pytest.approx(5 + 5)
    assert useful == pytest.approx(90 - 8)
    assert parts["checkpoints"] == pytest.approx(8)
    stalls = [Stall(10.0, 30.0, 0.5, "stragglers"), Stall(20.0, 30.0, 1.0, "links")]
    useful, parts = walk(100.0, stalls, [], [], 1e9, 0.0)
    assert (useful, parts["stragglers"], parts["links"]) == pytest.approx((85, 5, 10))
    # A loss while all is stopped starts the restart again.
    useful, parts = walk(100.0, [], [Loss(20.0, 5.0), Loss(23.0, 5.0)], [], 10.0, 0.0)
    assert (useful, parts["restarts"]) == pytest.approx((92, 8))


def test_sites_that_go_on_lose_the_share_of_the_one_that_left_until_all_have_left():
    gone = [Absence(0, 10.0, 30.0, 0.25)]
    useful, parts = walk(100.0, [], [], gone, 10.0, 0.0)
    assert (useful, parts["restarts"]) == pytest.approx((95, 5))
    both = [Absence(0, 10.0, 30.0, 0.5), Absence(1, 25.0, 40.0, 0.5)]
    useful, parts = walk(100.0, [], [], both, 10.0, 0.0)
    # 10 to 25 s and 30 to 40 s at half speed; from 25 to 30 s nobody, and work from 20 s on is lost.
    assert parts["restarts"] == pytest.approx(7.5 + 5 + 5 + 5)
    assert useful == pytest.approx(100 - 22.5)


def test_going_on_without_a_lost_site_loses_less_than_waiting_for_it_and_plain_ddp_cannot():
    site = {"site": {"mtbf": "600 s", "lasts": "60 s"}, "restart": "5 s", "checkpoint": CHECKPOINT}
    for name, better in (("blocking", True), ("flat", False)):
        scenario, problem, window = setting(site, RULES[name])
        goes_on = change_scenario(scenario, {"faults.on_site_loss": "continue"})
        runs = [
            [spend(world_, problem, window, 3000.0, seed).goodput for seed in range(5)]
            for world_ in (scenario, goes_on)
        ]
        assert (np.mean(runs[1]) > np.mean(runs[0])) == better
        if not better:
            assert runs[0] == runs[1]


def test_an_exchange_that_runs_out_of_tries_restarts_the_run():
    faults = {"link": {"mtbf": "1 h"}, "timeout": {"after": "2 s", "retries": 1, "backoff": "1 s"}}
    scenario, problem, window = setting(faults, RULES["blocking"])
    impacts = Impacts(problem, scenario.faults, 0, window)
    assert impacts.of(Fault("link", 0, 0.0, 1.0, 0.95)).gives_up_after_s == math.inf
    hit = impacts.of(Fault("link", 0, 0.0, 30.0, 0.5))
    # Two tries of 2 s with 1 s between them, from the exchange on, at the window's end.
    assert 5.0 < hit.gives_up_after_s < 5.0 + window


def test_a_long_straggler_costs_in_proportion():
    faults = {"straggler": {"mtbf": "1 h", "slowdown": 3}}
    scenario, problem, window = setting(faults, RULES["blocking"], step=0.02)
    impacts = Impacts(problem, scenario.faults, 0, window)
    short, long = (impacts.of(Fault("straggler", 1, 0.0, n * window, 0.0)).lost_s for n in (33, 64))

    def direct(windows: int) -> float:
        """Of faults of about so long: where a fault ends in a window scatters one by a sixth."""
        lengths = (n * window for n in range(windows - 3, windows + 4))
        return fmean(impacts._run(Fault("straggler", 1, 0.0, s, 0.0), s, 0.0).lost_s for s in lengths)

    assert short == pytest.approx(direct(33), rel=0.05)
    assert long == pytest.approx(direct(64), rel=0.05)


def test_restarts_show_in_the_trace_of_an_exact_run():
    often = {**KINDS["all"], "accelerator": {"mtbf": "300 s"}}
    scenario, problem, window = setting(often, RULES["blocking"])
    tracer = Tracer()
    with_trace = useful_windows(scenario, problem, window, 300.0, 0, tracer)
    assert with_trace == pytest.approx(useful_windows(scenario, problem, window, 300.0, 0))
    names = {name for _, track, name, _, _ in tracer.spans if track == "faults"}
    assert {"restart", "outage", "straggler x2"} <= names
    assert max(end for *_, end in tracer.spans) <= 300.0


@pytest.mark.parametrize(
    ("faults", "says"),
    [
        ({"link": {"mtbf": "0 s"}}, "faults.link.mtbf"),
        ({"link": {}}, "faults.link.mtbf"),
        ({"link": {"mtbf": 5}}, "is not a time"),
        ({"straggler": {"mtbf": "1 h", "slowdown": 0.5}}, "faults.straggler.slowdown"),
        ({"on_site_loss": "ignore"}, "faults.on_site_loss"),
        ({"accelerators": {"mtbf": "1 h"}}, "unknown key; did you mean 'accelerator'"),
        ({"timeout": {"after": "1 s", "retries": 99}}, "faults.timeout.retries"),
    ],
)
def test_what_makes_no_sense_is_refused(faults, says):
    with pytest.raises(UsageError, match=says):
        change_scenario(world(), {"faults": faults})


def test_checkpoints_lie_within_long_windows_too():
    """Windows of 20 s, saved every 3 s: a restart loses seconds, in the walk and in the engine."""
    rule = policy(update="local", interval=200, codec=TOPK)
    faults = {"accelerator": {"mtbf": "200 s"}, "restart": "5 s", "checkpoint": {"interval": "3 s"}}
    scenario, problem, window = setting(faults, rule)
    seldom = change_scenario(scenario, {"faults.checkpoint.interval": "20 s"})
    walked = [spend(scenario, problem, window, 400.0, seed).goodput for seed in range(4)]
    exact = [useful_windows(scenario, problem, window, 400.0, seed) * window / 400 for seed in range(4)]
    assert walked == pytest.approx(exact, abs=0.02)
    assert np.mean(walked) > 1.05 * np.mean(
        [spend(seldom, problem, window, 400.0, s).goodput for s in range(4)]
    )


def test_saves_come_before_the_step_after_every_so_many():
    made = Injected(save_steps=10, save_s=1.0)
    assert [made.saves(a, b) for a, b in ((0, 10), (0, 11), (10, 11), (11, 20), (5, 35))] == [0, 1, 1, 0, 3]
