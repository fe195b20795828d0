"""The closed form against the engine, and against itself."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sim_worlds import TOPK, policies, policy, world, worlds

from experiments.agreement import BARS, compare
from experiments.random_pairs import draw
from geosim.policy import load_policy, preset_names
from geosim.scenario import load_scenario
from geosim.sim import closed_form, cycles, simulate
from geosim.sim.closed_form import TEXT, Reason, batch_from, steady_state


def agree(scenario, rule, tolerance):
    """Compare where the closed form says that it applies; whether it did."""
    form = steady_state(batch_from(scenario, [rule]))
    if not form.applies[0]:
        return False
    # Where an exchange takes hardly longer than a window, it takes many windows until the worker is behind.
    slow = rule.overlap.kind == "delayed" and 0 < form.exposed_s[0] < 0.2 * form.step_s[0]
    result = simulate(scenario, rule, windows=600 if slow else 24)
    if slow:
        assert form.step_s[0] == pytest.approx(result.step_time_s.p95, rel=tolerance)
        return True
    step = result.step_time_s.mean
    assert form.step_s[0] == pytest.approx(step, rel=tolerance)
    assert form.exposed_s[0] == pytest.approx(result.exposed_wan_s_per_step, abs=tolerance * step)
    assert form.relative_to_colocated[0] == pytest.approx(result.relative_to_colocated, rel=tolerance)
    assert form.tokens_per_s[0] == pytest.approx(result.tokens_per_s, rel=tolerance)
    assert form.compute_utilization[0] == pytest.approx(result.compute_utilization, rel=tolerance)
    assert form.wan_bytes_vs_ddp[0] == pytest.approx(result.wan_bytes_vs_ddp, rel=max(tolerance, 1e-6))
    assert form.exchange_s[0] == pytest.approx(result.exchange_time_s.mean, rel=tolerance)
    for use in result.links.values():
        assert form.link_bytes[0] == pytest.approx(use.bytes_per_step, rel=max(tolerance, 1e-6))
    return True


@settings(max_examples=80)
@given(worlds(initial_window_bytes=1e12, window_bytes=1e12), policies())
def test_without_slow_start_they_agree_to_rounding(scenario, rule):
    agree(scenario, rule, 1e-6)


@settings(max_examples=80)
@given(worlds(), policies())
def test_with_slow_start_they_agree_within_a_percent(scenario, rule):
    agree(scenario, rule, 0.01)


@settings(max_examples=30)
@given(worlds(), st.sampled_from(["fp32", "bf16"]))
def test_flat_rings_agree_to_rounding(scenario, dtype):
    assert agree(scenario, policy(topology="flat-ring", codec={"quantize": dtype}), 1e-6)


@pytest.mark.parametrize("name", preset_names())
def test_every_preset_on_the_laptop_is_in_the_domain(name):
    assert agree(load_scenario("laptop"), load_policy(name), 0.01)


@pytest.mark.parametrize("sites", [3, 4])
def test_rings_of_sites_agree(sites):
    assert agree(world(sites, step=1.0), policy(topology="ring", interval=4, codec=TOPK), 0.01)


def test_most_random_pairs_are_in_the_domain():
    random = np.random.default_rng(0)
    inside = 0
    for _ in range(200):
        scenario = world(
            int(random.integers(2, 4)), rate=10 ** random.uniform(6, 9), rtt=10 ** random.uniform(-3, -0.6)
        )
        overlap = [
            {"kind": "blocking"}, {"kind": "delayed", "windows": int(random.integers(1, 3))},
            {"kind": "streaming", "fragments": 4, "steps": int(random.integers(1, 5))},
        ][random.integers(3)]  # fmt: skip
        rule = policy(update="local", overlap=overlap, interval=int(random.integers(8, 64)))
        inside += int(steady_state(batch_from(scenario, [rule])).applies[0])
    print(f"{inside} of 200 in the closed form's domain")
    assert inside >= 120


def trunk(scenario):
    """All sites share one way out for two links."""
    sites = tuple(s.model_copy(update={"uplink_bytes_per_s": 1e6}) for s in scenario.sites)
    return scenario.model_copy(update={"sites": sites})


def one_slow_link(scenario):
    """The first link is a tenth as fast as the others."""
    slow = scenario.wan[0].model_copy(
        update={"bandwidth_bytes_per_s": scenario.wan[0].bandwidth_bytes_per_s / 10}
    )
    return scenario.model_copy(update={"wan": (slow, *scenario.wan[1:])})


WALKED = [
    (world(3), policy(topology="hub")),
    (world(6), policy(topology="tree", interval=80)),
    (world(back_bandwidth_bytes_per_s=1e6), policy()),
    (one_slow_link(world(4)), policy(interval=9)),
    (world(), policy(groups=[{"share": 0.5}], overlap="delayed")),
    (
        world(rate=1e5),
        policy(update="local", interval=8, overlap={"kind": "streaming", "fragments": 4, "steps": 5}),
    ),
]


@pytest.mark.parametrize(("scenario", "rule"), WALKED)
def test_what_differs_or_queues_is_walked_and_agrees(scenario, rule):
    assert compare((scenario, rule), 1e-9).worst <= 1e-9
    assert steady_state(batch_from(scenario, [rule])).applies[0]


def test_a_walk_of_many_is_what_each_is_alone():
    rules = [
        policy(update="local", interval=k, topology=topology, overlap=overlap)
        for k in (2, 7, 30)
        for topology in ("direct", "ring", "tree")
        for overlap in ("blocking", {"kind": "delayed", "windows": 2}, {"kind": "streaming", "steps": 1})
    ]
    scenario = one_slow_link(world(4))
    together = steady_state(batch_from(scenario, rules))
    assert together.applies.all()
    for i, rule in enumerate(rules):
        alone = steady_state(batch_from(scenario, [rule]))
        for field in dataclasses.fields(together):
            assert getattr(together, field.name)[i] == pytest.approx(getattr(alone, field.name)[0], rel=1e-9)


@pytest.mark.parametrize("ramp", [False, True])
def test_random_pairs_agree_and_most_are_in_the_domain(ramp):
    """A slice of `python -m experiments.agreement`, whose thousand pairs are in experiments/results."""
    found = [compare(draw(seed, ramp), BARS[ramp]) for seed in range(50)]
    beyond = [(seed, one) for seed, one in enumerate(found) if one.worst > BARS[ramp]]
    assert not beyond
    inside = sum(one.reason is Reason.APPLIES for one in found)
    print(f"{inside} of {len(found)} in the closed form's domain")
    assert inside >= 0.6 * len(found)


@pytest.mark.parametrize(
    ("scenario", "rule", "reason"),
    [
        (world(jitter=0.1), policy(), Reason.RANDOM),
        (world(jitter_s=0.001), policy(), Reason.RANDOM),
        (world(trace=({"at": "0 s", "bandwidth": "1 Gbit/s"},)), policy(), Reason.TRACE),
        (trunk(world(3)), policy(), Reason.TRUNK),
        (one_slow_link(world(4)), policy(topology="hub"), Reason.SHARED),
        (world(7), policy(topology="tree", interval=3), Reason.SHARED),
        (world(), policy(adapt="hide-exchange"), Reason.ADAPT),
        (world(3), policy(topology="hub", adapt="hide-exchange"), Reason.ADAPT),
    ],
)
def test_it_says_why_it_does_not_apply(scenario, rule, reason):
    form = steady_state(batch_from(scenario, [rule]))
    assert not form.applies[0]
    assert Reason(form.reason[0]) is reason
    assert TEXT[reason]
    assert np.isfinite(form.step_s[0])


def test_a_batch_gives_what_its_rows_give_alone():
    rules = [load_policy(name) for name in preset_names()]
    together = steady_state(batch_from(world(3), rules))
    for i, rule in enumerate(rules):
        alone = steady_state(batch_from(world(3), [rule]))
        for field in dataclasses.fields(together):
            assert getattr(together, field.name)[i] == pytest.approx(getattr(alone, field.name)[0], rel=1e-12)


def test_many_policies_are_a_few_passes_over_arrays(monkeypatch):
    """The work is a bounded number of passes over every chunk; `make bench` has the seconds."""
    passes = []
    law = cycles.send_time
    monkeypatch.setattr(cycles, "send_time", lambda *a: passes.append(len(a[0])) or law(*a))
    one = batch_from(world(), [load_policy("hierarchical-efsgd")])
    many = one.take(np.zeros(200_000, dtype=int))
    many = dataclasses.replace(many, interval=np.arange(1, 200_001))
    form = steady_state(many)
    assert len(passes) <= 12 * -(-200_000 // 16_384)
    assert sum(passes) <= 12 * 200_000
    assert form.applies.all()
    assert (np.diff(form.exposed_s) <= 1e-12).all()


def mixed(rows):
    """Rows of many kinds, with intervals, rates, round trips and sizes over decades."""
    scenarios = [world(3), world(loss=0.001), world(congestion_control="bbr"), world(3, rate=1e6)]
    rules = [
        *(load_policy(name) for name in preset_names()),
        policy(topology="ring", overlap={"kind": "delayed", "windows": 2}),
        policy(update="local", interval=16, overlap={"kind": "streaming", "fragments": 4, "steps": 3}),
    ]
    random = np.random.default_rng(0)
    for scenario in scenarios:
        batch = batch_from(scenario, rules)
        batch = batch.take(random.integers(len(batch), size=rows))
        yield dataclasses.replace(
            batch,
            interval=random.integers(4, 1000, size=rows),
            rate=batch.rate * 10 ** random.uniform(-2, 2, size=rows),
            rtt_s=batch.rtt_s * 10 ** random.uniform(-2, 1, size=rows),
            size_bytes=batch.size_bytes * 10 ** random.uniform(-2, 2, size=(rows, 1)),
        )


def test_machine_code_gives_what_arrays_give():
    """1e-12: the C library's logarithm may differ from numpy's in the last bit."""
    compiled_cycles = pytest.importorskip("geosim.sim.compiled_cycles")
    for batch in mixed(20_000):
        by_arrays, by_rows = closed_form.by_arrays(batch), compiled_cycles.by_rows(batch)
        assert by_arrays.wait_s.any()
        assert (by_arrays.queues.any(), by_arrays.settled.any()) == (True, True)
        for name, found, expected in zip(by_rows._fields, by_rows, by_arrays, strict=True):
            assert found.dtype == expected.dtype
            np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12, err_msg=name)


def test_machine_code_is_for_many_policies_and_numba(monkeypatch):
    """Few policies must not wait for numba to load; without numba arrays do it all."""
    compiled_cycles = pytest.importorskip("geosim.sim.compiled_cycles")
    used = []
    law = compiled_cycles.by_rows
    monkeypatch.setattr(compiled_cycles, "by_rows", lambda batch: used.append(len(batch)) or law(batch))
    one = batch_from(world(), [policy()])
    steady_state(one.take(np.zeros(100_000, dtype=int)))
    assert not used
    many = one.take(np.zeros(600_000, dtype=int))
    with monkeypatch.context() as without:
        without.setattr(closed_form, "find_spec", lambda name: None)
        form = steady_state(many)
    assert not used
    assert (form.step_s == form.step_s[0]).all()
    steady_state(many)
    assert sum(used) == len(many)
