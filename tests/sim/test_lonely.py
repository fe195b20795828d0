"""Exchanges worked out in one go give the numbers of payloads that go one by one, to the last bit."""

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sim_worlds import TOPK, policy, world

from experiments.random_pairs import draw
from geosim.cost import build
from geosim.scenario import Trunk
from geosim.sim import Tracer, simulate
from geosim.sim import flow as followed
from geosim.sim.closed_form import batch_from, steady_state
from geosim.sim.engine import Engine
from geosim.sim.lonely import flow
from geosim.sim.lonely.rule import is_lonely, pays
from geosim.sim.simulate import run

TOPOLOGIES = ("direct", "ring", "hub", "tree")
OVERLAPS = (
    {"kind": "blocking"},
    {"kind": "delayed", "windows": 1},
    {"kind": "delayed", "windows": 3},
    {"kind": "streaming", "fragments": 4, "steps": 2},
)


def both(problem, seed=0, windows=8):
    """A run with exchanges in one go, and one payload by payload."""
    engines = [Engine(problem, seed, windows, at_once=at_once) for at_once in (True, False)]
    return [(engine, engine.run()) for engine in engines]


def assert_same(problem, seed=0, windows=8):
    """All times and bytes of the two are equal; nothing is rounded otherwise."""
    (a, mine), (b, theirs) = both(problem, seed, windows)
    assert np.array_equal(a.ends, b.ends)
    assert np.array_equal(a.steps, b.steps)
    assert np.array_equal(mine.exchange_s, theirs.exchange_s)
    assert mine.site_parts_s == theirs.site_parts_s
    assert mine.link_bytes == theirs.link_bytes


@pytest.mark.parametrize("parts", [2, 3, 5, 8])
@pytest.mark.parametrize("overlap", [{"kind": "blocking"}, {"kind": "delayed", "windows": 1}])
def test_payloads_of_whole_windows_take_no_round_more(parts, overlap):
    """Where the window's limit is below the pipe; rounding must not decide on a round trip."""
    for rate, rtt in ((1e9, 0.2), (1e9, 0.05), (1.25e8, 0.1)):
        payload = build(world(2), policy(update="local", interval=4, overlap=overlap)).fragments[0]
        window = payload.payload_bytes / (payload.flows * parts)
        scenario = world(2, rate=rate, rtt=rtt, step=0.01, window_bytes=window)
        rule = policy(update="local", interval=4, overlap=overlap)
        problem = build(scenario, rule)
        assert problem.links[0].path.window_limit(payload.flows) < rate * rtt
        assert_same(problem)
        form = steady_state(batch_from(scenario, [rule]))
        assert form.applies[0]
        result = simulate(scenario, rule)
        assert form.step_s[0] == pytest.approx(result.step_time_s.mean, rel=1e-9)
        assert form.exchange_s[0] == pytest.approx(result.exchange_time_s.mean, rel=1e-6)


def shaken(scenario, link_jitter, step_jitter):
    """A scenario with random delays and steps, and links that keep their rates."""
    links = (w.model_copy(update={"jitter_s": link_jitter * w.rtt_s, "trace": ()}) for w in scenario.wan)
    work = scenario.workload.model_copy(update={"step_jitter": step_jitter})
    return scenario.model_copy(update={"wan": tuple(links), "workload": work})


@settings(max_examples=60)
@given(st.integers(0, 10_000), st.booleans(), st.sampled_from([0.0, 0.03, 0.4]), st.sampled_from([0.0, 0.2]))
def test_random_networks(seed, ramp, link_jitter, step_jitter):
    scenario, rule = draw(seed, ramp)
    problem = build(shaken(scenario, link_jitter, step_jitter), rule)
    if problem.flat is None and is_lonely(problem):
        assert_same(problem, seed)


@pytest.mark.parametrize("topology", TOPOLOGIES)
@pytest.mark.parametrize("overlap", OVERLAPS)
@pytest.mark.parametrize("congestion_control", ["cubic", "bbr"])
def test_sites_alike_whose_payloads_tie(topology, overlap, congestion_control):
    """Where all happens at the same instants, order at one instant decides which payload goes first."""
    rule = policy(update="local", overlap=overlap, topology=topology, interval=8)
    for scenario in (
        world(7, step=0.01, congestion_control=congestion_control),
        world(6, step=0.01, jitter=0.2, jitter_s=0.02, congestion_control=congestion_control),
    ):
        assert_same(build(scenario, rule))


def test_an_interval_that_adapts():
    rule = policy(
        update="local", overlap="delayed", interval=2, adapt={"kind": "hide-exchange", "most": 64},
        topology="tree",
    )  # fmt: skip
    (a, _), _ = both(build(world(5, step=0.02, jitter=0.1, jitter_s=0.01), rule))
    assert len(set(np.diff(a.steps))) > 1
    assert_same(build(world(5, step=0.02, jitter=0.1, jitter_s=0.01), rule))


@pytest.mark.parametrize("rtt", [0.0, 0.3])
def test_payloads_that_fill_the_send_buffers_and_payloads_that_fit_in(rtt):
    """A source leaves once the kernel has its bytes; the next exchange then waits for the link."""
    for codec in ({}, TOPK):
        rule = policy(
            update="local", codec=codec, topology="hub", interval=4,
            overlap={"kind": "streaming", "fragments": 3, "steps": 1},
        )  # fmt: skip
        assert_same(build(world(5, rtt=rtt, rate=2e6, step=0.02, jitter=0.3), rule))


def test_with_many_payloads_a_run_is_worked_out_in_one_go_and_its_trace_is_of_the_same_run():
    problem = build(world(16, jitter=0.1), policy(update="local", codec=TOPK, topology="ring"))
    assert pays(problem, 200)
    assert not pays(problem, 8)
    chosen, tracer = run(problem, 3, 45), Tracer()
    assert pays(problem, 45)
    traced = run(problem, 3, 45, tracer)
    assert tracer.spans
    # A traced transfer is followed part by part, which rounds otherwise.
    assert chosen.elapsed_s == pytest.approx(traced.elapsed_s, rel=1e-12)
    assert chosen.exchange_s == pytest.approx(traced.exchange_s, rel=1e-9)
    assert chosen.link_bytes == pytest.approx(traced.link_bytes, rel=1e-9)


def test_links_that_share_or_vary_are_not_lonely():
    scenario, rule = world(3), policy()
    site = scenario.sites[0].model_copy(update={"uplink_bytes_per_s": 1e7})
    trunk = Trunk(name="sea", links=(("s0", "s1"),), bandwidth_bytes_per_s=1e7)
    trace = ({"at": "0 s", "bandwidth": "50 Mbit/s"},)
    assert is_lonely(build(scenario, rule))
    for other in (
        scenario.model_copy(update={"sites": (site, *scenario.sites[1:])}),
        scenario.model_copy(update={"trunks": (trunk,)}),
        world(3, trace=trace),
        world(1),
    ):
        assert not is_lonely(build(other, rule))


def test_a_small_run_loads_no_compiler():
    code = (
        "import sys; from geosim.sim import simulate; simulate('laptop', 'hierarchical-efsgd', windows=200);"
        "print('numba' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_what_counts_as_nothing_is_the_same_in_both():
    assert (flow.TINY, flow.TINY_BYTES, flow.TINY_SHARE_OF_TIME) == (
        followed.TINY, followed.TINY_BYTES, followed.TINY_SHARE_OF_TIME,
    )  # fmt: skip
