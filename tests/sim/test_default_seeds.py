"""How many runs are made where nobody says."""

import pytest
from sim_worlds import TOPK, policy, world

from geosim.commands import shared
from geosim.cost import build
from geosim.sim import simulate
from geosim.sim.simulate import WINDOWS, seeds_for

STREAMING = {"overlap": {"kind": "streaming", "fragments": 4, "steps": 1}}


@pytest.mark.parametrize(
    ("sites", "jitter", "overlap", "seeds"),
    [(2, 0.05, {}, 3), (4, 0.05, {}, 3), (6, 0.05, {}, 1), (4, 0.05, STREAMING, 1), (2, 0.0, {}, 1)],
)
def test_fewer_where_runs_are_long_or_nothing_is_random(sites, jitter, overlap, seeds):
    """A window has 2, 12, 30 or 48 payloads here. Runs are as long in any case."""
    rule = policy(interval=100, update="local", codec=TOPK, **overlap)
    scenario = world(sites, jitter=jitter)
    assert seeds_for(build(scenario, rule)) == seeds
    result = simulate(scenario, rule)
    assert (result.seeds, result.windows) == (seeds, WINDOWS)
    assert simulate(scenario, rule, seeds=2, windows=4).seeds == (2 if jitter else 1)


def test_the_command_line_has_the_same_length():
    assert shared.WINDOWS == WINDOWS


def test_plain_data_parallelism_has_no_payloads_to_count():
    assert seeds_for(build(world(8, jitter=0.05), policy(topology="flat-ring"))) == 3
