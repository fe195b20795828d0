"""NCCL's collectives: laws that hold for every algorithm and protocol, and limits."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from geosim.cost import nccl
from geosim.cost.nccl_cluster import Cluster
from geosim.cost.nccl_constants import ALGORITHMS, PROTOCOLS
from geosim.cost.nccl_tuner import choose, estimate, options
from geosim.errors import UsageError

SIZES = np.concatenate([np.array([1.0, 8.0]), 2.0 ** np.arange(6, 36, 0.25)])
COLLECTIVES = ("all-reduce", "all-gather", "reduce-scatter")

clusters = st.builds(
    Cluster,
    architecture=st.sampled_from(["volta", "ampere", "hopper", "blackwell"]),
    nodes=st.integers(1, 9),
    per_node=st.sampled_from([1, 2, 4, 8]),
    nvlink_bytes_per_s=st.floats(5e10, 9e11),
    nics=st.sampled_from([1, 2, 4, 8, 16]),
    nic_bytes_per_s=st.floats(1e8, 1e11),
    net_latency_s=st.sampled_from([0.0, 5e-6, 1e-2]),
    cpu=st.sampled_from(["intel", "amd", "other"]),
)


@settings(max_examples=150, deadline=None)
@given(clusters, st.sampled_from(COLLECTIVES))
def test_more_bytes_never_take_less_whatever_runs(cluster, collective):
    for pick in options(cluster, collective):
        times = nccl.time_of(SIZES, cluster, pick, collective)
        assert (np.diff(times) >= -1e-12 * times[1:]).all(), pick
        assert (times > 0).all() or cluster.ranks == 1
    assert (np.diff(nccl.best(SIZES, cluster, collective)) >= 0).all()


@settings(max_examples=100, deadline=None)
@given(clusters, st.floats(1, 4), st.floats(1, 4), st.sampled_from(COLLECTIVES))
def test_more_bandwidth_is_never_slower_whatever_runs(cluster, inside, across, collective):
    wider = replace(
        cluster,
        nvlink_bytes_per_s=inside * cluster.nvlink_bytes_per_s,
        nic_bytes_per_s=across * cluster.nic_bytes_per_s,
    )
    for pick in options(cluster, collective):
        now, then = (nccl.time_of(SIZES, c, pick, collective) for c in (cluster, wider))
        assert (then <= now * (1 + 1e-9)).all(), pick
    best = nccl.best(SIZES, wider, collective)
    assert (best <= nccl.best(SIZES, cluster, collective) * (1 + 1e-9)).all()


@settings(max_examples=100, deadline=None)
@given(clusters)
def test_no_all_reduce_beats_the_bytes_that_must_move(cluster):
    """A node sends all bytes at least once; an accelerator likewise, or its share where the switch adds."""
    for pick in options(cluster):
        times = nccl.time_of(SIZES, cluster, pick)
        if cluster.per_node > 1:
            assert (times >= SIZES / cluster.nvlink_bytes_per_s).all(), pick
        if cluster.nodes > 1:
            assert (times >= SIZES / (cluster.nics * cluster.nic_bytes_per_s)).all(), pick


@given(clusters, st.sampled_from(COLLECTIVES))
def test_one_rank_has_nothing_to_do(cluster, collective):
    alone = replace(cluster, nodes=1, per_node=1)
    assert not nccl.best(SIZES, alone, collective).any()
    assert not nccl.picked(SIZES, alone, collective).any()


@settings(max_examples=50, deadline=None)
@given(clusters, st.sampled_from(COLLECTIVES))
def test_the_tuner_picks_the_least_estimate_and_best_is_at_most_its_time(cluster, collective):
    if cluster.ranks == 1:
        return
    known, which = choose(SIZES, cluster, collective)
    estimates = np.stack([estimate(SIZES, cluster, pick, collective) for pick in known])
    assert (np.take_along_axis(estimates, which[None], 0)[0] == estimates.min(axis=0)).all()
    times = nccl.picked(SIZES, cluster, collective)
    assert (nccl.best(SIZES, cluster, collective) <= times).all()


def test_what_is_in_flight_bounds_a_long_way():
    """Far apart, a ring carries channels x buffer over the round trip; half the distance, twice as much."""
    far = Cluster("ampere", 2, 8, 3e11, 8, 2.5e10, net_latency_s=0.05)
    size = np.array([1e13])
    flight = far.channels * far.buffer_bytes
    for latency in (0.05, 0.025):
        cluster = replace(far, net_latency_s=latency)
        took = nccl.time_of(size, cluster, ("ring", "Simple"))[0]
        assert took == pytest.approx(2 * 15 / 16 * 1e13 * 2 * latency / flight, rel=1e-3)
    doubled = replace(far, buffer_bytes=2 * far.buffer_bytes)
    one, two = (nccl.time_of(size, cluster, ("ring", "Simple"))[0] for cluster in (far, doubled))
    assert one / two == pytest.approx(2, rel=1e-3)


def test_pipelines_come_down_to_the_tuners_bandwidth_once_full():
    """While it fills, a tree takes up to 3.5 times the tuner's estimate, as measured in `papers/nccl`."""
    sizes = 2.0 ** np.arange(20, 33)
    for nodes in (1, 2, 4, 16):
        cluster = Cluster("hopper", nodes, 8, 4.5e11, 8, 5e10)
        ratio = nccl.time_of(sizes, cluster, ("tree", "Simple")) / estimate(
            sizes, cluster, ("tree", "Simple")
        )
        assert ratio.max() < 3.5
        assert ratio[-1] == pytest.approx(1, abs=0.1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"architecture": "kepler"}, "architecture: 'kepler' is unknown: use one of volta"),
        ({"cpu": "z80"}, "cpu: 'z80' is unknown: use one of intel"),
        ({"nodes": 0}, "nodes: 0 must be 1 or more"),
        ({"nvlink_bytes_per_s": 0.0}, "nvlink_bytes_per_s: 0.0 must be above 0"),
        ({"nics": 0}, "nics: 2 nodes need at least one NIC"),
        ({"algorithms": ("star",)}, f"algorithms: star: use some of {', '.join(ALGORITHMS)}"),
        ({"protocols": ()}, f"protocols: none: use some of {', '.join(PROTOCOLS)}"),
        ({"net_latency_s": -1.0}, "net_latency_s: -1.0 must be 0 or more"),
        ({"buffer_bytes": 0}, "buffer_bytes: 0 must be above 0"),
    ],
)
def test_a_cluster_that_cannot_be(change, message):
    good = Cluster("hopper", 2, 8, 4.5e11, 8, 5e10)
    with pytest.raises(UsageError) as error:
        replace(good, **change)
    assert message in str(error.value)


def test_nothing_left_to_run_says_so():
    volta = Cluster("volta", 1, 8, 1.5e11, algorithms=("nvls",))
    with pytest.raises(UsageError, match=r"algorithms: nvls .* all-reduce .* add 'ring'"):
        nccl.best(SIZES, volta)
