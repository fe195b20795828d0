"""What a reader would first doubt: large scenarios, more than a room's throughput, a bad accelerator."""

import pytest

from geosim.cost.step.check import check
from geosim.errors import UsageError
from geosim.policy import load_policy
from geosim.scenario import load_scenario
from geosim.sim import simulate
from geosim.tune import tune

FAR = "hongkong-siliconvalley"


@pytest.mark.parametrize("name", ["llama-70b-two-campuses", "llama-405b-four-campuses"])
def test_the_large_scenarios_fit_and_get_a_policy(name):
    world = load_scenario(name)
    for site in world.sites:
        assert 0.3 < float(check(world.workload, site).total) / site.accelerator.memory_bytes < 1
    chosen = tune(world, max_interval=64).chosen
    plain = simulate(world, load_policy("ddp"), seeds=1, windows=5)
    best = simulate(world, chosen.policy, seeds=1, windows=5)
    assert best.relative_to_colocated > 0.9
    assert best.tokens_per_s > 2 * plain.tokens_per_s


def relative(**changes):
    world = load_scenario(FAR, changes)
    return simulate(world, load_policy("hierarchical-efsgd"), seeds=1, windows=20).relative_to_colocated


def test_more_than_one_room_is_the_rooms_own_network():
    """One NIC a node: in one room plain data parallelism sends gradients twice out of each of three nodes in
    every step (NCCL's ring). Apart, two nodes send them once (its tree), and the third has no network to
    cross. With a NIC an accelerator the room is as fast as it should be.
    """
    assert relative() > 1.2
    inter = "fabric.inter_node.bandwidth"
    assert relative(**{f"sites.0.{inter}": "40 Gbit/s", f"sites.1.{inter}": "100 Gbit/s"}) < 1.02


@pytest.mark.parametrize(("given", "meant"), [("H100-80", "H100"), ("A100-8", "A100-80"), ("h200", "H200")])
def test_an_unknown_accelerator_is_answered_with_the_nearest(given, meant):
    with pytest.raises(UsageError, match=rf"unknown accelerator '{given}': did you mean '{meant}'\?"):
        load_scenario(FAR, {"sites.0.accelerator": given})
