"""Compute, collectives, buckets, rings, codecs, routes: each against arithmetic by hand."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from geosim.cost import Calibration, build, load_calibration
from geosim.cost.buckets import Buckets, exposed, finish_time, make_buckets
from geosim.cost.codec import decode_time, encode_time, rates
from geosim.cost.collective import (
    hierarchical_all_reduce,
    reduce_scatter,
    ring_all_reduce,
    site_all_gather,
    site_all_reduce,
)
from geosim.cost.compute import flops_per_token, matrix_parameters, replica_group, step_time
from geosim.cost.ring import Edge, crossing_bytes, gloo_times, nccl_times, ramp_time
from geosim.cost.transport import make_path, payload_share
from geosim.errors import UsageError
from geosim.params import table
from geosim.policy import Codec, Direct, Hub, Integer, Ring, TopK, Tree, load_policy
from geosim.policy.routes import make_routes, pairs
from geosim.scenario import Fabric, Hop, WanLink, Workload, accelerators, load_scenario, models

FAST = Hop(bandwidth_bytes_per_s=1e11, latency_s=1e-6)
SLOW = Hop(bandwidth_bytes_per_s=1e10, latency_s=1e-5)
TRIP = 0.04


def edge(rate: float = 12.5e6, rtt: float = TRIP, flows: int = 1) -> Edge:
    link = WanLink(between=("a", "b"), bandwidth_bytes_per_s=rate, rtt_s=rtt, window_bytes=1e12)
    return Edge(make_path(link, "a"), 1 / payload_share(1500), flows)


def test_flops_of_a_token_by_hand():
    work = Workload(model="llama-7b", sequence=2048)
    model = models()["llama-7b"]
    assert matrix_parameters(model) == pytest.approx(6.6e9, rel=0.02)
    by_hand = 6 * matrix_parameters(model) + 12 * model.layers * model.d_model * 2048
    assert flops_per_token(work) == by_hand
    assert flops_per_token(work.model_copy(update={"recompute": True})) == pytest.approx(by_hand * 8 / 6)


def test_step_time_follows_peak_and_utilization_unless_measured():
    work = Workload(model="llama-7b", batch_per_accelerator=2, mfu=0.5)
    device = accelerators()["A100-80"]
    assert step_time(work, device) == pytest.approx(2 * 2048 * flops_per_token(work) / (312e12 * 0.5))
    assert step_time(work.model_copy(update={"step_time_s": 1.5}), device) == 1.5
    with pytest.raises(UsageError, match=r"has no fp8.*workload\.step_time"):
        step_time(work.model_copy(update={"precision": "fp8"}), device)


def test_collectives_by_hand():
    assert reduce_scatter(8e9, 8, FAST) == pytest.approx(7e9 / 1e11 + 7e-6)
    assert ring_all_reduce(8e9, 8, FAST) == pytest.approx(2 * (7e9 / 1e11 + 7e-6))
    fabric = Fabric(intra_node=FAST, inter_node=SLOW)
    across = ring_all_reduce(1e9, 4, SLOW)
    assert hierarchical_all_reduce(8e9, 4, 8, fabric) == pytest.approx(ring_all_reduce(8e9, 8, FAST) + across)
    assert hierarchical_all_reduce(8e9, 1, 8, fabric) == pytest.approx(ring_all_reduce(8e9, 8, FAST))


@given(st.floats(1, 1e12), st.integers(1, 64), st.integers(1, 8))
def test_a_collective_of_one_costs_nothing_and_more_bytes_never_less(size, nodes, per_node):
    fabric = Fabric(intra_node=FAST, inter_node=SLOW)
    assert hierarchical_all_reduce(size, 1, 1, fabric) == 0
    one = hierarchical_all_reduce(size, nodes, per_node, fabric)
    assert hierarchical_all_reduce(2 * size, nodes, per_node, fabric) >= one


def test_a_site_gathers_over_its_fabric():
    site = load_scenario("laptop").sites[0]
    assert site_all_gather(8e6, site, 2) == pytest.approx(4e6 / 2e9 + 5e-5)
    assert site_all_gather(8e6, site, 1) == pytest.approx(8e6 / 2e9 + 5e-5)
    alone = site.model_copy(update={"accelerators_per_node": 1})
    assert site_all_gather(8e6, alone, 1) == 0
    assert site_all_reduce(8e6, alone) == 0


def test_buckets_close_at_one_and_then_at_25_mib():
    rows = [(f"layers.{i}.w", (1 << 20,)) for i in range(20)]
    buckets = make_buckets(table(rows), "fp32")
    assert buckets.sizes.tolist() == [4 << 20, *[28 << 20] * 2, 20 << 20]
    assert buckets.ready[-1] == 1
    assert buckets.total_bytes == 80 << 20
    assert make_buckets(table(rows), "bf16").total_bytes == 40 << 20


@given(st.lists(st.tuples(st.floats(0, 10), st.floats(0.01, 5)), min_size=1, max_size=8))
def test_collectives_run_one_after_another_in_order(rows):
    ready = np.sort([r for r, _ in rows])
    durations = np.array([d for _, d in rows])
    end = 0.0
    for r, d in zip(ready, durations, strict=True):
        end = max(end, r) + d
    assert finish_time(ready, durations) == pytest.approx(end)


def test_the_last_bucket_always_shows():
    buckets = Buckets(np.array([1.0, 1.0]), np.array([0.5, 1.0]))
    assert exposed(buckets, np.array([0.1, 0.1]), 10.0) == pytest.approx(0.1)
    assert exposed(buckets, np.array([3.0, 3.0]), 4.0) == pytest.approx(4.0)


def test_gloo_ring_by_hand():
    size = 4.0 * (1 << 20)
    # 4 ranks: 8 segments of 512 KiB, 6 travel a stage, two at a time.
    sending = (1 << 19) / payload_share(1500) / 12.5e6
    pair = max(2 * sending, TRIP + sending)
    by_hand = 2 * (TRIP + 2 * sending + 2 * pair)
    assert gloo_times(np.array([size]), 4, (edge(), edge()))[0] == pytest.approx(by_hand)


def test_what_gloo_rings_over_kernel_tcp_took():
    """Mean all-reduces by two ranks in each of two sites: torch 2.13, emulated 100 Mbit/s, 40 ms, CUBIC."""
    link = WanLink(between=("a", "b"), bandwidth_bytes_per_s=12.5e6, rtt_s=0.04)
    both = (Edge(make_path(link, "a", two_way=True), 1 / payload_share(1500)),) * 2
    for size, seconds in ((1 << 20, 0.35), (4 << 20, 0.89), (11 << 20, 2.11)):
        slow_start = ramp_time(crossing_bytes(size, 4), both, 0.6)
        took = gloo_times(np.array([float(size)]), 4, both)[0] + slow_start
        assert took == pytest.approx(seconds, rel=0.15)


def test_rings_over_distance_lose_bandwidth_where_bytes_in_flight_are_bounded():
    size = np.array([float(1 << 30)])
    near, far = (gloo_times(size, 8, (edge(1.25e9, rtt),) * 2)[0] for rtt in (0.001, 0.1))
    assert far > 20 * near
    few, many = (nccl_times(size, 8, (edge(1.25e9, rtt, 2),) * 2)[0] for rtt in (0.001, 0.1))
    assert many > 5 * few
    bound = crossing_bytes(float(1 << 30), 8) / payload_share(1500) / 1.25e9
    assert few >= bound
    assert near >= bound


def test_slow_start_adds_to_a_ring_only_after_silence():
    assert ramp_time(1e7, (edge(),), 0.1) == pytest.approx(0, abs=1e-9)
    assert ramp_time(1e7, (edge(),), 10.0) > 0.1


def test_codec_rates_follow_memory_and_calibration_replaces_them():
    device = accelerators()["A100-80"]
    plain = rates(Codec(), device, Calibration())
    lossy = Codec(select=TopK(ratio=0.01), quantize=Integer())
    top = rates(lossy, device, Calibration())
    assert encode_time(1e9, 0, top) > encode_time(1e9, 0, plain) > 0
    measured = rates(lossy, device, Calibration(encode_s_per_element=1e-8, decode_s_per_value=2e-8))
    assert encode_time(1e6, 1e6, measured) == pytest.approx(0.01)
    one, two = (decode_time(1_000_000, 2e4, lossy, n, measured) for n in (1, 2))
    assert two - one == pytest.approx(10_000 * 2e-8)


def test_a_calibration_survives_yaml(tmp_path):
    path = tmp_path / "c.yaml"
    known = Calibration(step_overhead_s=0.002, encode_s_per_element=1.5e-8, backend="gloo", flag_s=1e-3)
    path.write_text(known.to_yaml())
    assert load_calibration(path) == known
    path.write_text("step_overhed: 2 ms\n")
    with pytest.raises(UsageError, match="did you mean 'step_overhead'"):
        load_calibration(path)


def test_calibrated_values_reach_the_problem():
    known = Calibration(
        step_overhead_s=0.01,
        accumulate_s=0.02,
        optimizer_s=0.06,
        site_collective_s=0.03,
        outer_s=0.04,
        flag_s=0.05,
        gather_s_per_byte=1e-9,
    )
    scenario = load_scenario("laptop")
    problem = build(scenario, load_policy("hierarchical-efsgd"), known)
    site, fragment = problem.sites[0], problem.fragments[0]
    assert site.update_s == pytest.approx(0.03)
    assert site.collective_s == 0.03
    assert fragment.apply_s == (0.06, 0.06)
    assert fragment.encode_s[0] > 0.05
    numel = scenario.workload.model.param_table().numel
    assert fragment.gather_s[0] == pytest.approx(4e-9 * numel)
    # In one room every step ends with the optimizer's, not with adding to an accumulator.
    assert problem.colocated_step_s == pytest.approx(0.25 + 0.03 + 0.07)
    flat = build(scenario, load_policy("ddp"), known)
    assert flat.sites[0].update_s == pytest.approx(0.07)
    assert flat.colocated_step_s == problem.colocated_step_s
    local = build(scenario, load_policy("local-sgd"), known)
    assert local.sites[0].update_s == pytest.approx(0.07)
    assert local.fragments[0].apply_s == (0.04, 0.04)


def test_fragments_share_the_calibrated_outer_step():
    rule = load_policy(
        "local-sgd", {"interval": 8, "overlap": {"kind": "streaming", "fragments": 4, "steps": 1}}
    )
    problem = build(load_scenario("laptop"), rule, Calibration(outer_s=0.04))
    assert len(problem.fragments) == 4
    assert sum(fragment.apply_s[0] for fragment in problem.fragments) == pytest.approx(0.04)


def test_plain_data_parallelism_pays_the_optimizer_uncalibrated_too():
    scenario = load_scenario("laptop")
    flat, local = (build(scenario, load_policy(name)) for name in ("ddp", "local-sgd"))
    assert flat.sites[0].update_s == local.sites[0].update_s


def test_a_trace_gives_the_way_back_its_bandwidth_in_proportion():
    """As the runtime's emulated links do (`runtime.wan.start_traces`)."""
    changes = {"wan.0.back_bandwidth": "10 Mbit/s", "wan.0.trace": [{"at": "0 s", "bandwidth": "8 Mbit/s"}]}
    problem = build(load_scenario("laptop", changes), load_policy("local-sgd"))
    assert {link.name: link.trace for link in problem.links} == {
        "east->west": ((0.0, 1e6),),
        "west->east": ((0.0, 1e5),),
    }


def deliver(routes, sites):
    """Payloads that each site has in the end, by carrying them out."""
    has = [{m} for m in range(sites)]
    for k, t in enumerate(routes):
        if t.need is None:
            assert t.source == t.origin
        else:
            assert t.need < k
            assert (routes[t.need].target, routes[t.need].origin) == (t.source, t.origin)
        assert t.origin in has[t.source]
        has[t.target].add(t.origin)
    return has


@pytest.mark.parametrize("topology", [Direct(), Ring(), Hub(), Hub(site="s2"), Tree()])
@pytest.mark.parametrize("sites", [3, 4, 7])
def test_every_topology_brings_every_payload_to_every_site(topology, sites):
    names = tuple(f"s{m}" for m in range(sites))
    routes = make_routes(topology, names)
    if isinstance(topology, Direct):
        assert {(t.source, t.target) for t in routes} == {
            (a, b) for a in range(sites) for b in range(sites) if a != b
        }
    else:
        assert deliver(routes, sites) == [set(range(sites))] * sites
    # No topology sends a payload to a site that has it: a site gets the others' once.
    for m in range(sites):
        assert sorted(t.origin for t in routes if t.target == m) == [o for o in range(sites) if o != m]
    assert set(pairs(topology, routes, sites)) == {(t.source, t.target) for t in routes}


@pytest.mark.parametrize(("backend", "way"), [("nccl", 1), ("gloo", -1)])
def test_a_flat_ring_passes_on_the_way_its_library_does(backend, way):
    scenario = load_scenario("four-regions")
    names = [site.name for site in scenario.sites]
    problem = build(scenario, load_policy("ddp"), Calibration(backend=backend))
    wanted = {f"{a}->{names[(i + way) % len(names)]}" for i, a in enumerate(names)}
    assert {link.name for link in problem.links} == wanted


@pytest.mark.parametrize(
    ("parallel", "inside"),
    [
        ({"tensor": 8, "pipeline": 4}, 1),  # all eight of a node hold different parts
        ({"tensor": 2, "pipeline": 4}, 4),
        ({"tensor": 4, "pipeline": 8}, 2),
    ],
)
def test_no_accelerator_gets_its_part_of_a_model_faster_than_its_fabric_brings_it(parallel, inside):
    lean = {"micro_batch": 1, "zero": 1, "recompute": "full"}
    world = load_scenario("llama-70b-two-campuses", {"workload.parallel": {**parallel, **lean}})
    site = world.sites[0]
    group, part = replica_group(world.workload, site)
    degree = parallel["tensor"] * parallel["pipeline"]
    assert (group.accelerators_per_node, group.ranks) == (inside, site.ranks // degree)
    assert part == pytest.approx(1 / degree)
    policy = load_policy("local-sgd", {"overlap": "blocking"})
    plan = build(world, policy).fragments[0]
    mine = 4 * world.workload.model.param_table().numel / degree
    other_nodes = mine * (group.nodes - 1) / group.nodes
    # A node's accelerators of the same part share what comes over all their network cards.
    assert plan.gather_s[0] >= other_nodes / (inside * site.fabric.inter_node.bandwidth_bytes_per_s)
