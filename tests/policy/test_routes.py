"""Routes: every payload reaches every site once, hop by hop, and bad topologies are one line."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geosim.errors import UsageError
from geosim.policy import Direct, Hub, Ring, Tree, policy_from_dict
from geosim.policy.routes import Transfer, forwarders, make_routes, payload_times

NAMES = ("a", "b", "c", "d")


@st.composite
def topologies(draw):
    """Sites, and any ring, hub or tree over them."""
    count = draw(st.integers(2, 9))
    names = tuple(f"s{m}" for m in range(count))
    kind = draw(st.sampled_from(["direct", "ring", "hub", "tree"]))
    order = draw(st.permutations(names))
    if kind == "ring":
        return names, Ring(order=tuple(order))
    if kind == "hub":
        return names, Hub(site=order[0])
    if kind == "tree":
        links = tuple((order[draw(st.integers(0, i - 1))], order[i]) for i in range(1, count))
        return names, Tree(links=links)
    return names, Direct()


@given(topologies())
def test_every_payload_reaches_every_site_once(made):
    names, topology = made
    routes = make_routes(topology, names)
    has = {(m, m) for m in range(len(names))}
    for k, t in enumerate(routes):
        assert (t.origin, t.source) in has
        assert (t.origin, t.target) not in has
        if t.need is not None:
            assert t.need < k
            assert (routes[t.need].origin, routes[t.need].target) == (t.origin, t.source)
        else:
            assert t.source == t.origin
        has.add((t.origin, t.target))
    assert len(has) == len(names) ** 2


@given(topologies())
def test_forwarders_lead_from_the_origin_to_the_target(made):
    names, topology = made
    routes = make_routes(topology, names)
    ways = {(t.source, t.target) for t in routes}
    for t in routes:
        by = forwarders(routes, t.origin, t.target)
        hops = [t.origin, *by, t.target]
        assert len(set(hops)) == len(hops)
        assert all(pair in ways for pair in pairwise(hops))


def test_a_ring_in_an_order():
    routes = make_routes(Ring(order=("a", "c", "b")), NAMES[:3])
    assert routes[:3] == (Transfer(0, 2, 0), Transfer(1, 0, 1), Transfer(2, 1, 2))
    assert routes[3:] == (Transfer(2, 1, 0, 0), Transfer(0, 2, 1, 1), Transfer(1, 0, 2, 2))


def test_a_star_of_links_is_a_hub():
    star = Tree(links=(("b", "a"), ("c", "b"), ("b", "d")))
    assert set(make_routes(star, NAMES)) >= {t for t in make_routes(Hub(site="b"), NAMES) if t.need is None}
    assert len(make_routes(star, NAMES)) == 12


@pytest.mark.parametrize(
    ("topology", "sites", "times"),
    [
        (Direct(), 5, 1),
        (Ring(), 5, 4),
        (Hub(), 3, 2),
        (Hub(), 5, 4),  # the hub's own payload goes while the others come, then three more
        (Tree(links=(("s0", "s1"), ("s1", "s2"), ("s2", "s3"))), 4, 3),
    ],
)
def test_how_long_an_exchange_takes_on_links_alike(topology, sites, times):
    assert payload_times(make_routes(topology, tuple(f"s{m}" for m in range(sites)))) == times


@given(topologies())
def test_forwarding_whole_payloads_leaves_no_link_idle_where_all_are_alike(made):
    """Passing on slices can then save no more than delays."""
    names, topology = made
    times = 1 if isinstance(topology, Direct) else len(names) - 1
    assert payload_times(make_routes(topology, names)) == times


@pytest.mark.parametrize(
    ("topology", "words"),
    [
        ({"kind": "ring", "order": ["a", "b", "a"]}, "topology.order: names a twice"),
        ({"kind": "tree", "links": [["a", "b"], ["b", "c"], ["c", "a"]]}, "a and c|c and a"),
        ({"kind": "ring", "site": "a"}, "kind 'ring' has it not, 'hub' may"),
    ],
)
def test_what_no_sites_could_do_is_refused_at_once(topology, words):
    with pytest.raises(UsageError, match=words) as error:
        policy_from_dict({"topology": topology})
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("topology", "words"),
    [
        (Hub(site="x"), "topology.site: no site is called 'x': sites are a, b, c, d"),
        (Ring(order=("a", "b", "c")), "topology.order: leaves out site d"),
        (Ring(order=("a", "b", "c", "x")), "topology.order: no site is called 'x'"),
        (Tree(links=(("a", "b"), ("c", "d"))), "topology.links: 2 links leave sites apart"),
    ],
)
def test_what_these_sites_cannot_do_is_refused(topology, words):
    with pytest.raises(UsageError, match=words):
        make_routes(topology, NAMES)


def test_orders_and_links_survive_yaml():
    for topology in ({"kind": "ring", "order": ["a", "b"]}, {"kind": "tree", "links": [["a", "b"]]}):
        made = policy_from_dict({"topology": topology})
        assert policy_from_dict(made.to_dict()) == made
        assert made.fingerprint() != policy_from_dict({"topology": topology["kind"]}).fingerprint()
