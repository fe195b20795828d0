"""Collectives between sites: two tiers against the flat ring, distance against bytes in flight, trees."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from geosim.cost import Calibration, build, ring, tree
from geosim.cost.across import crossing_rate, flat_ring, hierarchical
from geosim.cost.across import tree as tree_time
from geosim.cost.buckets import finish_time
from geosim.cost.transport import make_path, payload_share
from geosim.policy import load_policy
from geosim.scenario import Hop, WanLink, load_scenario

sizes = st.floats(8, 1e12)
rates = st.floats(1e6, 1e12)
delays = st.floats(0, 0.3)


@st.composite
def worlds(draw):
    """Equal sites whose WAN is the slowest tier: no faster, no nearer than what is inside."""
    inside = Hop(bandwidth_bytes_per_s=draw(rates), latency_s=draw(st.floats(0, 1e-3)))
    slower = draw(st.floats(1e-5, 1))
    across = Hop(
        bandwidth_bytes_per_s=max(1e3, inside.bandwidth_bytes_per_s * slower),
        latency_s=inside.latency_s + draw(delays),
    )
    return draw(st.integers(1, 12)), draw(st.integers(1, 64)), inside, across


@settings(max_examples=500)
@given(sizes, worlds(), st.floats(1e5, 1e12))
def test_two_tiers_are_never_slower_than_the_flat_ring_where_the_wan_is_slowest(size, world, flight):
    assert hierarchical(size, *world, flight) <= flat_ring(size, *world, flight) * (1 + 1e-9)


@settings(max_examples=200)
@given(
    sizes,
    worlds(),
    st.floats(1e5, 1e12),
    st.floats(1, 100),
    st.sampled_from((flat_ring, tree_time, hierarchical)),
)
def test_more_of_anything_is_never_slower_and_bytes_take_their_time(size, world, flight, more, took):
    sites, per_site, inside, across = world
    now = took(size, sites, per_site, inside, across, flight)
    wider = across.model_copy(update={"bandwidth_bytes_per_s": across.bandwidth_bytes_per_s * more})
    nearer = across.model_copy(update={"latency_s": across.latency_s / more})
    enough = now * (1 + 1e-9)
    assert took(size, sites, per_site, inside, wider, flight) <= enough
    assert took(size, sites, per_site, inside, nearer, flight) <= enough
    assert took(size, sites, per_site, inside, across, flight * more) <= enough
    assert took(size / more, sites, per_site, inside, across, flight) <= enough
    assert took(size, 1, 1, inside, across, flight) == 0
    if sites > 1:
        assert now >= size / across.bandwidth_bytes_per_s * (1 - 1e-9)


@settings(max_examples=200)
@given(st.floats(1e8, 1e11), st.floats(1e-3, 0.3), st.integers(2, 32), st.integers(1, 8))
def test_distance_takes_bandwidth_from_rings_until_buffers_hold_the_path(rate, rtt, ranks, channels):
    """A hop's bytes in flight are bounded: rate times RTT restores the bandwidth, and less does not."""
    link = WanLink(
        between=("a", "b"), bandwidth_bytes_per_s=rate, rtt_s=rtt, window_bytes=1e15, congestion_control="bbr"
    )
    edges = (ring.Edge(make_path(link, "a"), 1 / payload_share(1500), channels),) * 2
    size = np.array([1e15])

    def took(flight):
        return ring.nccl_times(size, ranks, edges, flight)[0]

    enough = ring.restoring_flight(edges)
    assert enough == pytest.approx(rate * rtt)
    best = took(float("inf"))
    assert took(enough) == pytest.approx(best, rel=1e-9)
    assert took(enough / 2) / best == pytest.approx(2, rel=1e-2)
    near = ring.Edge(
        make_path(link.model_copy(update={"rtt_s": rtt / 100}), "a"), 1 / payload_share(1500), channels
    )
    assert ring.nccl_times(size, ranks, (near, near), enough / 100)[0] == pytest.approx(best, rel=1e-2)


@settings(max_examples=60)
@given(
    st.floats(1e-2, 1e2),
    st.floats(1, 1.5),
    st.sampled_from(("gloo", "nccl")),
    st.sampled_from(("cubic", "bbr")),
    st.sampled_from(("beijing-ningxia", "laptop")),
)
def test_plain_data_parallelism_is_never_slower_with_more_bandwidth(scale, more, backend, control, name):
    """Slow start included."""
    base = load_scenario(name, {"wan.0.congestion_control": control})
    now, then = step_with(base, scale, backend), step_with(base, scale * more, backend)
    assert then <= now * (1 + 1e-9)


def step_with(base, factor, backend):
    """A step of plain data parallelism with the first link's bandwidth multiplied, seconds."""
    link = base.wan[0]
    wider = link.model_copy(update={"bandwidth_bytes_per_s": link.bandwidth_bytes_per_s * factor})
    world = base.model_copy(update={"wan": (wider, *base.wan[1:])})
    problem = build(world, load_policy("ddp"), Calibration(backend=backend))
    compute = max(site.step_s for site in problem.sites)
    ready = compute * (1 - problem.flat.backward_share * (1 - problem.flat.ready))
    return finish_time(ready, problem.flat.durations[0][1])


@pytest.mark.parametrize(("name", "low", "high"), [("beijing-ningxia", 0.8, 4), ("transatlantic", 0.05, 0.5)])
def test_slow_start_ends_at_what_a_ring_keeps_in_flight(name, low, high):
    """Where it went on to the socket's window, a step took 0.01 % more with more bandwidth here."""
    base = load_scenario(name)
    steps = [step_with(base, factor, "nccl") for factor in np.geomspace(low, high, 120)]
    assert (np.diff(steps) <= 1e-9 * np.array(steps[1:])).all()


def test_nccls_trees_by_hand():
    """The figures in NCCL's own source: 14 nodes, and what the second tree shifts or mirrors."""
    first, _ = tree.double_tree(14)
    assert first == (-1, 2, 4, 2, 8, 6, 4, 6, 0, 10, 12, 10, 8, 12)
    assert tree.double_tree(12)[1][11] == -1
    assert tree.double_tree(3) == ((-1, 2, 0), (1, -1, 0))


@pytest.mark.parametrize("nodes", range(1, 40))
def test_each_tree_joins_all_nodes_and_no_node_has_more_than_two_children(nodes):
    for parents in tree.double_tree(nodes):
        assert parents.count(-1) == 1
        for node in range(nodes):
            at, steps = node, 0
            while parents[at] >= 0:
                at, steps = parents[at], steps + 1
            assert steps <= 2 * np.log2(nodes) + 1
        assert max((parents.count(n) for n in range(nodes)), default=0) <= 2


def test_a_tree_across_two_sites_of_one_node_sends_each_byte_once_each_way():
    plan = tree.make_tree((1, 1))
    assert plan.edges == {(0, 1): 2}
    assert plan.payload_share(0, 1) == plan.payload_share(1, 0) == 1
    assert plan.hops == 1
    # One node here and two there: NCCL's second tree has the lone one in the middle, and crosses twice.
    odd = tree.make_tree((1, 2))
    assert odd.payload_share(0, 1) == 1.5
    assert odd.hops == 2


def test_crossing_rate_is_flight_over_round_trip():
    far = Hop(bandwidth_bytes_per_s=5e9, latency_s=0.09)
    assert crossing_rate(far, 8 << 20) == pytest.approx((8 << 20) / 0.18)
    assert crossing_rate(far, 1e12) == 5e9
