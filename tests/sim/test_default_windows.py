"""How long a run is where nobody says."""

import pytest
from sim_worlds import TOPK, policy, world

from geosim.cost import build
from geosim.scenario import WanLink
from geosim.sim import simulate
from geosim.sim.simulate import windows_for
from geosim.spec import from_dict


@pytest.mark.parametrize(
    ("sites", "interval", "windows"),
    [(2, 100, 200), (4, 100, 40), (4, 5, 40), (4, 1, 100), (8, 100, 20), (8, 2, 50)],
)
def test_fewer_windows_where_each_has_many_payloads(sites, interval, windows):
    """Four sites send 12 payloads a window; 100 steps a run say a mean to 0.3 %, whatever K is."""
    rule = policy(interval=interval, update="local", codec=TOPK)
    assert windows_for(build(world(sites), rule)) == windows
    assert simulate(world(sites, jitter=0.05), rule, seeds=1).windows == windows


def test_fewer_windows_say_the_same():
    rule = policy(interval=50, update="local", codec=TOPK)
    few = simulate(world(4, jitter=0.05), rule)
    many = simulate(world(4, jitter=0.05), rule, windows=600)
    assert few.windows == 40
    assert few.step_time_s.mean == pytest.approx(many.step_time_s.mean, rel=1e-3)


def test_links_that_change_are_watched_for_longer():
    calm = world(4)
    links = [
        from_dict(WanLink, {**w.to_dict(), "varies": [{"kind": "diurnal", "swing": 0.5}]}, "link")
        for w in calm.wan
    ]
    rule = policy(interval=50, update="local", codec=TOPK)
    assert windows_for(build(calm, rule)) == 40
    assert windows_for(build(calm.model_copy(update={"wan": tuple(links)}), rule)) == 200
