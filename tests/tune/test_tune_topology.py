"""Which topologies are tried, and that the one that comes first is the fastest there is."""

from itertools import combinations

import pytest

from geosim.errors import UsageError
from geosim.policy import Direct, Hub, Ring, Tree, policy_from_dict
from geosim.policy.routes import make_routes
from geosim.scenario import Trunk, load_scenario
from geosim.sim import simulate
from geosim.tune.topology import rank_topologies, tune_way
from geosim.tune.ways import topologies, way_words


def world(sites, rtt=0.04):
    """Sites alike, with links alike between any two."""
    base = load_scenario("laptop")
    names = [f"s{m}" for m in range(sites)]
    return base.model_copy(
        update={
            "sites": tuple(base.sites[0].model_copy(update={"name": name}) for name in names),
            "wan": tuple(
                base.wan[0].model_copy(update={"between": pair, "rtt_s": rtt, "congestion_control": "bbr"})
                for pair in combinations(names, 2)
            ),
        }
    )


def policy(**fields):
    """A policy from plain fields."""
    return policy_from_dict({"name": "test", **fields})


@pytest.mark.parametrize(("sites", "rings", "trees"), [(3, 2, 0), (4, 6, 12), (5, 24, 120)])
def test_few_sites_have_every_ring_and_every_tree_that_is_no_hub(sites, rings, trees):
    found = topologies(world(sites), policy())
    assert sum(isinstance(way, Direct) for way in found) == 1
    assert sum(isinstance(way, Hub) for way in found) == sites
    assert sum(isinstance(way, Ring) for way in found) == rings
    assert sum(isinstance(way, Tree) for way in found) == trees
    assert len(set(found)) == len(found)
    names = tuple(f"s{m}" for m in range(sites))
    assert len({make_routes(way, names) for way in found}) == len(found)


def test_many_sites_have_the_shortest():
    """Ten sites on a circle: the ring that goes round it is among those tried."""
    scenario = world(10)
    near = {frozenset((f"s{3 * m % 10}", f"s{(3 * m + 3) % 10}")) for m in range(10)}
    links = tuple(
        link.model_copy(update={"rtt_s": 0.01 if frozenset(link.between) in near else 0.3})
        for link in scenario.wan
    )
    found = topologies(scenario.model_copy(update={"wan": links}), policy(codec={"quantize": "int8"}))
    rings = [way.order for way in found if isinstance(way, Ring)]
    assert any(
        {frozenset(pair) for pair in zip(order, (*order[1:], order[0]), strict=True)} == near
        for order in rings
    )
    assert len(found) < 40


def test_nothing_goes_where_no_link_is():
    scenario = world(4)
    cut = scenario.model_copy(
        update={"wan": tuple(w for w in scenario.wan if w.between not in (("s0", "s2"), ("s1", "s3")))}
    )
    found = topologies(cut, policy())
    assert {type(way) for way in found} == {Ring, Tree}
    assert {way.order for way in found if isinstance(way, Ring)} == {
        ("s0", "s1", "s2", "s3"), ("s0", "s3", "s2", "s1"),
    }  # fmt: skip
    ranking = rank_topologies(cut, policy(), windows=3)
    assert ranking.direct is None


def trunked(sites=4, factor=0.5):
    """Two sites on either side of a trunk half as wide as one of the links through it."""
    scenario = world(sites, rtt=0.01)
    left = {f"s{m}" for m in range(sites // 2)}
    across = tuple(
        (a, b) if a in left else (b, a)
        for a, b in combinations([s.name for s in scenario.sites], 2)
        if (a in left) != (b in left)
    )
    trunk = Trunk(name="sea", links=across, bandwidth_bytes_per_s=factor * 12.5e6)
    return scenario.model_copy(update={"trunks": (trunk,)})


def test_a_trunk_is_crossed_as_rarely_as_can_be():
    ranking = rank_topologies(trunked(), policy(), windows=3)
    way = ranking.best.topology
    assert not isinstance(way, Direct)
    crossings = sum((t.source < 2) != (t.target < 2) for t in make_routes(way, ("s0", "s1", "s2", "s3")))
    assert crossings == 4  # two payloads each way
    assert ranking.best.result.step_time_s.mean < ranking.direct.result.step_time_s.mean
    tried = topologies(trunked(), policy())
    every = [simulate(trunked(), policy(topology=way), windows=3).step_time_s.mean for way in tried]
    assert ranking.best.result.step_time_s.mean == pytest.approx(min(every), rel=1e-6)


def test_direct_stays_where_links_are_alike():
    ranking = rank_topologies(world(3), policy(), windows=3)
    assert isinstance(ranking.best.topology, Direct)
    assert ranking.tried == {"direct": 1, "hub": 3, "ring": 2}
    assert sum(ranking.payloads.values()) == 6


def test_what_cannot_be_ranked_is_one_line():
    with pytest.raises(UsageError, match="plain data parallelism"):
        rank_topologies(world(3), policy(topology="flat-ring"))
    with pytest.raises(UsageError, match="one site"):
        rank_topologies(world(1), policy())


def test_the_tuner_takes_the_topology_that_makes_exchanges_shorter():
    found = tune_way(trunked(), policy(), max_interval=2)
    assert found.ranking is not None
    assert found.tuned.chosen.policy.topology == found.ranking.best.topology
    assert found.reason[0].startswith(
        f"topology {way_words(found.ranking.best.topology)}: an exchange takes "
    )
    held = tune_way(trunked(), policy(), max_interval=2, held=("topology",))
    assert held.ranking is None
    assert isinstance(held.tuned.chosen.policy.topology, Direct)
    assert found.tuned.chosen.rank <= held.tuned.chosen.rank


def test_two_sites_have_nothing_to_choose():
    assert tune_way(load_scenario("laptop"), policy()).ranking is None


@pytest.mark.parametrize(
    ("way", "words"),
    [
        (Ring(order=("a", "c", "b")), "ring a > c > b > a"),
        (Hub(site="a"), "hub a"),
        (Tree(links=(("a", "b"), ("c", "b"), ("b", "d"))), "tree a - b - c, b - d"),
        (Direct(), "direct"),
    ],
)
def test_words(way, words):
    assert way_words(way) == words
