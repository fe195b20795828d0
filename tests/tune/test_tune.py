"""Laws of the tuner's choice."""

import random
from itertools import pairwise

import pytest

from geosim.cost import Calibration
from geosim.errors import UsageError
from geosim.policy import Cast, Dense, load_policy
from geosim.scenario import load_scenario
from geosim.sim import simulate
from geosim.tune import TOLERANCE, tune
from geosim.tune.order import rank
from geosim.tune.screen import pairs_first, screen
from geosim.tune.search import Tuned
from geosim.tune.sensitivity import with_bandwidth
from geosim.tune.space import candidates, default_base, space_around
from geosim.tune.upgrade import qualifies_from


@pytest.fixture(scope="module")
def laptop():
    return load_scenario("laptop")


@pytest.fixture(scope="module")
def tuned(laptop) -> Tuned:
    return tune(laptop)


def test_the_choice_is_within_the_tolerance_of_the_best(tuned):
    assert max(point.relative for point in tuned.front) <= tuned.best
    assert max(point.relative for point in tuned.front) >= tuned.best * 0.97
    assert tuned.chosen.relative >= (1 - TOLERANCE) * tuned.best


def test_no_sampled_policy_is_faster_or_as_good_and_less_aggressive(laptop, tuned):
    policies = list(candidates(default_base(), space_around(default_base())).values())
    window_bytes = screen(laptop, policies).window_bytes
    dense = window_bytes[0]
    for i in random.Random(7).sample(range(len(policies)), 60):
        reached = simulate(laptop, policies[i], seeds=1, windows=50).relative_to_colocated
        assert reached <= tuned.best * 1.01
        if rank(policies[i], float(window_bytes[i]), float(dense)) < tuned.chosen.rank:
            assert reached < (1 - TOLERANCE) * tuned.best


def test_every_step_back_costs_more_than_the_tolerance(tuned):
    assert tuned.neighbours
    for point in tuned.neighbours.values():
        assert point.rank < tuned.chosen.rank
        assert point.relative < (1 - TOLERANCE) * tuned.best


def test_the_front_is_not_dominated_and_holds_the_choice(tuned):
    assert tuned.chosen in tuned.front
    for slow, fast in pairwise(tuned.front):
        assert slow.rank < fast.rank
        assert slow.relative < fast.relative


def test_the_same_question_gets_the_same_answer(laptop, tuned):
    assert tune(laptop) == tuned


@pytest.mark.parametrize("base", ["hierarchical-efsgd", "local-sgd"])
def test_more_bandwidth_never_makes_the_choice_more_aggressive(laptop, base):
    ranks = [
        tune(with_bandwidth(laptop, f), base=load_policy(base)).chosen.rank for f in (0.03, 0.3, 1, 3, 100)
    ]
    assert ranks == sorted(ranks, reverse=True)
    assert len(set(ranks)) > 2


def test_without_a_limit_on_bandwidth_everything_goes_every_step(laptop):
    chosen = tune(with_bandwidth(laptop, 1e5)).chosen.policy
    assert chosen.interval == 1
    assert chosen.codec.select == Dense()
    assert chosen.codec.quantize == Cast(kind="fp32")


def test_without_a_limit_and_without_distance_nothing_is_delayed():
    """Where decoding costs nothing; else a delay may still hide that."""
    near = load_scenario("laptop", {"wan.0.rtt": "10 us"})
    free = Calibration(encode_s_per_element=0.0, decode_s_per_value=0.0, decode_s_per_element=0.0)
    chosen = tune(with_bandwidth(near, 1e5), calibration=free).chosen.policy
    assert (chosen.interval, chosen.overlap.kind, chosen.streams) == (1, "blocking", 1)


def test_the_bandwidth_from_which_a_policy_qualifies_makes_it_qualify(laptop, tuned):
    rivals = [point.policy for point in tuned.front]
    denser = rivals[rivals.index(tuned.chosen.policy) - 1]
    rivals.append(tuned.fastest.policy)
    factor = qualifies_from(laptop, denser, rivals, TOLERANCE)
    assert factor is not None
    assert factor > 1
    for f, fits in ((factor * 1.02, True), (factor / 1.02, False)):
        reached = [
            simulate(with_bandwidth(laptop, f), p, seeds=1).relative_to_colocated for p in (denser, *rivals)
        ]
        assert (reached[0] >= (1 - TOLERANCE) * max(reached)) == fits


def test_a_base_of_local_steps_stays_local(laptop):
    chosen = tune(laptop, base=load_policy("diloco"), max_interval=16).chosen.policy
    assert chosen.update == load_policy("diloco").update
    assert chosen.interval <= 16


def test_random_steps_and_unequal_links_are_tuned_by_the_engine():
    changes = {"workload.step_jitter": 0.1, "wan.0.back_bandwidth": "20 Mbit/s"}
    world = load_scenario("laptop", changes)
    found = tune(world, seeds=1)
    assert len(pairs_first(world)) == 3
    assert found.chosen.relative >= (1 - TOLERANCE) * found.best
    assert found == tune(world, seeds=1)


def test_one_site_has_nothing_to_tune(laptop):
    alone = laptop.model_copy(update={"sites": laptop.sites[:1], "wan": ()})
    with pytest.raises(UsageError, match="no WAN link joins its sites"):
        tune(alone)
