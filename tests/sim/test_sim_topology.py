"""Payloads that sites pass on: exact times by hand, trunks, and what waiting for slower sites costs."""

from itertools import pairwise

import pytest
import simpy
from sim_worlds import TOPK, plain, policy, through, world

from geosim.cost import Calibration, build
from geosim.errors import UsageError
from geosim.policy import load_policy
from geosim.scenario import Scenario, Trunk
from geosim.sim import Tracer, simulate
from geosim.sim.exchange import Exchange, Wan
from geosim.spec import from_dict

# Windows that hold everything and a queue that drops nothing: a payload takes its bytes over the rate, and
# nothing beside the wire.
PLAIN = {
    "initial_window_bytes": 1e12, "window_bytes": 1e12, "congestion_control": "bbr", "queue_bytes": 1e12,
}  # fmt: skip
FREE = Calibration(
    site_collective_s=0, accumulate_s=0, optimizer_s=0, flag_s=0, encode_s_per_element=0,
    decode_s_per_value=0, decode_s_per_element=0, gather_s_per_byte=0,
)  # fmt: skip


def sending(scenario, rule):
    """Seconds that one payload takes its link."""
    problem = build(scenario, rule, FREE)
    link = problem.links[0]
    return problem.fragments[0].payload_bytes * link.wire_per_payload / link.path.rate_bytes_per_s


@pytest.mark.parametrize(
    ("topology", "sites", "payloads"),
    [
        ("direct", 4, 1),
        ("ring", 4, 3),
        ("hub", 4, 3),
        ({"kind": "tree", "links": [["s0", "s1"], ["s1", "s2"], ["s2", "s3"]]}, 4, 3),
    ],
)
def test_an_exchange_of_sites_alike_takes_its_payload_times_and_one_delay(topology, sites, payloads):
    """A notice crosses, then payloads follow each other without a gap however many hops they have."""
    problem = plain(policy(topology=topology), (1.0,) * sites, sites=sites, rtt=0.2)
    wan = Wan(simpy.Environment(), problem, 0, None)
    ends = through(wan, [Exchange(wan, 0, "a")])
    assert max(ends.values()) == pytest.approx(0.1 + payloads + 0.1)


def test_payloads_on_one_link_go_one_after_another():
    scenario, rule, tracer = world(4, rtt=0.02, **PLAIN), policy(topology="hub", interval=50), Tracer()
    simulate(scenario, rule, windows=1, calibration=FREE, trace=tracer)
    spans = sorted((s, e) for row, track, _, s, e in tracer.spans if (row, track) == ("link s0->s1", "flows"))
    assert len(spans) >= 3
    for (_, end), (start, _) in pairwise(spans):
        assert start >= end - 1e-9


def test_links_through_a_trunk_share_it():
    scenario, rule = world(4, rtt=0.001, **PLAIN), policy()
    across = (("s0", "s2"), ("s0", "s3"), ("s1", "s2"), ("s1", "s3"))
    size = sending(scenario, rule)
    wide, narrow = (
        scenario.model_copy(
            update={"trunks": (Trunk(name="sea", links=across, bandwidth_bytes_per_s=factor * 12.5e6),)}
        )
        for factor in (4, 1)
    )
    alone, free, shared = (
        simulate(s, rule, windows=3, calibration=FREE).exchange_time_s.mean for s in (scenario, wide, narrow)
    )
    assert free == pytest.approx(alone, rel=1e-9)
    assert shared == pytest.approx(4 * size, rel=0.01)
    chain = policy(topology={"kind": "tree", "links": [["s0", "s1"], ["s1", "s2"], ["s2", "s3"]]})
    # Two payloads each way over the trunk and not four; the third hop of the last one follows.
    assert simulate(narrow, chain, windows=3, calibration=FREE).exchange_time_s.mean < 0.8 * shared


def test_directions_of_a_trunk_may_differ():
    across = (("s0", "s1"), ("s2", "s1"))
    trunk = Trunk(name="sea", links=across, bandwidth_bytes_per_s=1e9, back_bandwidth_bytes_per_s=5e6)
    scenario = world(3, rtt=0.001, **PLAIN).model_copy(update={"trunks": (trunk,)})
    problem = build(scenario, policy(), FREE)
    assert problem.trunks == (1e9, 5e6)
    assert {link.name: link.trunks for link in problem.links} == {
        "s0->s1": (0,), "s2->s1": (0,), "s1->s0": (1,), "s1->s2": (1,), "s0->s2": (), "s2->s0": (),
    }  # fmt: skip
    tracer = Tracer()
    simulate(scenario, policy(), windows=3, calibration=FREE, trace=tracer)
    took = [e - s for row, track, _, s, e in tracer.spans if (row, track) == ("link s1->s0", "flows")]
    assert took == pytest.approx([2 * sending(scenario, policy()) * 12.5e6 / 5e6] * len(took), rel=0.01)


def test_a_flat_ring_is_held_up_by_what_its_edges_share():
    scenario, ddp = world(3), load_policy("ddp")
    trunk = Trunk(name="sea", links=(("s0", "s1"), ("s1", "s2")), bandwidth_bytes_per_s=12.5e6)
    port = scenario.sites[0].model_copy(update={"uplink_bytes_per_s": 6.25e6})
    half = world(3, rate=6.25e6)
    alone, shared, tight, slow = (
        simulate(s, ddp, windows=3).step_time_s.mean
        for s in (
            scenario,
            scenario.model_copy(update={"trunks": (trunk,)}),
            scenario.model_copy(update={"sites": (port, *scenario.sites[1:])}),
            half,
        )
    )
    assert alone < shared
    assert shared == pytest.approx(slow, rel=0.05)
    assert tight == pytest.approx(slow, rel=0.05)


@pytest.mark.parametrize(
    ("links", "words"),
    [((("s0", "s9"),), "no WAN link joins s0 and s9"), ((("s0", "s1"), ("s1", "s0")), "there twice")],
)
def test_a_trunk_carries_links_that_exist_once(links, words):
    trunk = Trunk(name="sea", links=links, bandwidth_bytes_per_s=1e6)
    with pytest.raises(UsageError, match=words) as error:
        from_dict(Scenario, world(2).to_dict() | {"trunks": [trunk.to_dict()]}, "world")
    assert "\n" not in str(error.value)


def slower(scenario, factor, **work):
    """The last site takes `factor` times as long for the same batch."""
    step = scenario.workload.step_time_s
    last = scenario.sites[-1].model_copy(update={"step_time_s": factor * step})
    return scenario.model_copy(
        update={"sites": (*scenario.sites[:-1], last), "workload": scenario.workload.model_copy(update=work)}
    )


def test_waiting_for_a_slower_site_is_told_apart_from_the_wire():
    scenario, rule = slower(world(3, step=0.1), 1.5), policy(update="local", interval=4, codec=TOPK)
    result = simulate(scenario, rule, windows=10)
    assert result.sites["s2"].idle_s == 0
    for name in ("s0", "s1"):
        assert result.sites[name].compute_s == pytest.approx(0.1)
        assert result.sites[name].idle_s == pytest.approx(0.05, rel=1e-3)
    even = simulate(world(3, step=0.15), rule, windows=10)
    # The slow site finds the others' payloads there already, and waits for no delay.
    assert 0.15 < result.step_time_s.mean <= even.step_time_s.mean
    flat = simulate(slower(world(2, step=0.1), 1.5), load_policy("ddp"), windows=5)
    assert flat.sites["s0"].idle_s == pytest.approx(0.05, rel=1e-6)


def test_a_batch_by_speed_leaves_nobody_waiting_and_keeps_the_tokens():
    base, rule = slower(world(2, step=0.1), 3.0, batch_per_accelerator=8), policy(interval=4, codec=TOPK)
    dealt = slower(world(2, step=0.1), 3.0, batch_per_accelerator=8, batch="by-speed")
    equal, by_speed = (simulate(s, rule, windows=5) for s in (base, dealt))
    problem = build(dealt, rule)
    assert [site.step_s for site in problem.sites] == [pytest.approx(0.15), pytest.approx(0.15)]
    assert problem.tokens_per_step == build(base, rule).tokens_per_step
    assert max(site.idle_s for site in by_speed.sites.values()) < 1e-9
    assert by_speed.tokens_per_s > 1.8 * equal.tokens_per_s
