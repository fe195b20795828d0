"""Links that change in a run: laws, exact times, and what the closed form says of them."""

import dataclasses

import numpy as np
import pytest
import simpy
from hypothesis import given, settings
from hypothesis import strategies as st
from sim_worlds import TOPK, policies, policy, world, worlds

from geosim.cost import build
from geosim.scenario import Trunk
from geosim.scenario.link import WanLink
from geosim.sim import Tracer, closed_form, flat_weather, simulate
from geosim.sim.closed_form import Reason, batch_from, steady_state
from geosim.sim.engine import Engine
from geosim.sim.flat import run_flat
from geosim.sim.flow import Ramp
from geosim.sim.inject import Injected, Slow, faulty_engine, stretched
from geosim.sim.network import Network
from geosim.sim.weather import Patience, retransmits_after
from geosim.spec import from_dict

RANDOM = (
    {"kind": "gilbert-elliott", "mean_good": "3 s", "mean_bad": "1 s", "bad_share": 0.3, "bad_loss": 0.01},
    {"kind": "cross-traffic", "share": 0.6, "mean_on": "2 s", "mean_off": "5 s"},
    {"kind": "range", "low": 0.2, "holds": "2 s"},
    {"kind": "outages", "mean_between": "20 s", "mean_lasts": "1 s"},
    {"kind": "jitter", "samples": ["38 ms", "40 ms", "45 ms"]},
)
STATED = (
    {"kind": "outages", "times": [{"at": "2 s", "lasts": "3 s"}]},
    {"kind": "trace", "points": [{"at": "0 s", "rtt": "40 ms"}, {"at": "2 s", "rtt": "200 ms"}]},
    {"kind": "diurnal", "swing": 0.5},
)
FLAT = policy(topology="flat-ring")
BLOCKING = policy(update="local", interval=4)


def varied(scenario, *kinds):
    links = [from_dict(WanLink, {**link.to_dict(), "varies": list(kinds)}, "link") for link in scenario.wan]
    return scenario.model_copy(update={"wan": tuple(links)})


@pytest.mark.parametrize("rule", [BLOCKING, FLAT], ids=["blocking", "flat"])
def test_constant_cross_traffic_is_a_narrower_link_and_inside_the_closed_form(rule):
    busy = varied(world(rate=10e6), {"kind": "cross-traffic", "share": 0.4})
    narrow = world(rate=10e6 * (1 - 0.4))
    assert simulate(busy, rule, windows=8).to_dict() == simulate(narrow, rule, windows=8).to_dict()
    form = steady_state(batch_from(busy, [rule]))
    assert form.applies[0]
    assert form.step_s[0] == pytest.approx(simulate(busy, rule, windows=8).step_time_s.mean, rel=0.01)


@pytest.mark.parametrize("kind", [*RANDOM, *STATED], ids=lambda k: k["kind"])
@pytest.mark.parametrize("rule", [BLOCKING, FLAT], ids=["blocking", "flat"])
def test_the_closed_form_says_that_it_does_not_hold_and_estimates_with_averages(kind, rule):
    made = varied(world(), kind)
    form = steady_state(batch_from(made, [rule]))
    assert Reason(form.reason[0]) is (Reason.RANDOM if kind in RANDOM else Reason.TRACE)
    average = made.model_copy(
        update={
            "wan": tuple(w.average().model_copy(update={"varies": (), "jitter_s": 0.0}) for w in made.wan)
        }
    )
    if kind["kind"] != "jitter":
        assert form.step_s[0] == steady_state(batch_from(average, [rule])).step_s[0]
    assert closed_form.TEXT[Reason(form.reason[0])]


@pytest.mark.parametrize("rule", [BLOCKING, FLAT], ids=["blocking", "flat"])
def test_a_seed_gives_the_same_run_bit_for_bit_and_another_does_not(rule):
    made = varied(world(), *RANDOM)
    one = simulate(made, rule, seeds=2, windows=8).to_dict()
    assert one == simulate(made, rule, seeds=2, windows=8).to_dict()
    problem = build(made, rule)
    runs = [
        flat_weather.run(problem, seed, 8).ends_s if rule is FLAT else Engine(problem, seed, 8).run().step_s
        for seed in (0, 1)
    ]
    assert not np.array_equal(*runs)


@settings(max_examples=20)
@given(worlds(congestion_control="bbr"), policies(), st.sampled_from([*RANDOM[:4], STATED[0], STATED[2]]))
def test_worse_weather_is_never_faster_and_moves_the_same_bytes(scenario, rule, kind):
    calm = simulate(scenario, rule, seeds=1, windows=5)
    stormy = simulate(varied(scenario, kind), rule, seeds=1, windows=5)
    assert stormy.step_time_s.mean >= calm.step_time_s.mean * (1 - 1e-9)
    # Loss makes bytes go twice; of what is hidden, some is on the way when counting begins or ends.
    if kind["kind"] == "gilbert-elliott" or rule.overlap.kind != "blocking":
        return
    for name, use in stormy.links.items():
        assert use.bytes_per_step == pytest.approx(calm.links[name].bytes_per_step, rel=1e-6)


def test_a_link_that_is_down_stops_a_transfer_for_exactly_that_long():
    env = simpy.Environment()
    network = Network(env, [10.0])
    done = network.send((0,), 100.0, Ramp())

    def outage():
        yield env.timeout(4)
        network.set_capacity(0, 0.0)
        yield env.timeout(3)
        network.set_capacity(0, 10.0)

    env.process(outage())
    env.run(until=done)
    assert env.now == pytest.approx(13)
    assert network.carried == [pytest.approx(100)]


def test_a_transfer_that_begins_anew_carries_its_first_part_in_vain():
    env = simpy.Environment()
    network = Network(env, [10.0])
    done = network.send((0,), 100.0, Ramp())
    env.process(_later(env, 4, lambda: network.restart(0)))
    env.run(until=done)
    assert env.now == pytest.approx(14)
    assert network.carried == [pytest.approx(140)]


def _later(env, at, act):
    yield env.timeout(at)
    act()


@pytest.mark.parametrize(
    ("outage", "over"),
    [(0.0, 0.0), (0.05, 0.05), (0.2, 0.3), (0.31, 0.9), (0.89, 0.9), (2.2, 4.5), (300, 393.3)],
)
def test_tcp_goes_on_at_its_first_retransmission_after_an_outage(outage, over):
    """A timeout of 0.3 s: tries at 0.3, 0.9, 2.1, 4.5, 9.3, 18.9, 38.1, 76.5, 153.3, 273.3 (120 s), ..."""
    assert retransmits_after(outage, 0.1, 0.3) == pytest.approx(over)


def test_an_exchange_is_tried_anew_with_growing_waits_until_it_gives_up():
    """Tries over [0, 3), [4, 7), [9, 12); then it fails."""
    patience = Patience(3.0, retries=2, backoff_s=1.0)
    assert patience.fails_after_s == 12
    assert [patience.resumes_after(s) for s in (1.0, 3.0, 3.5, 5.0, 7.5, 11.0)] == [1, 4, 4, 5, 9, 11]
    assert Patience().resumes_after(1e9) == 1e9


@pytest.mark.parametrize("retried", [False, True])
def test_an_outage_in_an_exchange_costs_what_it_lasts_and_bytes_only_where_it_is_sent_anew(retried):
    scenario = world(step=1.0, rtt=0.01, congestion_control="bbr", initial_window_bytes=1e9, window_bytes=1e9)
    problem = build(scenario, policy(interval=1, update="local"))
    calm = Engine(problem, 0, 4)
    calm.run()
    start = calm.ends.max(axis=0)[5] + 1.05  # a little after the seventh exchange has begun
    patience = Patience(1.0, 3, 0.0) if retried else Patience()
    hit = faulty_engine(problem, 0, 4, Injected(down=((0, start, start + 2.5),), patience=patience))
    hit.run()
    lost = float(hit.ends.max() - calm.ends.max())
    payload = problem.fragments[0].payload_bytes * problem.links[0].wire_per_payload
    more = np.array(hit.wan.carried()) - np.array(calm.wan.carried())
    if retried:
        # What was there by then is sent again, on both links.
        assert lost == pytest.approx(2.5, abs=0.2)
        assert 0 < more[0] < payload
        fragment = problem.fragments[0]
        rate = problem.links[0].path_of(fragment).stream_rate(fragment.flows)
        assert lost - 2.5 == pytest.approx(more[0] / rate, abs=1e-6)
    else:
        assert lost == pytest.approx(retransmits_after(2.5, 0.01, problem.links[0].path.rto_s), abs=1e-6)
        assert more == pytest.approx([0, 0], abs=1)


def test_an_idle_link_may_fail_without_a_trace_of_it():
    problem = build(world(step=1.0), policy(interval=10, update="local", codec=TOPK))
    calm, hit = Engine(problem, 0, 4), faulty_engine(problem, 0, 4, Injected(down=((0, 1.0, 8.0),)))
    calm.run()
    hit.run()
    assert np.array_equal(calm.ends, hit.ends)


def test_round_trips_of_a_trace_hold_from_the_next_transfer_on():
    points = [{"at": "0 s", "rtt": "40 ms"}, {"at": "5 s", "rtt": "400 ms"}]
    made = varied(world(step=1.0, congestion_control="bbr"), {"kind": "trace", "points": points})
    problem = build(made, policy(update="local", codec=TOPK))
    engine = Engine(problem, 0, 12)
    engine.run()
    steps = np.diff(engine.ends.max(axis=0))
    assert steps[0] < 1.3
    assert steps[-1] - steps[0] == pytest.approx(0.36 / 2, abs=1e-6)  # one way: notices are there already
    assert engine.wan.links[0].path.rtt_s == 0.4


def test_stragglers_stretch_computing_by_hand():
    slow = (Slow(2.0, 6.0, 2.0), Slow(5.0, 8.0, 4.0))
    assert stretched(1.0, 0.0, slow) == 1.0
    assert stretched(3.0, 0.0, slow) == 2 + 2  # the third second takes two
    assert stretched(4.0, 0.0, slow) == pytest.approx(2 + 3 + 2)  # 1.5 done at 5 s, 0.5 takes 2 s
    assert stretched(1.0, 9.0, slow) == 1.0


def test_a_straggler_delays_all_sites_of_a_blocking_policy():
    problem = build(world(step=1.0), policy(interval=2, update="local", codec=TOPK))
    calm, slow = Engine(problem, 0, 6), ((1, Slow(4.0, 10.0, 3.0)),)
    tracer = Tracer()
    hit = faulty_engine(problem, 0, 6, Injected(slow=slow), tracer)
    calm.run()
    hit.run()
    lost = hit.ends.max(axis=1) - calm.ends.max(axis=1)
    assert lost == pytest.approx([4, 4], abs=0.05)  # what else there is falls into the faulty time
    assert ("s1", "faults", "straggler x3", 4.0, 10.0) in tracer.spans


def test_outages_show_in_the_trace_of_a_run():
    tracer = Tracer()
    simulate(varied(world(), STATED[0]), BLOCKING, windows=8, trace=tracer)
    shown = [span for span in tracer.spans if span[1] == "faults"]
    assert {span[0] for span in shown} == {"link s0->s1", "link s1->s0"}
    assert all(name == "outage" and start == 2.0 and end >= 5.0 for _, _, name, start, end in shown)
    down = [use for name, at, use in tracer.samples if name == "s0->s1" and 2.0 < at < 5.0]
    assert not any(down)


@pytest.mark.parametrize("jitter", [0.0, 0.1])
def test_plain_data_parallelism_in_calm_weather_is_the_plain_recurrence(jitter):
    problem = build(world(3, jitter=jitter), FLAT)
    plain, walked = run_flat(problem, 5, 20), flat_weather.run_varying(problem, 5, 20)
    for one, other in zip(plain.site_parts_s, walked.site_parts_s, strict=True):
        assert one == pytest.approx(other)
    for name, value in vars(plain).items():
        if name != "site_parts_s":
            same = np.array_equal(value, getattr(walked, name))
            assert same or value == pytest.approx(getattr(walked, name)), name


def through_a_trunk(scenario, rate, **fields):
    """All links but the first through one trunk, and what else the scenario's sites share."""
    across = tuple(link.between for link in scenario.wan[1:])
    trunk = Trunk(name="sea", links=across, bandwidth_bytes_per_s=rate)
    sites = tuple(site.model_copy(update=fields) for site in scenario.sites)
    return scenario.model_copy(update={"trunks": (trunk,), "sites": sites})


@pytest.mark.parametrize("fields", [{}, {"uplink_bytes_per_s": 3e6}, {"downlink_bytes_per_s": 3e6}])
def test_a_trunk_under_steady_links_is_what_it_is_without_weather(fields):
    """A trace of one point changes nothing, in what the links share either."""
    steady = through_a_trunk(world(4), 4e6, **fields)
    point = {"kind": "trace", "points": [{"at": "0 s", "bandwidth": "12.5 MB/s"}]}
    plain = simulate(steady, FLAT, windows=6)
    assert plain.step_time_s.mean > 1.2 * simulate(world(4), FLAT, windows=6).step_time_s.mean
    assert simulate(varied(steady, point), FLAT, windows=6).to_dict() == plain.to_dict()
    calm = flat_weather.run(build(steady, FLAT), 0, 7)
    assert np.diff(calm.ends_s)[-1] == pytest.approx(plain.step_time_s.mean)


@settings(deadline=None, max_examples=20)
@given(st.sampled_from([*RANDOM[:4], *STATED]), st.floats(0.05, 1.0), st.floats(1.0, 4.0), st.integers(0, 3))
def test_a_trunk_slows_where_it_is_narrow_and_only_there(kind, share, more, seed):
    """Of the ring's ways, of 12.5 MB/s each, no more than two go the same way through it."""

    def ends(rate):
        made = varied(world(4), kind)
        scenario = made if rate is None else through_a_trunk(made, rate)
        return flat_weather.run(build(scenario, FLAT), seed, 6).ends_s

    free, wide, narrow, narrower = (ends(r) for r in (None, more * 25e6, share * 25e6, share * 20e6))
    assert np.array_equal(free, wide)
    assert (narrow >= free * (1 - 1e-9)).all()
    assert (narrower >= narrow * (1 - 1e-9)).all()


def test_an_outage_stops_the_ring_for_as_long_as_tcp_waits():
    problem = build(world(step=1.0, rtt=0.01), FLAT)
    calm = flat_weather.run(problem, 0, 6)
    start = float(calm.ends_s[3]) - 0.05  # while buckets are on the way
    hit = flat_weather.run(problem, 0, 6, Injected(down=((0, start, start + 2.0),)))
    path = problem.links[0].path
    lost = retransmits_after(2.0, path.rtt_s, path.rto_s)
    assert hit.ends_s[-1] - calm.ends_s[-1] == pytest.approx(lost, rel=1e-6)
    tried = flat_weather.run(
        problem, 0, 6, Injected(down=((0, start, start + 2.0),), patience=Patience(0.5, 9, 0.0))
    )
    assert min(tried.again_bytes) > 0
    assert tried.ends_s[-1] > calm.ends_s[-1] + 2


def test_links_of_a_trunk_and_a_fault_on_one_link_leave_the_other_alone():
    problem = build(world(3, step=1.0), policy(update="local", interval=2))
    hit = faulty_engine(problem, 0, 3, Injected(down=((2, 3.0, 4.0),)))
    hit.run()
    assert {link.number for link in problem.links} == {0, 1, 2}
    assert dataclasses.replace(problem.links[0]).varying is None
