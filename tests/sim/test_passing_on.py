"""Payloads that sites pass on slice by slice: exact times by hand, and laws over random networks."""

import dataclasses

import pytest
import simpy
from hypothesis import given, settings
from hypothesis import strategies as st
from sim_worlds import TOPK, links_of, plain, policy, through, world

from experiments.random_pairs import draw
from geosim.cost import build
from geosim.policy import Ring
from geosim.sim import Tracer
from geosim.sim.exchange import Exchange, Wan
from geosim.sim.simulate import run

CHAIN = policy(topology={"kind": "tree", "links": [["s0", "s1"], ["s1", "s2"]]})


def exchange(problem, late=()):
    """One exchange: when each site is through, and when what leaves each link."""
    tracer = Tracer()
    wan = Wan(simpy.Environment(), problem, 0, tracer)
    ends = through(wan, [Exchange(wan, 0, "a")], late)
    return [ends["a", m] for m in range(len(problem.sites))], [row[:3] for row in links_of(tracer)]


def test_in_a_ring_payloads_follow_each_other_without_a_gap():
    """A payload takes 1 s, its first quarter is there after 0.35 s: long before its own has left."""
    ends, left = exchange(plain(policy(topology="ring"), (1.0,) * 3, sites=3))
    assert ends == [2.2, 2.2, 2.2]
    assert left == [(at, at + 1, link) for at in (0.1, 1.1) for link in ("s0->s1", "s1->s2", "s2->s0")]


def test_the_last_slice_leaves_once_it_has_come():
    """The 4 s long payload of s0 is at s1 at 4.2, its last quarter 0.25 s and a flight of 0.1 later at s2."""
    ends, left = exchange(plain(CHAIN, (4.0, 1.0, 1.0), sites=3))
    assert ends == [2.2, 4.2, 4.55]
    assert (1.2, 2.2, "s1->s2") in left


def test_a_payload_that_is_one_slice_is_passed_on_whole():
    ends, left = exchange(plain(CHAIN, (4.0, 1.0, 1.0), sites=3, slice_share=1.0))
    assert ends == [2.3, 4.2, 5.3]
    assert (4.2, 5.2, "s1->s2") in left


def test_a_site_passes_nothing_on_before_it_has_entered():
    """Of all that waits there its own goes first, and nothing is left to wait for."""
    ends, left = exchange(plain(CHAIN, (1.0, 1.0, 1.0), sites=3), late={1: 9.0})
    assert ends == [11.1, 9.0, 11.1]  # the kernel of s1 takes all at once
    assert [row for row in left if row[2] == "s1->s2"] == [(9.0, 10.0, "s1->s2"), (10.0, 11.0, "s1->s2")]


def test_a_link_carries_what_is_next_while_a_payload_comes_slowly():
    """A hub has the first quarters of the payloads of s1 and s2, 8 and 9 s long, after 2.2 and 2.45 s."""
    ends, left = exchange(plain(policy(topology="hub"), (1.0, 8.0, 9.0, 1.0), sites=4))
    assert [row[:2] for row in left if row[2] == "s0->s3"] == [(0.1, 1.1), (2.2, 3.2), (3.2, 4.2)]
    assert ends[3] == 9.55  # the last quarter of s2's came at 9.2


def whole(problem, share):
    """The problem with payloads in slices of `share`."""
    fragments = tuple(dataclasses.replace(f, slice_share=share) for f in problem.fragments)
    return dataclasses.replace(problem, fragments=fragments)


@settings(max_examples=20)
@given(st.integers(0, 10_000), st.floats(0.001, 1), st.floats(0.001, 1), st.booleans())
def test_smaller_slices_are_never_slower(seed, a, b, ramp):
    scenario, rule = draw(seed, ramp)
    still = [w.model_copy(update={"trace": (), "jitter_s": 0.0}) for w in scenario.wan]
    work = scenario.workload.model_copy(update={"step_jitter": 0.0})
    scenario = scenario.model_copy(update={"wan": tuple(still), "workload": work})
    rule = rule.model_copy(update={"topology": Ring(), "adapt": type(rule)().adapt})
    problem = build(scenario, rule)
    fine, coarse = (run(whole(problem, share), 0, 6) for share in sorted((a, b)))
    assert fine.elapsed_s <= coarse.elapsed_s * (1 + 1e-9)


def test_slices_are_those_that_the_runtime_cuts():
    """64 KiB a stream, since a thirty-second of these payloads is less, unless the policy says."""
    size = build(world(3), policy()).fragments[0].payload_bytes / 2  # two shards
    slices = {"chunk": (1e5, 1), "streams": (65536, 4), "plain": (65536, 1)}
    for name, fields in (("plain", {}), ("streams", {"streams": 4}), ("chunk", {"chunk": "100 kB"})):
        one, streams = slices[name]
        share = build(world(3), policy(topology="ring", **fields)).fragments[0].slice_share
        assert share == pytest.approx(streams * one / size)
    assert build(world(3), policy(topology="ring", codec=TOPK)).fragments[0].slice_share == 1.0
