"""A calibration takes from runs exactly what they measured, and no disturbance of one of them."""

from statistics import median

import pytest

from experiments import calibrate as module
from experiments.calibrate import (
    INTERVAL,
    MORE_REPEATS,
    REPEATS,
    Kind,
    agree,
    calibrate,
    constants,
    figures_of,
)
from geosim.policy import load_policy
from geosim.scenario import load_scenario
from geosim.sim import simulate

TINY = {"workload.model": "byte-gpt-tiny", "workload.sequence": 32}


@pytest.fixture(scope="module")
def measured():
    scenario = load_scenario("laptop", TINY)
    kind = Kind(scenario, load_policy("hierarchical-efsgd"), pace_s=0.05)
    (found,) = calibrate([kind], steps=12)
    return found


def middle(runs, group, name):
    return median(run[group][name] for run in runs)


def test_the_step_time_is_the_declared_one(measured) -> None:
    step_s = measured.scenario.workload.step_time_s
    assert step_s == middle(measured.runs, "parts_inside", "compute")
    assert step_s >= 0.05
    assert all(run["paced"] for run in measured.runs)


def test_each_update_rule_measures_its_own_parts(measured) -> None:
    known, runs = measured.calibration, measured.runs
    assert known.accumulate_s == middle(runs, "parts_inside", "apply")
    assert known.optimizer_s == middle(runs, "parts_of_window", "apply")
    assert known.outer_s is None
    local = constants(measured.scenario, load_policy("local-sgd"), figures_of(runs[0]))
    assert local.accumulate_s is None
    assert local.optimizer_s == runs[0]["parts_inside"]["apply"]
    assert local.outer_s == runs[0]["parts_of_window"]["apply"]


def test_the_simulator_gives_the_calibration_runs_back(measured) -> None:
    """With hardly a WAN in between, the parts of a predicted step are those that the runs measured."""
    world = load_scenario("laptop", {**TINY, "wan.0.bandwidth": "100 Gbit/s", "wan.0.rtt": "0 s"})
    work = world.workload.model_copy(update={"step_time_s": measured.scenario.workload.step_time_s})
    world = world.model_copy(update={"workload": work})
    policy = load_policy("hierarchical-efsgd", {"interval": INTERVAL, "overlap": "blocking"})
    said = simulate(world, policy, calibration=measured.calibration).parts
    assert said["compute"] == pytest.approx(middle(measured.runs, "parts_inside", "compute"))
    for name in ("encode", "gather", "apply"):
        assert said[name] == pytest.approx(middle(measured.runs, "parts_of_window", name) / INTERVAL)


SLOW = 2.0


@pytest.fixture
def machine(monkeypatch):
    """Runs that take what they take, unless told that the n-th of them all is disturbed; and their order."""
    order, disturbed = [], set()
    inside = {"compute": 0.2, "site_collective": 0.03, "encode": 0.0, "decode": 0.0, "gather": 0.0}
    window = {"encode": 0.01, "decode": 0.02, "gather": 0.03, "apply": 0.04}

    def emulate(scenario, policy, steps, **_):
        slow = SLOW if len(order) in disturbed else 1.0
        own = 1.0 if policy.codec.quantize.kind == "int8" else 1.5
        order.append(policy.codec.quantize.kind)
        parts = {**inside, **window, "compute": 0.2}
        return {
            "parts": parts,
            "step_time_s": {"mean": sum(parts.values()) - parts["decode"] + 0.001},
            "parts_inside": {name: value * slow for name, value in {**inside, "apply": 0.005}.items()},
            "parts_of_window": {name: value * slow * own for name, value in window.items()},
        }

    class Load:
        others: float | None = None

        def __enter__(self):
            return self

        def __exit__(self, *_):
            self.others = loads.get(len(order) - 1, 0.05)

    loads: dict[int, float | None] = {}
    monkeypatch.setattr(module, "emulate", emulate)
    monkeypatch.setattr(module, "Load", Load)
    return order, disturbed, loads


def kinds(*bits):
    scenario = load_scenario("laptop", TINY)
    return [
        Kind(scenario, load_policy("hierarchical-efsgd", {"codec.quantize": b, "codec.select": "dense"}), 0.2)
        for b in bits
    ]


def test_a_disturbed_run_of_a_kind_changes_nothing(machine) -> None:
    order, disturbed, _ = machine
    calm = calibrate(kinds("int8", "bf16"))
    assert order == ["int8", "bf16"] * 3
    assert calm[0].spread == calm[1].spread == 0
    order.clear()
    disturbed.add(2)
    found = calibrate(kinds("int8", "bf16"))
    assert [one.calibration for one in found] == [one.calibration for one in calm]
    assert found[0].spread > 0.5
    assert found[1].spread == 0


def test_what_no_codec_changes_is_the_median_over_all_kinds(machine) -> None:
    """All but one run of the first kind are disturbed, and its collective is right all the same."""
    _, disturbed, _ = machine
    disturbed |= {0, 3}
    first, second, third = calibrate(kinds("int8", "bf16", "fp16"))
    for one in (first, second, third):
        assert one.calibration.site_collective_s == 0.03
        assert one.calibration.accumulate_s == 0.005
    # What is the codec's own is only its own runs'.
    assert second.calibration.encode_s_per_element == third.calibration.encode_s_per_element
    assert second.calibration.encode_s_per_element != first.calibration.encode_s_per_element


def test_runs_that_do_not_agree_are_repeated(machine) -> None:
    _, disturbed, _ = machine
    disturbed |= {0}
    (found,) = calibrate(kinds("int8"), repeats=2)
    assert len(found.runs) == 3
    assert found.calibration.site_collective_s == 0.03
    assert not agree([1.0, 2.0, 3.0])
    assert agree([1.0, 1.1, 3.0])
    assert not agree([1.0, 1.1, 3.0, 3.1])


def test_runs_beside_other_programs_are_repeated_and_left_out(machine) -> None:
    """Two of three runs were slow and agree; others were busy meanwhile, which is how anyone can tell."""
    order, disturbed, loads = machine
    disturbed |= {0, 1}
    loads |= {0: 0.9, 1: 0.5}
    (found,) = calibrate(kinds("int8"))
    assert len(order) == 5
    assert [run["other_load"] for run in found.runs] == [0.05] * 3
    assert found.calibration.site_collective_s == 0.03
    assert found.spread == 0


def test_a_machine_that_is_never_calm_is_measured_when_it_is_calmest(machine) -> None:
    order, _, loads = machine
    loads |= dict(enumerate([0.9, 0.5, 0.8, 0.4, 0.7]))
    (found,) = calibrate(kinds("int8"))
    assert len(order) == REPEATS + MORE_REPEATS
    assert [run["other_load"] for run in found.runs] == [0.4, 0.5, 0.7]


def test_a_machine_that_does_not_tell_its_load_counts_as_calm(machine) -> None:
    order, _, loads = machine
    loads |= dict.fromkeys(range(9))
    calibrate(kinds("int8"))
    assert len(order) == 3


def test_rooms_paces_and_rules_do_not_mix() -> None:
    one, other = kinds("int8", "bf16")
    assert one.shares(other, "site_collective")
    assert not one.shares(other, "encode")
    unpaced = Kind(one.scenario, one.policy, None)
    assert not one.shares(unpaced, "site_collective")
    local = Kind(one.scenario, load_policy("local-sgd"), one.pace_s)
    assert one.shares(local, "site_collective")
    assert not one.shares(local, "update")
