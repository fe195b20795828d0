"""NCCL's tuner, by hand from its formulas, and what sites make of it."""

from dataclasses import replace

import numpy as np
import pytest

from geosim.cost import Calibration, nccl
from geosim.cost.assemble import base_sites, colocated_step
from geosim.cost.collective import all_to_all, site_all_gather, site_all_reduce, site_cluster, site_flag
from geosim.cost.nccl_cluster import Cluster
from geosim.cost.nccl_tuner import bandwidth, choose, estimate, latency, options
from geosim.scenario import Fabric, Hop, Site, load_scenario

DGX = Cluster("hopper", 1, 8, 4.5e11)
PAIR = Cluster("hopper", 2, 8, 4.5e11, 8, 5e10)
A100 = Cluster("ampere", 4, 8, 3e11, 8, 2.5e10, cpu="amd")


@pytest.mark.parametrize(
    ("cluster", "pick", "us"),
    [
        (DGX, ("ring", "LL"), 6.6 + 14 * 0.6),
        (DGX, ("ring", "Simple"), 8.4 + 14 * 3.4),
        (DGX, ("tree", "LL128"), 14.0 + 2 * 7 * 1.25),
        (DGX, ("nvls", "Simple"), 25.0),
        (PAIR, ("ring", "LL"), 6.6 + 28 * 1.0 + 2 * 2.7),  # posting to a NIC, 1 us, is more than NVLink's 0.6
        (PAIR, ("tree", "Simple"), 8.4 + 2 * (7 * 4.0 + 14.0)),
        (PAIR, ("nvls-tree", "Simple"), 25.0 + 2 * 20.9),
        (A100, ("ring", "Simple"), 8.4 + 56 * 6.0 + 6 * 14.0),  # AMD: 2 us, three times for Simple
        (A100, ("tree", "LL"), 6.8 + 2 * (7 * 0.6 + 2 * 5.0)),
    ],
)
def test_latencies_by_hand(cluster, pick, us):
    assert latency(cluster, pick) == pytest.approx(us * 1e-6)


@pytest.mark.parametrize(
    ("cluster", "pick", "bus"),
    [
        (DGX, ("ring", "Simple"), 18 * 20.6),
        (DGX, ("ring", "LL"), 141.0),
        (DGX, ("ring", "LL128"), 18 * 20.6 * 0.92),
        (DGX, ("nvls", "Simple"), 8 * 2 * 40.0 * 0.85 * 7 / 8),
        (PAIR, ("ring", "Simple"), 8 * 46.08 * 1.0),
        (PAIR, ("nvls-tree", "Simple"), 8 * 57.7),
        (A100, ("ring", "Simple"), 8 * 24.0),
    ],
)
def test_bus_bandwidths_by_hand(cluster, pick, bus):
    """370.8 GB/s NVLink: 46.35 a ring of eight; 400 Gbit/s: 48 a NIC; the tuner's caps a channel."""
    n = cluster.ranks
    got = bandwidth(cluster, pick) * nccl.bus_factor("all-reduce", n) / 1e9
    assert got == pytest.approx(bus, rel=0.01 if cluster is not PAIR else 0.045)


def test_a_plugin_adds_its_latency_once_a_hop_and_once_more_for_simples_flush():
    far = replace(PAIR, net_latency_s=7e-6)
    added = [latency(far, ("tree", p)) - latency(PAIR, ("tree", p)) for p in ("LL", "LL128", "Simple")]
    assert added == pytest.approx([14e-6, 14e-6, 28e-6])


@pytest.mark.parametrize(("nodes", "rounds"), [(2, 1), (4, 2), (9, 2)])
def test_a_tree_sends_all_bytes_once_between_two_nodes_and_twice_between_more(nodes, rounds):
    slow = Cluster("hopper", nodes, 8, 4.5e11, 8, 1e9)
    one, two = nccl.time_of(np.array([1e11, 2e11]), slow, ("tree", "Simple"))
    assert two - one == pytest.approx(1e11 * rounds / (8 * 0.96e9 * 0.92))


def test_a_tree_is_corrected_by_its_size_and_a_ring_has_a_plateau():
    tree = ("tree", "Simple")
    rate = bandwidth(PAIR, tree)
    size = np.array([64.0 * 2**14, 64.0 * 2**30])
    want = latency(PAIR, tree) + size / rate / np.array([0.5, 1.0])
    assert estimate(size, PAIR, tree) == pytest.approx(want)
    ring = ("ring", "Simple")
    edge = 64.0 * PAIR.channels * PAIR.ranks
    below, at = estimate(np.array([edge - 1, edge]), PAIR, ring)
    assert at - below == pytest.approx(0.4 * latency(PAIR, ring), rel=1e-3)


def test_small_messages_go_low_latency_and_large_ones_through_the_switch():
    known, which = choose(np.array([8.0, 1e10]), DGX)
    assert [known[i] for i in which] == [("ring", "LL"), ("nvls", "Simple")]
    known, which = choose(np.array([8.0, 1e10]), PAIR)
    assert [known[i] for i in which] == [("tree", "LL"), ("nvls-tree", "Simple")]
    known, which = choose(np.array([8.0, 1e10]), A100)
    assert [known[i] for i in which] == [("tree", "LL"), ("ring", "Simple")]


def test_what_can_run_where():
    assert ("nvls", "Simple") not in options(Cluster("ampere", 1, 8, 3e11))
    assert {a for a, _ in options(PAIR)} == {"tree", "ring", "nvls-tree"}
    assert {a for a, _ in options(PAIR, "all-gather")} == {"ring"}
    single = Cluster("hopper", 4, 1, 4.5e11, 1, 5e10)
    assert {a for a, _ in options(single, "all-gather")} == {"ring", "pat"}


def test_more_nics_a_node_carry_more_until_the_accelerators_own_link():
    rates = [Cluster("hopper", 2, 1, 4.5e11, nics, 5e10).net for nics in (1, 2, 4)]
    assert rates == [48e9, 48e9, 48e9]
    rates = [Cluster("hopper", 2, 8, 4.5e11, nics, 2.5e10).net for nics in (1, 8, 16, 32)]
    assert rates == [24e9, 192e9, 384e9, 384e9]


def room(nodes: int = 1, accelerator: str = "H100", per_node: int = 8) -> Site:
    fabric = Fabric(
        intra_node=Hop(bandwidth_bytes_per_s=4.5e11, latency_s=1e-6),
        inter_node=Hop(bandwidth_bytes_per_s=5e10, latency_s=2e-6),
    )
    return Site(name="x", accelerator=accelerator, nodes=nodes, accelerators_per_node=per_node, fabric=fabric)


def test_sites_over_nvlink_run_nccl_and_others_rings():
    cluster = site_cluster(room(2))
    assert cluster is not None
    sizes = np.array([1e3, 1e9])
    assert site_all_reduce(sizes, room(2)) == pytest.approx(nccl.best(sizes, cluster))
    assert site_all_gather(1e9, room(2), 16) == pytest.approx(nccl.best(np.array(1e9), cluster, "all-gather"))
    assert isinstance(site_all_reduce(1e9, room(2)), float)
    assert site_cluster(room(accelerator="L40S")) is None
    assert site_all_reduce(8e9, room(accelerator="L40S")) == pytest.approx(2 * (7e9 / 4.5e11 + 7e-6))


@pytest.mark.parametrize("accelerator", ["H100", "A100-80", "B200", "L40S"])
def test_a_site_of_one_has_nothing_to_do(accelerator):
    alone = room(accelerator=accelerator, per_node=1)
    assert site_all_reduce(1e9, alone) == 0
    assert site_all_gather(1e9, alone, 1) == 0
    assert site_flag(alone) == 0


def test_one_room_is_as_fast_as_itself():
    """A scenario of one site is its own co-located run: the same collective on both sides."""
    world = load_scenario("transatlantic")
    one = world.model_copy(update={"sites": (room(2),), "wan": ()})
    site = base_sites(one, True, Calibration())[0]
    assert colocated_step(one, Calibration()) == pytest.approx(site.steady_s)


def test_all_to_all_by_hand():
    fabric = Fabric(
        intra_node=Hop(bandwidth_bytes_per_s=1e10, latency_s=1e-6),
        inter_node=Hop(bandwidth_bytes_per_s=1e9, latency_s=1e-5),
    )
    near = 3 / 8 * 1e9 / 1e10 + 3e-6
    assert all_to_all(1e9, 2, 4, fabric) == pytest.approx(near + 4 / 8 * 1e9 / 1e9 + 4e-5)
    assert all_to_all(1e9, 1, 4, fabric) == pytest.approx(3 / 4 * 1e9 / 1e10 + 3e-6)
    assert all_to_all(1e9, 1, 1, fabric) == 0
