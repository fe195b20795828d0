"""Laws of the engine, and one tiny run event by event."""

import dataclasses
import json
from collections import deque

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sim_worlds import TOPK, policies, policy, world, worlds

from geosim.cost import Calibration, build
from geosim.cost.sending import send_time
from geosim.cost.transport import make_path
from geosim.errors import UsageError
from geosim.policy import load_policy
from geosim.scenario import load_scenario
from geosim.sim import Tracer, simulate
from geosim.sim.engine import Engine

EXACT = Calibration(
    accumulate_s=0.0,
    optimizer_s=0.0,
    outer_s=0.5,
    flag_s=0.0,
    site_collective_s=0.0,
    encode_s_per_element=0.0,
    decode_s_per_value=0.0,
    decode_s_per_element=0.0,
    gather_s_per_byte=0.0,
)


def test_the_exact_events_of_a_tiny_run():
    """Two sites, blocking, two steps of 1 s; an exchange of 2 s: 0.5 s notice, 1 s sending, 0.5 s flight."""
    scenario = world(
        step=1.0, rtt=1.0, rate=1e6, initial_window_bytes=1e9, window_bytes=1e9, congestion_control="bbr"
    )
    problem = build(scenario, policy(interval=2, update="local"), EXACT)
    size = problem.fragments[0].payload_bytes * problem.links[0].wire_per_payload
    path = dataclasses.replace(
        problem.links[0].path,
        rate_bytes_per_s=size,
        held_bytes=1e12,
        stream_shares=(1.0,) * 4,
        shares_by_length=(),
    )
    problem = dataclasses.replace(
        problem, links=tuple(dataclasses.replace(link, path=path) for link in problem.links)
    )
    tracer = Tracer()
    Engine(problem, 0, 1, tracer).run()
    log = sorted(
        (round(start, 9), round(end, 9), row, name)
        for row, track, name, start, end in tracer.spans
        if end <= 8.1 and track != "windows"
    )
    first = "fragment 0 round 0"
    second = "fragment 0 round 1"
    assert log == sorted(
        [
            (0.0, 2.0, "s0", "compute 2 steps"),
            (0.0, 2.0, "s1", "compute 2 steps"),
            (2.0, 3.5, "s0", f"transfer {first}"),
            (2.0, 3.5, "s0", f"wait {first}"),
            (2.0, 3.5, "s1", f"transfer {first}"),
            (2.0, 3.5, "s1", f"wait {first}"),
            (2.0, 3.0, "link s0->s1", first),
            (2.0, 3.0, "link s1->s0", first),
            (3.5, 4.0, "s0", f"apply {first}"),
            (3.5, 4.0, "s1", f"apply {first}"),
            (4.0, 6.0, "s0", "compute 2 steps"),
            (4.0, 6.0, "s1", "compute 2 steps"),
            (6.0, 7.5, "s0", f"transfer {second}"),
            (6.0, 7.5, "s0", f"wait {second}"),
            (6.0, 7.5, "s1", f"transfer {second}"),
            (6.0, 7.5, "s1", f"wait {second}"),
            (6.0, 7.0, "link s0->s1", second),
            (6.0, 7.0, "link s1->s0", second),
            (7.5, 8.0, "s0", f"apply {second}"),
            (7.5, 8.0, "s1", f"apply {second}"),
        ]
    )


@settings(max_examples=25)
@given(worlds(), policies())
def test_bytes_on_every_link_are_those_of_the_layout(scenario, rule):
    result = simulate(scenario, rule, windows=6)
    problem = build(scenario, rule)
    sent = sum(f.payload_bytes for f in problem.fragments) * problem.links[0].wire_per_payload / rule.interval
    for use in result.links.values():
        assert use.bytes_per_step == pytest.approx(sent, rel=1e-6)
        assert use.utilization <= 1 + 1e-9


@settings(max_examples=25)
@given(worlds(), policies(), st.floats(1.1, 8))
def test_more_bandwidth_is_never_slower(scenario, rule, factor):
    links = tuple(
        w.model_copy(update={"bandwidth_bytes_per_s": w.bandwidth_bytes_per_s * factor}) for w in scenario.wan
    )
    faster = simulate(scenario.model_copy(update={"wan": links}), rule, windows=6)
    assert faster.step_time_s.mean <= simulate(scenario, rule, windows=6).step_time_s.mean * (1 + 1e-9)


@settings(max_examples=25)
@given(worlds(), st.sampled_from([{}, TOPK]), st.integers(1, 20))
def test_a_shorter_round_trip_is_never_slower(scenario, codec, interval):
    """Restart after idle is left out: a shorter timeout may halve a window once more, as it does in Linux."""
    rule = policy(interval=interval, codec=codec, update="local")
    steps = []
    for factor in (0.5, 1.0):
        links = tuple(
            w.model_copy(update={"rtt_s": w.rtt_s * factor, "congestion_control": "bbr"})
            for w in scenario.wan
        )
        steps.append(simulate(scenario.model_copy(update={"wan": links}), rule, windows=6).step_time_s.mean)
    assert steps[0] <= steps[1] * (1 + 1e-9)


def test_a_long_interval_reaches_the_co_located_throughput():
    scenario = world()
    relative = [
        simulate(scenario, policy(update="local", interval=k), windows=5).relative_to_colocated
        for k in (1, 10, 100, 10_000, 1_000_000)
    ]
    assert relative == sorted(relative)
    assert relative[-1] == pytest.approx(1, abs=0.01)
    assert relative[0] < 0.5


def test_alike_sites_stay_in_step():
    problem = build(world(3), policy(update="local", interval=4, codec=TOPK))
    engine = Engine(problem, 0, 20)
    engine.run()
    assert np.ptp(engine.ends, axis=0).max() < 1e-9


@pytest.mark.parametrize("topology", ["direct", "ring", "hub", "tree"])
def test_every_topology_sends_what_its_routes_say(topology):
    scenario, rule = world(5), policy(topology=topology)
    problem = build(scenario, rule)
    # Where a run ends payloads are still leaving: as many as a whole number of its periods before, once it
    # has settled into them, for which a tree takes a hundred windows.
    short, long = (simulate(scenario, rule, windows=windows) for windows in (120, 240))
    for link in problem.links:
        payloads = sum((t.source, t.target) == (link.source, link.target) for t in problem.routes)
        wire = payloads * problem.fragments[0].payload_bytes * link.wire_per_payload
        sent = 2 * long.links[link.name].bytes_per_step - short.links[link.name].bytes_per_step
        assert sent == pytest.approx(wire, rel=1e-6)


def test_blocking_exposes_exactly_the_exchange():
    result = simulate(world(), policy(interval=5, update="local", codec=TOPK), windows=10)
    assert result.exposed_wan_s_per_step * 5 == pytest.approx(result.exchange_time_s.mean, rel=1e-9)


def test_a_delayed_exchange_shorter_than_the_window_hides_fully():
    scenario = world(step=0.1)
    rule = policy(interval=16, codec=TOPK, overlap={"kind": "delayed", "windows": 1})
    result = simulate(scenario, rule, windows=10)
    assert result.exchange_time_s.mean < 1.6
    assert result.exposed_wan_s_per_step == 0


def test_a_delayed_exchange_longer_than_the_window_sets_the_pace():
    rule = policy(interval=1, overlap={"kind": "delayed", "windows": 1})
    result = simulate(world(step=0.01), rule, windows=10)
    assert result.step_time_s.mean == pytest.approx(result.exchange_time_s.mean, rel=1e-6)


def test_the_parts_add_up_to_the_step():
    for rule in (
        policy(interval=3, codec=TOPK),
        policy(topology="flat-ring"),
        policy(update="local", interval=2),
    ):
        result = simulate(world(jitter=0.1), rule, windows=20)
        assert sum(result.parts.values()) == pytest.approx(result.step_time_s.mean, rel=0.02)


def test_the_same_seed_gives_the_same_result_and_another_seed_another():
    scenario = world(jitter=0.2, jitter_s=0.002)
    rule = policy(interval=4, codec=TOPK)
    once, again = (simulate(scenario, rule, windows=30, seeds=2) for _ in range(2))
    assert once == again
    assert simulate(scenario, rule, windows=30, seeds=1) != once


def test_jitter_makes_sites_wait_for_each_other():
    rule = policy(interval=4, codec=TOPK, update="local")
    calm, jittery = (simulate(world(jitter=j), rule, windows=100) for j in (0.0, 0.2))
    assert jittery.step_time_s.mean > calm.step_time_s.mean
    assert jittery.step_time_s.p99 > jittery.step_time_s.p50
    assert calm.step_time_s.p99 == pytest.approx(calm.step_time_s.p50)


def test_the_mean_of_many_steps_does_not_depend_on_how_they_are_drawn():
    from geosim.sim.jitter import SiteJitter

    one, many = SiteJitter(0, 0, 1.0, 0.3), SiteJitter(1, 0, 1.0, 0.3)
    singles = np.array([sum(one.draw(1) for _ in range(16)) for _ in range(4000)])
    sums = np.array([many.draw(16) for _ in range(4000)])
    assert sums.mean() == pytest.approx(singles.mean(), rel=0.01)
    assert sums.std() == pytest.approx(singles.std(), rel=0.05)


def test_a_slower_site_holds_up_the_other():
    scenario = world()
    fast = scenario.sites[0].accelerator.model_copy(update={"fp32_flops": 1e12})
    uneven = scenario.model_copy(
        update={
            "sites": (scenario.sites[0].model_copy(update={"accelerator": fast}), scenario.sites[1]),
            "workload": scenario.workload.model_copy(update={"step_time_s": None}),
        }
    )
    result = simulate(uneven, policy(interval=2, update="local", codec=TOPK), windows=5)
    slow = build(uneven, policy()).sites[1].step_s
    assert result.step_time_s.mean > slow
    assert result.compute_utilization < 0.6


def test_a_trace_slows_the_exchange_from_its_point_on():
    points = [{"at": "0 s", "bandwidth": "100 Mbit/s"}, {"at": "12 s", "bandwidth": "1 Mbit/s"}]
    rule = policy(interval=1, update="local")
    steady = simulate(world(), rule, windows=60)
    varied = simulate(world(trace=tuple(points)), rule, windows=60)
    assert varied.step_time_s.p50 == pytest.approx(steady.step_time_s.p50, rel=0.5)
    assert varied.step_time_s.p99 > 5 * steady.step_time_s.p99
    flat = policy(topology="flat-ring")
    assert simulate(world(trace=tuple(points)), flat, windows=60).step_time_s.p99 > 5


def test_an_uplink_that_two_links_share_is_the_bottleneck():
    scenario = world(3, rtt=0.001)
    tight = tuple(s.model_copy(update={"uplink_bytes_per_s": 1e6}) for s in scenario.sites)
    problem = build(scenario, policy())
    wire = 2 * problem.fragments[0].payload_bytes * problem.links[0].wire_per_payload
    result = simulate(scenario.model_copy(update={"sites": tight}), policy(), windows=4)
    assert result.exchange_time_s.mean == pytest.approx(wire / 1e6, rel=0.01)


def test_adapt_grows_the_interval_until_the_exchange_hides():
    rule = policy(
        interval=1, update="local", overlap={"kind": "delayed"}, adapt={"kind": "hide-exchange", "most": 64}
    )
    result = simulate(world(step=0.01), rule, windows=30)
    assert result.exposed_wan_s_per_step < 0.1 * result.step_time_s.mean


def test_one_exchange_is_sending_and_flight():
    scenario = world()
    rule = policy(interval=20, update="local", codec=TOPK)
    problem = build(scenario, rule, EXACT)
    fragment, link = problem.fragments[0], problem.links[0]
    path = make_path(scenario.wan[0], "s0", two_way=True)
    flows = fragment.flows
    sending = send_time(
        fragment.payload_bytes * link.wire_per_payload,
        path.rate_bytes_per_s,
        path.rtt_s,
        path.initial_window(flows),
        path.window_limit(flows),
        path.stream_rate(flows),
    )
    result = simulate(scenario, rule, windows=5, calibration=EXACT)
    assert result.exchange_time_s.mean == pytest.approx(0.02 + float(sending), rel=1e-9)


def test_a_missing_link_is_named():
    scenario = world(3)
    cut = scenario.model_copy(update={"wan": scenario.wan[:1] + scenario.wan[2:]})
    with pytest.raises(UsageError, match="no link joins s0 and s2"):
        simulate(cut, policy())
    simulate(cut, policy(topology={"kind": "hub", "site": "s1"}), windows=2)
    with pytest.raises(UsageError, match="no site is called 'nowhere'"):
        simulate(scenario, policy(topology={"kind": "hub", "site": "nowhere"}))


def test_bad_arguments_are_refused_in_one_line():
    with pytest.raises(UsageError, match="1 or more"):
        simulate(world(), policy(), windows=0)
    with pytest.raises(UsageError, match="shards: 8 is more than the 2 ranks"):
        simulate(world(), policy(shards=8))


def test_one_site_needs_no_wan():
    result = simulate(world(1), policy(interval=4), windows=3)
    assert result.exposed_wan_s_per_step < 1e-3  # decoding its own payload
    assert result.links == {}
    assert simulate(world(1), policy(topology="flat-ring"), windows=3).wan_bytes_vs_ddp == 0


def test_the_json_keys_are_the_agreed_ones():
    data = json.loads(json.dumps(simulate("laptop", "hierarchical-efsgd", windows=2).to_dict()))
    agreed = (
        "scenario policy step_time_s compute_utilization exchange_time_s exposed_wan_s_per_step tokens_per_s"
    )
    agreed += " relative_to_colocated links wan_bytes_vs_ddp"
    assert set(agreed.split()) <= set(data)
    assert set(data["step_time_s"]) == {"mean", "p50", "p95", "p99"}
    assert set(data["exchange_time_s"]) == {"mean", "p95"}
    assert set(data["links"]) == {"east->west", "west->east"}
    assert set(data["links"]["east->west"]) == {"bytes_per_step", "utilization"}


def test_plain_ddp_sends_what_it_is_measured_against():
    assert simulate("laptop", "ddp", windows=2).wan_bytes_vs_ddp == pytest.approx(1)
    assert simulate("laptop", "ddp-fp16", windows=2).wan_bytes_vs_ddp == pytest.approx(0.5)


def test_field_report_a_is_bound_by_the_wan_under_ddp_and_not_under_its_own_policy():
    scenario = load_scenario("beijing-ningxia")
    ddp = simulate(scenario, "ddp", windows=5)
    own = simulate(scenario, "hierarchical-efsgd", windows=20, seeds=1)
    assert ddp.compute_utilization < 0.05
    assert ddp.exposed_wan_s_per_step > 0.5
    assert own.relative_to_colocated > 0.88
    assert own.wan_bytes_vs_ddp < 0.02


def events_of(engine: Engine) -> int:
    """Events of a whole run."""
    count = 0
    step = engine.env.step

    def counted() -> None:
        nonlocal count
        count += 1
        step()

    engine.env.step = counted  # type: ignore[method-assign]
    engine.run()
    return count


def test_a_window_takes_few_events_however_long_it_is_and_however_many_accelerators_compute():
    """Two sites, one exchange a window; what a whole process takes in seconds is in `make bench`."""
    rule = load_policy("hierarchical-efsgd", {"streams": 4})

    def a_window(interval: int, ranks: int) -> float:
        fewer, more = (
            events_of(Engine(build(world(ranks=ranks), rule.model_copy(update={"interval": interval})), 0, n))
            for n in (10, 110)
        )
        return (more - fewer) / 100

    assert a_window(16, 2) == a_window(16, 512) == a_window(1600, 2) <= 40


def test_what_a_run_keeps_between_windows_does_not_grow():
    def kept(windows: int) -> int:
        engine = Engine(build(world(), rule), 0, windows)
        engine.run()
        parts = [v for name, value in vars(engine).items() if name != "exchange_s" for v in (
            value if isinstance(value, list) else [value]
        )]  # fmt: skip
        return sum(len(part) for part in parts if isinstance(part, dict | deque))

    for adapt in ("fixed", {"kind": "hide-exchange", "most": 4}):
        rule = policy(update="local", interval=2, overlap="delayed", codec=TOPK, adapt=adapt)
        assert abs(kept(200) - kept(20)) <= 4
