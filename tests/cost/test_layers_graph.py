"""The layer graph: against a naive walk node by node, against arithmetic by hand, and its laws and limits."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from geosim.cost.layers import THIRDS, cycle_time, make_graph, utilization
from geosim.errors import UsageError
from geosim.params import ParamSpec, ParamTable
from geosim.policy import (
    Blocking,
    Cast,
    Codec,
    Delayed,
    Group,
    Layout,
    Local,
    Streaming,
    SyncPolicy,
    TopK,
    make_layout,
)
from geosim.policy.schedule import make_plan, next_cycle, start

BF16 = Codec(quantize=Cast(kind="bf16"))


def equal_layers(layers: int, numel: int = 1000) -> ParamTable:
    return ParamTable((ParamSpec("blocks.{layer}.w", (numel,), "bf16", 0, layers),))


def layout_of(layers: int, interval: int = 1, overlap=None, numel: int = 1000) -> Layout:
    policy = SyncPolicy(update=Local(), interval=interval, codec=BF16, overlap=overlap or Blocking())
    return make_layout(equal_layers(layers, numel), policy, 1)


def naive_cycle(layout: Layout, graph, rate: float, latency: float, cycles: int = 5, warm: int = 3) -> float:
    """Node by node, in plain Python: every forward and backward of every layer in turn."""
    layers = len(graph.forward_s)
    plan, state = make_plan(layout), start(make_plan(layout))
    now = link = 0.0
    queue: dict[tuple[int, int], list[float]] = {}
    needed = [0.0] * layers
    began = []
    for _ in range(cycles):
        began.append(now)
        first = state.step
        state, events = next_cycle(state, plan, layout.policy.interval)
        for step in range(first + 1, first + layout.policy.interval + 1):
            for m in range(layers):
                now = max(now, needed[m]) + graph.forward_s[m]
            needed = [0.0] * layers
            leaving = [e.fragment for e in events if e.step == step and e.kind == "send"]
            for m in reversed(range(layers)):
                now += graph.by_activation_s[m]
                now += graph.by_weight_s[m]
                for f in sorted(leaving, reverse=True):
                    if graph.reduce_bytes[f, m] > 0:
                        link = max(link, now) + graph.reduce_bytes[f, m] / rate
                        queue.setdefault((f, m), []).append(link + latency)
            for e in events:
                if e.step == step and e.kind == "apply":
                    for m in range(layers):
                        if graph.reduce_bytes[e.fragment, m] > 0:
                            needed[m] = max(needed[m], queue[e.fragment, m].pop(0))
    return (now - began[warm]) / (cycles - warm)


@settings(max_examples=40, deadline=None)
@given(
    layers=st.integers(1, 7),
    interval=st.integers(1, 9),
    fragments=st.integers(1, 4),
    late=st.integers(0, 3),
    rate=st.floats(1e2, 1e7),
    latency=st.floats(0, 0.5),
    shares=st.sampled_from([THIRDS, (0.4, 0.35, 0.25), (0.0, 0.5, 0.5)]),
    kind=st.sampled_from(["blocking", "delayed", "streaming"]),
)
def test_it_is_the_walk_node_by_node(layers, interval, fragments, late, rate, latency, shares, kind):
    streaming = Streaming(fragments=min(fragments, layers), steps=min(late, interval - 1))
    overlap = {"blocking": Blocking(), "delayed": Delayed(), "streaming": streaming}[kind]
    layout = layout_of(layers, interval, overlap)
    graph = make_graph(layout, 1.0, shares)
    got = cycle_time(graph, layout, np.array([rate]), latency)[0]
    assert got == pytest.approx(naive_cycle(layout, graph, rate, latency), rel=1e-9)


def test_one_layer_overlaps_nothing():
    layout = layout_of(1)
    graph = make_graph(layout, 2.0)
    assert cycle_time(graph, layout, np.array([500.0, 4000.0]), 0.25) == pytest.approx([2 + 4.25, 2 + 0.75])


def test_two_layers_by_hand():
    """Layer 1 leaves while layer 0 computes its backward pass; the next forward pass needs 0 first."""
    layout = layout_of(2)
    graph = make_graph(layout, 6.0)
    # A layer: 1 s forward, 2 s backward. At 2000 B/s a reduce takes 1 s: 1 is through when 0's begins.
    # 0's, 1 s, shows whole.
    assert cycle_time(graph, layout, 2000.0)[0] == pytest.approx(7.0)
    # At 500 B/s 4 s: 1's ends 2 s after the backward pass, 0's then 4 s later.
    assert cycle_time(graph, layout, 500.0)[0] == pytest.approx(6 + 2 + 4)


def test_a_link_without_limits_leaves_compute():
    layout = layout_of(12, 20, Streaming(fragments=4, steps=2))
    graph = make_graph(layout, 0.5)
    assert graph.step_s == pytest.approx(0.5)
    assert cycle_time(graph, layout, 1e18)[0] == pytest.approx(10.0)
    assert utilization(graph, layout, 1e18)[0] == pytest.approx(1.0)


@pytest.mark.parametrize("overlap", [Blocking(), Delayed(), Streaming(fragments=3, steps=0)])
def test_where_only_bytes_count_every_schedule_costs_the_same(overlap):
    layout = layout_of(6, 10, overlap)
    graph = make_graph(layout, 1.0)
    rate = 1e-3
    assert cycle_time(graph, layout, rate)[0] == pytest.approx(12_000 / rate, rel=1e-4)


@given(st.integers(1, 12), st.integers(1, 20), st.floats(0, 1))
@settings(max_examples=30, deadline=None)
def test_more_bandwidth_is_never_slower_nor_faster_than_compute_or_bytes(layers, interval, latency):
    layout = layout_of(layers, interval)
    graph = make_graph(layout, 1.0)
    rates = np.logspace(1, 7, 40)
    times = cycle_time(graph, layout, rates, latency)
    assert (np.diff(times) <= 1e-9 * times[:-1]).all()
    assert (times >= interval * (1 - 1e-12)).all()
    assert (times >= 2000 * layers / rates * (1 - 1e-12)).all()
    assert (times >= cycle_time(graph, layout, rates) - 1e-9).all()


def test_a_later_result_never_waits_longer():
    times = []
    for late in range(4):
        layout = layout_of(8, 16, Streaming(fragments=4, steps=late))
        times.append(cycle_time(make_graph(layout, 1.0), layout, np.logspace(2, 6, 20)))
    assert (np.diff(times, axis=0) <= 1e-9).all()


def test_tensors_outside_the_layers_count_to_the_first_and_groups_may_split_a_layer():
    specs = (
        ParamSpec("embedding", (500,), "bf16"),
        ParamSpec("blocks.{layer}.a", (300,), "bf16", 0, 3),
        ParamSpec("blocks.{layer}.b", (100,), "bf16", 0, 3),
    )
    for overlap in (Delayed(), Blocking()):
        policy = SyncPolicy(codec=BF16, groups=(Group(share=0.7, overlap=overlap),))
        layout = make_layout(ParamTable(specs), policy, 1)
        graph = make_graph(layout, 1.0)
        assert graph.reduce_bytes.sum(axis=0).tolist() == [1800, 800, 800]
        assert (graph.reduce_bytes > 0).all(axis=0).any()
        for rate in (2e3, 1e5):
            naive = naive_cycle(layout, graph, rate, 0.0)
            assert cycle_time(graph, layout, rate)[0] == pytest.approx(naive)


def test_bad_input_says_what_would_be_right():
    layout = layout_of(2)
    with pytest.raises(UsageError, match=r"shares: .* add up to 1"):
        make_graph(layout, 1.0, (0.5, 0.5, 0.5))
    graph = make_graph(layout, 1.0)
    with pytest.raises(UsageError, match="bandwidth_bytes_per_s: 0 must be above 0"):
        cycle_time(graph, layout, 0.0)
    with pytest.raises(UsageError, match="latency_s: -1 must be 0 or more"):
        cycle_time(graph, layout, 1.0, -1.0)
    whole = SyncPolicy(codec=Codec(select=TopK(ratio=0.1, scope="fragment")))
    with pytest.raises(UsageError, match="scope"):
        make_graph(make_layout(equal_layers(2), whole, 1), 1.0)
