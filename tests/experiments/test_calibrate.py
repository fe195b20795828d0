"""A calibration takes from a run exactly what the run measured, each figure where the model expects it."""

import pytest

from experiments.calibrate import INTERVAL, calibrate, constants
from geosim.policy import load_policy
from geosim.scenario import load_scenario
from geosim.sim import simulate

TINY = {"workload.model": "byte-gpt-tiny", "workload.sequence": 32}


@pytest.fixture(scope="module")
def measured():
    scenario = load_scenario("laptop", TINY)
    return calibrate(scenario, load_policy("hierarchical-efsgd"), pace_s=0.05, steps=16)


def test_the_step_time_is_the_declared_one(measured) -> None:
    assert measured.scenario.workload.step_time_s == measured.run["parts"]["compute"]
    assert measured.run["parts"]["compute"] >= 0.05
    assert measured.run["paced"]


def test_each_update_rule_measures_its_own_parts(measured) -> None:
    known, run = measured.calibration, measured.run
    assert known.accumulate_s == run["parts_inside"]["apply"]
    assert known.optimizer_s == run["parts_of_window"]["apply"]
    assert known.outer_s is None
    local = constants(measured.scenario, load_policy("local-sgd"), run)
    assert local.accumulate_s is None
    assert local.optimizer_s == run["parts_inside"]["apply"]
    assert local.outer_s == run["parts_of_window"]["apply"]


def test_the_simulator_gives_the_calibration_run_back(measured) -> None:
    """With hardly a WAN in between, the parts of a predicted step are those that the run measured."""
    world = load_scenario("laptop", {**TINY, "wan.0.bandwidth": "100 Gbit/s", "wan.0.rtt": "0 s"})
    work = world.workload.model_copy(update={"step_time_s": measured.scenario.workload.step_time_s})
    world = world.model_copy(update={"workload": work})
    policy = load_policy("hierarchical-efsgd", {"interval": INTERVAL, "overlap": "blocking"})
    said = simulate(world, policy, calibration=measured.calibration).parts
    window = measured.run["parts_of_window"]
    assert said["compute"] == pytest.approx(measured.run["parts"]["compute"])
    assert said["encode"] == pytest.approx(window["encode"] / INTERVAL)
    assert said["gather"] == pytest.approx(window["gather"] / INTERVAL)
    assert said["apply"] == pytest.approx(window["apply"] / INTERVAL)
