"""Field report A's claims against results, and what they turn on."""

import pytest

from geosim.policy import load_policy
from geosim.report.claims import CLAIMS, check
from geosim.report.notes import what_decides
from geosim.scenario import load_scenario, scenario_names
from geosim.sim import simulate

NAMES = ("ddp", "hierarchical-efsgd")


def checked(changes=None, names=NAMES):
    scenario = load_scenario("beijing-ningxia", changes)
    policies = [load_policy(name) for name in names]
    results = [simulate(scenario, p, seeds=1, windows=20).to_dict() for p in policies]
    return {claim.id: claim for claim in check(scenario, policies, results)}


def test_claims_are_about_scenarios_that_exist():
    assert set(CLAIMS) <= set(scenario_names())


def test_a_7b_model():
    claims = checked()
    assert {i: c.holds for i, c in claims.items()} == {
        "A1a": False,
        "A1b": True,
        "A2": True,
        "A3": True,
        "A4": True,
    }
    assert "million parameters" in claims["A1a"].turns_on
    assert "sequences" in claims["A1b"].turns_on
    assert "K = 1" in claims["A2"].turns_on
    for claim in (claims["A3"], claims["A4"]):
        assert "false below" in claim.turns_on
        assert "bit/s" in claim.turns_on


def test_a1_holds_where_the_claim_says_it_turns():
    changes = {"workload.model": "gpt2-124m", "wan.0.rtt": "2.5 ms"}
    slow = checked(changes, names=("ddp",))["A1a"]
    bandwidth = slow.turns_on.split("a link of ")[1].split(";")[0]
    assert not slow.holds
    assert checked(changes | {"wan.0.bandwidth": bandwidth}, names=("ddp",))["A1a"].holds


@pytest.mark.parametrize(("bandwidth", "holds"), [("10 Mbit/s", False), ("200 Mbit/s", True)])
def test_a3_and_a4_turn_at_the_bandwidth_they_name(bandwidth, holds):
    claims = checked({"wan.0.bandwidth": bandwidth}, names=("hierarchical-efsgd",))
    assert set(claims) == {"A2", "A3", "A4"}
    assert claims["A3"].holds == claims["A4"].holds == holds
    assert ("false below" in claims["A4"].turns_on) == holds
    assert ("true from" in claims["A4"].turns_on) != holds


def test_other_scenarios_have_no_claims():
    scenario, policy = load_scenario("laptop"), load_policy("ddp")
    assert check(scenario, [policy], [simulate(scenario, policy, seeds=1, windows=5).to_dict()]) == []


def test_notes_say_what_decides():
    scenario = load_scenario("laptop")
    policies = [load_policy(name) for name in NAMES]
    results = [simulate(scenario, p, seeds=1, windows=20).to_dict() for p in policies]
    ddp, hidden, traffic, spread = what_decides(scenario, policies, results)
    assert ddp.startswith("ddp does not hide")
    assert "it still would at" in hidden
    assert "1/16 by K = 16" in traffic
    assert "times as many tokens a second" in spread


def test_causes_of_the_traffic_multiply_to_the_whole():
    scenario, policy = load_scenario("laptop"), load_policy("local-sgd")
    result = simulate(scenario, policy, seeds=1, windows=20).to_dict()
    line = what_decides(scenario, [policy], [result])[1]
    shares = [float(part.split(" %")[0]) / 100 for part in line.split(": ")[1].split(" x ") if "%" in part]
    assert shares[0] * shares[1] / 16 == pytest.approx(result["wan_bytes_vs_ddp"], rel=0.01)
