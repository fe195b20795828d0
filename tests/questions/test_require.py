"""Thresholds: an answer passes, what lies beyond it does not, and what is out of reach has a reason."""

import pytest

from geosim.errors import UsageError
from geosim.policy import load_policy
from geosim.questions.knobs import KINDS, Knob, knobs_for
from geosim.questions.limits import what_limits
from geosim.questions.require import Target, Trial, require
from geosim.scenario import load_scenario
from geosim.settings import split_settings
from geosim.sim import simulate

BEYOND = {"bandwidth": 0.99, "rtt": 1.01, "loss": 1.01}


def trial(scenario="laptop", policy="local-sgd", measure="utilization", value=0.8, changes=None):
    world = load_scenario(scenario, changes or {})
    return Trial(world, load_policy(policy), Target(measure, value), seeds=2, windows=20)


@pytest.mark.parametrize(
    ("scenario", "policy", "measure", "value"),
    [
        ("laptop", "local-sgd", "utilization", 0.6),
        ("laptop", "diloco", "relative", 0.9),
        ("laptop", "ddp", "utilization", 0.05),
        ("laptop", "streaming-diloco", "utilization", 0.8),
        ("beijing-ningxia", "hierarchical-efsgd", "utilization", 0.95),
        ("transatlantic", "diloco", "relative", 0.9),
    ],
)
@pytest.mark.parametrize("kind", KINDS)
def test_the_answer_passes_and_one_per_cent_beyond_fails(scenario, policy, measure, value, kind):
    asked, knob = trial(scenario, policy, measure, value), Knob(kind)
    answer = require(asked, knob)
    if answer.found != "value":
        pytest.skip(f"{answer.found}: no threshold here")
    at = answer.passes.value

    def reached(v):
        world = knob.turned(asked.scenario, v)
        return asked.target.of(simulate(world, asked.policy, seeds=2, windows=20))

    assert reached(at) == answer.passes.reached >= value
    assert answer.fails.value == pytest.approx(at * BEYOND[kind], rel=1e-12)
    assert reached(at * BEYOND[kind]) == answer.fails.reached < value


def test_set_gives_what_the_answer_says():
    asked = trial()
    answer = require(asked, Knob("bandwidth"))
    changes, _ = split_settings(answer.settings)
    again = simulate(load_scenario("laptop", changes), asked.policy, seeds=2, windows=20)
    assert again.compute_utilization == answer.passes.reached


def test_a_higher_target_needs_more():
    least = [require(trial(value=v), Knob("bandwidth")).passes.value for v in (0.4, 0.6, 0.8)]
    assert least == sorted(least)
    largest = [require(trial(value=v), Knob("rtt")).passes.value for v in (0.3, 0.5, 0.6)]
    assert largest == sorted(largest, reverse=True)


def test_out_of_reach_names_what_limits():
    asked = trial(value=0.95)
    answer = require(asked, Knob("bandwidth"))
    assert answer.found == "none"
    assert answer.fails is None
    limit = what_limits(asked, Knob("bandwidth").turned(asked.scenario, answer.passes.value))
    assert limit.reliefs[0][0] == "round trips"
    assert limit.enough
    rtt = require(asked, Knob("rtt"))
    assert (
        what_limits(asked, Knob("rtt").turned(asked.scenario, rtt.passes.value)).reliefs[0][0] == "bandwidth"
    )


def test_windows_uplinks_and_the_sites_are_named_too():
    def relief(asked):
        answer = require(asked, Knob("bandwidth"))
        assert answer.found == "none"
        return what_limits(asked, Knob("bandwidth").turned(asked.scenario, answer.passes.value))

    fast = {"wan.0.rtt": "2 ms"}
    narrow = {"wan.0.window": "16 kB"}
    assert {"TCP windows", "round trips"} <= dict(
        relief(trial(value=0.9, changes={**fast, **narrow})).reliefs
    ).keys()
    uplink = {f"sites.{i}.{way}": "20 Mbit/s" for i in (0, 1) for way in ("uplink", "downlink")}
    assert relief(trial(value=0.9, changes={**fast, **uplink})).reliefs[0][0] == "sites' uplinks"
    own = relief(trial(value=0.99, changes={"wan.0.rtt": "0 s"}))
    assert own.reliefs == ()
    assert own.part == "site_collective"


def test_a_target_below_everything_holds_over_the_whole_range():
    answer = require(trial(policy="hierarchical-efsgd", value=0.2), Knob("loss"))
    assert answer.found == "any"
    assert answer.passes.reached >= 0.2


def test_all_links_keep_their_proportion():
    world = load_scenario("four-regions")
    narrowest = min(link.bandwidth_bytes_per_s for link in world.wan)
    twice = Knob("bandwidth").turned(world, 2 * narrowest)
    assert Knob("bandwidth").value(world) == narrowest
    for before, after in zip(world.wan, twice.wan, strict=True):
        assert after.bandwidth_bytes_per_s == pytest.approx(2 * before.bandwidth_bytes_per_s)
    lossy = Knob("loss").turned(world, 0.01)
    assert {link.loss for link in lossy.wan} == {0.01}


def test_one_link_leaves_the_others_alone():
    world = load_scenario("four-regions")
    turned = Knob("rtt", 2).turned(world, 0.5)
    assert [a == b for a, b in zip(world.wan, turned.wan, strict=True)] == [True] * 2 + [False] + [True] * 3
    assert turned.wan[2].rtt_s == 0.5


def test_a_way_back_and_a_trace_follow():
    changes = {"wan.0.back_bandwidth": "10 Mbit/s", "wan.0.trace": [{"at": "0 s", "bandwidth": "50 Mbit/s"}]}
    turned = Knob("bandwidth").turned(load_scenario("laptop", changes), 200e6 / 8)
    assert turned.wan[0].back_bandwidth_bytes_per_s == pytest.approx(20e6 / 8)
    assert turned.wan[0].trace[0].bandwidth_bytes_per_s == pytest.approx(100e6 / 8)


def test_default_knobs_are_all_links_and_each_of_several():
    assert knobs_for(load_scenario("laptop"), []) == [Knob(kind) for kind in KINDS]
    assert len(knobs_for(load_scenario("four-regions"), [])) == 3 * (1 + 6)
    assert knobs_for(load_scenario("four-regions"), ["wan.*.rtt", "wan.5.loss"]) == [
        Knob("rtt"),
        Knob("loss", 5),
    ]


@pytest.mark.parametrize("path", ["wan.6.rtt", "wan.0.jitter", "rtt", "wan.-1.rtt", "wan.0.rtt.x", ""])
def test_other_paths_are_refused(path):
    with pytest.raises(UsageError, match=r"--vary .*use wan\.N\.bandwidth"):
        knobs_for(load_scenario("four-regions"), [path])
