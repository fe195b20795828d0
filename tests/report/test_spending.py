"""What a step costs beside time: memory by what it holds, accelerator hours and egress, by hand."""

import json

import pytest

from geosim.cli import main
from geosim.cost.step.check import check
from geosim.policy import load_policy
from geosim.report.spending import lines, spending
from geosim.scenario import load_scenario
from geosim.sim import simulate

PRICES = {"prices.accelerator_hour": 2, "prices.egress_per_terabyte": 50}
BIG = "llama-70b-two-campuses"


def spent(name, policy, changes):
    world, chosen = load_scenario(name, changes), load_policy(policy)
    result = simulate(world, chosen, seeds=1, windows=4).to_dict()
    return world, result, spending(world, chosen, result)


def test_memory_is_what_training_and_the_policy_hold():
    world, _, found = spent(BIG, "diloco", {})
    held = found["memory_bytes"]["north"]
    owned = 4 * world.workload.model.param_table().numel / 512
    assert held == found["memory_bytes"]["south"]
    assert held["outer parameters"] == held["outer momentum"] == pytest.approx(owned)
    assert held["in flight"] == pytest.approx(2 * owned)
    assert "residual" not in held
    training = check(world.workload, world.sites[0]).total
    assert sum(held.values()) == pytest.approx(training + 4 * owned)
    # With error feedback, gradients are summed and what is left behind is kept.
    held = spent(BIG, "hierarchical-efsgd", {})[2]["memory_bytes"]["north"]
    assert held["residual"] == held["summed gradients"] == pytest.approx(owned)
    assert "outer momentum" not in held


def test_money_counts_idle_accelerators_and_what_leaves_each_site():
    own = [{"site": "west", "egress_per_terabyte": 90}]
    world, result, found = spent("laptop", "ddp", {**PRICES, "prices.sites": own})
    money = found["money"]
    hours = world.ranks / result["tokens_per_s"] * 1e6 / 3600
    assert money["accelerator_hours_per_million_tokens"] == pytest.approx(hours)
    assert money["compute_per_million_tokens"] == pytest.approx(2 * hours)
    tokens = result["tokens_per_s"] * result["step_time_s"]["mean"]
    east, west = (result["links"][way]["bytes_per_step"] for way in ("east->west", "west->east"))
    egress = (50 * east + 90 * west) / 1e12 / tokens * 1e6
    assert money["egress_per_million_tokens"] == pytest.approx(egress)
    assert money["per_million_tokens"] == pytest.approx(2 * hours + egress)


def test_a_policy_that_sends_less_pays_less_egress():
    each = [
        spent("laptop", policy, PRICES)[2]["money"] for policy in ("ddp", "local-sgd", "hierarchical-efsgd")
    ]
    egress = [money["egress_per_million_tokens"] for money in each]
    assert egress == sorted(egress, reverse=True)


def test_nothing_is_said_of_what_nobody_states():
    world, _, found = spent("laptop", "ddp", {})
    assert found == {}
    assert lines(world, found) == []


def test_sites_that_differ_show_the_fullest():
    world, _, found = spent(BIG, "ddp", {"sites.1.accelerator": "H200"})
    assert [line for name, line in lines(world, found) if "at north" in line and "of H100" in line]


def test_simulate_prints_both(capsys):
    settings = [part for key, value in PRICES.items() for part in ("--set", f"{key}={value}")]
    args = ["simulate", BIG, "--policy", "diloco", "--windows", "2", "--seeds", "1", *settings]
    with pytest.raises(SystemExit):
        main(args)
    screen = " ".join(capsys.readouterr().out.split())
    assert "of 80 GB of H100: weights" in screen
    assert "outer momentum 551 MB" in screen
    assert "USD a million tokens: compute" in screen
    with pytest.raises(SystemExit):
        main([*args, "--json"])
    data = json.loads(capsys.readouterr().out)
    assert data["money"]["currency"] == "USD"
    assert set(data["memory_bytes"]) == {"north", "south"}


@pytest.mark.parametrize("name", [BIG, "llama-405b-four-campuses"])
def test_the_mfu_of_a_stated_parallelism_is_that_of_its_plan_less_what_waits(name):
    """By hand: 6 N and 12 L H Q s FLOPs a token, over what all accelerators could do meanwhile."""
    world, result, found = spent(name, "diloco", {})
    model = world.workload.model
    tokens = 6 * (model.param_table().numel - model.vocabulary * model.d_model)
    tokens += 12 * model.layers * model.heads * model.head_width * world.workload.sequence
    assert found["mfu"] == pytest.approx(result["tokens_per_s"] * tokens / (world.ranks * 989.4e12), rel=1e-6)
    recomputed = spent(name, "diloco", {"workload.parallel.recompute": "full"})[2]["mfu"]
    assert 0.25 < recomputed < found["mfu"] < 0.5
    (row,) = (text for title, text in lines(world, found) if title == "MFU")
    assert row == f"{100 * found['mfu']:.3g} % of the accelerators' 989 TFLOP/s in bf16, with the WAN"
    assert "mfu" not in spent("two-campuses", "diloco", {})[2]
