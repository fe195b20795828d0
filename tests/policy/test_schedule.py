"""The schedule: exact event logs, and the laws that every overlap keeps over any sequence of intervals."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from geosim.errors import UsageError
from geosim.policy import (
    Blocking,
    Delayed,
    Eager,
    Group,
    Local,
    Streaming,
    SyncPolicy,
    load_policy,
    make_layout,
    preset_names,
)
from geosim.policy.schedule import (
    Event,
    Plan,
    event_tables,
    finish,
    make_plan,
    next_cycle,
    send_offset,
    start,
)
from geosim.scenario import models


def run(plan, intervals):
    """(events of the cycles, events of the end, last state)."""
    state, log = start(plan), []
    for interval in intervals:
        state, events = next_cycle(state, plan, interval)
        log += events
    return log, list(finish(state, plan)), state


def text(events):
    """`4 send 0/1` is: after step 4 fragment 0 leaves in its round 1."""
    return [f"{e.step} {e.kind} {e.fragment}/{e.round}" for e in events]


def one(overlap):
    return Plan((overlap,), (0,))


# Exact logs


def test_blocking_applies_what_it_sends():
    log, end, _ = run(one(Blocking()), [4, 4])
    assert text(log) == ["4 send 0/0", "4 apply 0/0", "8 send 0/1", "8 apply 0/1"]
    assert end == []


@pytest.mark.parametrize("kind", [Delayed, Eager])
def test_delayed_applies_the_result_of_w_windows_ago_and_the_rest_at_the_end(kind):
    log, end, _ = run(one(kind(windows=2)), [3, 3, 3, 3])
    assert text(log) == [
        "3 send 0/0",
        "6 send 0/1",
        "9 send 0/2", "9 apply 0/0",
        "12 send 0/3", "12 apply 0/1",
    ]  # fmt: skip
    assert text(end) == ["12 apply 0/2", "12 apply 0/3"]


def test_a_run_shorter_than_the_delay_applies_everything_at_the_end():
    log, end, _ = run(one(Delayed(windows=5)), [2, 2])
    assert text(log) == ["2 send 0/0", "4 send 0/1"]
    assert text(end) == ["4 apply 0/0", "4 apply 0/1"]
    assert finish(start(one(Delayed())), one(Delayed())) == ()


def test_streaming_staggers_and_applies_tau_steps_later():
    overlap = Streaming(fragments=3, steps=2)
    log, end, state = run(Plan((overlap,) * 3, (0, 1, 2)), [6, 6])
    assert text(log) == [
        "2 send 1/0",
        "4 send 2/0", "4 apply 1/0",
        "6 send 0/0", "6 apply 2/0",
        "8 send 1/1", "8 apply 0/0",
        "10 send 2/1", "10 apply 1/1",
        "12 send 0/1", "12 apply 2/1",
    ]  # fmt: skip
    assert text(end) == ["14 apply 0/1"]
    assert state.pending == tuple(end)


def test_streaming_without_delay_applies_at_once():
    overlap = Streaming(fragments=2, steps=0)
    log, end, _ = run(Plan((overlap,) * 2, (0, 1)), [4])
    assert text(log) == ["2 send 1/0", "2 apply 1/0", "4 send 0/0", "4 apply 0/0"]
    assert end == []


def test_groups_share_the_windows_end_and_keep_their_own_delay():
    plan = Plan((Blocking(), Delayed(windows=1)), (0, 1))
    log, end, _ = run(plan, [4, 4])
    assert text(log) == [
        "4 send 0/0", "4 send 1/0", "4 apply 0/0",
        "8 send 0/1", "8 send 1/1", "8 apply 0/1", "8 apply 1/0",
    ]  # fmt: skip
    assert text(end) == ["8 apply 1/1"]


def test_an_interval_that_changes_moves_what_follows_and_not_what_is_in_flight():
    overlap = Streaming(fragments=2, steps=3)
    log, end, _ = run(Plan((overlap,) * 2, (0, 1)), [8, 4, 10])
    assert text(log) == [
        "4 send 1/0", "7 apply 1/0", "8 send 0/0",
        "10 send 1/1", "11 apply 0/0", "12 send 0/1",
        "13 apply 1/1", "15 apply 0/1", "17 send 1/2", "20 apply 1/2", "22 send 0/2",
    ]  # fmt: skip
    assert text(end) == ["25 apply 0/2"]


def test_fragments_that_leave_together_leave_in_the_plans_order():
    log, _, _ = run(Plan((Blocking(),) * 3, (2, 0, 1)), [1])
    assert [e.fragment for e in log if e.kind == "send"] == [2, 0, 1]
    assert [e.fragment for e in log if e.kind == "apply"] == [2, 0, 1]


def test_the_plan_sends_the_largest_fragment_first_or_keeps_the_models_order():
    table = models()["byte-gpt-tiny"].param_table()
    groups = (Group(share=0.05), Group(share=0.5))
    largest = make_plan(make_layout(table, SyncPolicy(groups=groups), 2))
    layout = make_layout(table, SyncPolicy(groups=groups, order="model"), 2)
    sizes = [layout.fragment_numel(f) for f in range(len(layout.fragments))]
    assert make_plan(layout).order == tuple(range(len(sizes)))
    assert [sizes[f] for f in largest.order] == sorted(sizes, reverse=True)
    assert largest.order != make_plan(layout).order


# Laws


@settings(deadline=None)
@given(st.integers(1, 500), st.integers(1, 40))
def test_streaming_offsets_are_floor_p_k_over_p(interval, count):
    overlap = Streaming(fragments=count, steps=0)
    offsets = [send_offset(overlap, p, interval) for p in range(count)]
    assert all(1 <= offset <= interval for offset in offsets)
    assert [offset % interval for offset in offsets] == [p * interval // count for p in range(count)]
    if count <= interval:
        assert len(set(offsets)) == count


@st.composite
def runs(draw):
    """A plan and a sequence of intervals that it allows."""
    if draw(st.booleans()):
        count = draw(st.integers(1, 6))
        tau = draw(st.integers(0, 6))
        overlaps = (Streaming(fragments=count, steps=tau),) * count
        least = tau + 1
    else:
        windows = st.integers(1, 5)
        kinds = st.just(Blocking()) | st.builds(Delayed, windows=windows) | st.builds(Eager, windows=windows)
        overlaps = tuple(draw(st.lists(kinds, min_size=1, max_size=4)))
        least = 1
    order = tuple(draw(st.permutations(range(len(overlaps)))))
    return Plan(overlaps, order), draw(st.lists(st.integers(least, 30), max_size=12))


@settings(deadline=None)
@given(runs())
def test_every_round_that_is_sent_is_applied_exactly_once_and_not_before(made):
    plan, intervals = made
    log, end, state = run(plan, intervals)
    events = log + end
    sent = {(e.fragment, e.round): e for e in events if e.kind == "send"}
    applied = Counter((e.fragment, e.round) for e in events if e.kind == "apply")
    assert applied == Counter(sent.keys())
    assert len(sent) == len(plan.overlaps) * len(intervals)
    place = {id(e): i for i, e in enumerate(events)}
    for e in events:
        if e.kind == "apply":
            origin = sent[e.fragment, e.round]
            assert place[id(e)] > place[id(origin)]
            assert e.step >= origin.step
    assert state.step == sum(intervals)
    assert state.cycle == len(intervals)


@settings(deadline=None)
@given(runs())
def test_events_come_in_the_order_of_steps_and_stay_in_their_cycle(made):
    plan, intervals = made
    state = start(plan)
    for interval in intervals:
        before = state
        state, events = next_cycle(state, plan, interval)
        assert all(before.step < e.step <= before.step + interval for e in events)
        assert [e.step for e in events] == sorted(e.step for e in events)
        assert Counter(e.fragment for e in events if e.kind == "send") == Counter(plan.order)
        assert all(e.step > state.step for e in state.pending)


@settings(deadline=None)
@given(runs())
def test_rounds_of_a_fragment_are_applied_in_the_order_in_which_they_left(made):
    plan, intervals = made
    log, end, _ = run(plan, intervals)
    for f in range(len(plan.overlaps)):
        for kind in ("send", "apply"):
            rounds = [e.round for e in log + end if e.kind == kind and e.fragment == f]
            assert rounds == list(range(len(intervals)))


@settings(deadline=None)
@given(runs())
def test_staleness_is_what_the_overlap_says(made):
    plan, intervals = made
    log, _, _ = run(plan, intervals)
    ends = [sum(intervals[: i + 1]) for i in range(len(intervals))]
    sent = {(e.fragment, e.round): e.step for e in log if e.kind == "send"}
    for e in log:
        if e.kind == "apply":
            overlap = plan.overlaps[e.fragment]
            if isinstance(overlap, Streaming):
                assert e.step - sent[e.fragment, e.round] == overlap.steps
            else:
                late = 0 if isinstance(overlap, Blocking) else overlap.windows
                assert e.step == ends[e.round + late]


@settings(deadline=None)
@given(runs(), st.integers(0, 12))
def test_the_fold_can_be_taken_up_again_anywhere(made, cut):
    plan, intervals = made
    log, end, _ = run(plan, intervals)
    first, _, state = run(plan, intervals[:cut])
    rest = []
    for interval in intervals[cut:]:
        state, events = next_cycle(state, plan, interval)
        rest += events
    assert first + rest == log
    assert list(finish(state, plan)) == end


@settings(deadline=None)
@given(st.lists(st.integers(1, 30), max_size=8))
def test_blocking_is_a_delay_of_no_windows(intervals):
    blocking, _, _ = run(one(Blocking()), intervals)
    # What would be a delay of 0: Delayed(1) moved back by one round at each boundary.
    delayed, end, _ = run(one(Delayed(windows=1)), intervals)
    sends = [e for e in delayed if e.kind == "send"]
    assert [e for e in blocking if e.kind == "send"] == sends
    applies = [e for e in delayed if e.kind == "apply"] + end
    assert [e.round for e in blocking if e.kind == "apply"] == [e.round for e in applies]
    assert [e.step for e in blocking if e.kind == "apply"] == [e.step for e in sends]


@settings(deadline=None)
@given(runs(), st.integers(7, 30))
def test_static_tables_are_the_steady_cycle_of_the_fold(made, interval):
    plan, _ = made
    send, age = event_tables(plan, interval)
    assert send.shape == age.shape == (interval, len(plan.overlaps))
    assert send.dtype == age.dtype == np.int32
    cycles = 12
    log, _, _ = run(plan, [interval] * cycles)
    newest = dict.fromkeys(range(len(plan.overlaps)), -1)
    seen_send, seen_age = np.zeros_like(send), np.full_like(age, -1)
    for e in log:
        k, cycle = (e.step - 1) % interval, (e.step - 1) // interval
        if e.kind == "send":
            newest[e.fragment] = e.round
        if cycle == cycles - 1:
            if e.kind == "send":
                seen_send[k, e.fragment] = 1
            else:
                seen_age[k, e.fragment] = newest[e.fragment] - e.round
    np.testing.assert_array_equal(send, seen_send)
    np.testing.assert_array_equal(age, seen_age)


def test_static_tables_by_hand():
    plan = Plan((Blocking(), Delayed(windows=2)), (0, 1))
    send, age = event_tables(plan, 3)
    assert send.tolist() == [[0, 0], [0, 0], [1, 1]]
    assert age.tolist() == [[-1, -1], [-1, -1], [0, 2]]
    streaming = Streaming(fragments=2, steps=3)
    send, age = event_tables(Plan((streaming,) * 2, (0, 1)), 4)
    assert send.tolist() == [[0, 0], [0, 1], [0, 0], [1, 0]]
    assert age.tolist() == [[-1, 0], [-1, -1], [0, -1], [-1, -1]]


def test_a_delay_that_does_not_fit_into_an_interval_is_refused():
    plan = one(Streaming(fragments=1, steps=5))
    with pytest.raises(UsageError, match=r"overlap\.steps: 5 must be below the interval \(5\)"):
        next_cycle(start(plan), plan, 5)


@pytest.mark.parametrize("name", preset_names())
def test_every_preset_has_a_schedule(name):
    policy = load_policy(name)
    layout = make_layout(models()["byte-gpt-3m"].param_table(), policy, 2)
    plan = make_plan(layout)
    log, end, _ = run(plan, [policy.interval] * 3)
    assert sum(e.kind == "send" for e in log) == 3 * len(layout.fragments)
    assert sum(e.kind == "apply" for e in log + end) == 3 * len(layout.fragments)


def test_events_are_plain_values():
    assert Event(1, "send", 0, 0) == Event(1, "send", 0, 0)
    assert hash(one(Blocking())) == hash(one(Blocking()))
    assert SyncPolicy(update=Local(), interval=9, overlap=Streaming()).overlap == Streaming()
