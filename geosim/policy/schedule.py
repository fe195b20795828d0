"""Which fragment leaves after which step, and which result is applied when.

A fold: ``next_cycle(state, agreed_K)`` gives one cycle's events and the next state. Simulator, runtime and
JAX studies all walk it; none has loop logic of its own for policies.

A cycle covers the K steps after `state.step`. "After step n" means: when n steps in all are done. At equal
steps sends come before applies, so a blocking exchange is a send and an apply after the same step.
"""

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from geosim.errors import UsageError
from geosim.policy.layout import Layout
from geosim.policy.overlap import Blocking, Delayed, Eager, Overlap, Streaming


@dataclass(frozen=True)
class Event:
    """A fragment leaves (`send`) or its result is due (`apply`) after `step` steps in all."""

    step: int
    kind: Literal["send", "apply"]
    fragment: int
    round: int


@dataclass(frozen=True)
class Plan:
    """What the fold needs of a policy: each fragment's overlap, and the order in which fragments leave."""

    overlaps: tuple[Overlap, ...]
    order: tuple[int, ...]


@dataclass(frozen=True)
class State:
    """Where a run stands between two cycles.

    Attributes:
        step: steps done.
        cycle: cycles done.
        rounds: rounds sent so far, for each fragment.
        pending: applies that are not due yet.
    """

    step: int = 0
    cycle: int = 0
    rounds: tuple[int, ...] = ()
    pending: tuple[Event, ...] = ()


def make_plan(layout: Layout) -> Plan:
    """The plan of a layout's fragments."""
    order = list(range(len(layout.fragments)))
    if layout.policy.order == "largest-first":
        order.sort(key=lambda i: (-layout.fragment_numel(i), i))
    return Plan(tuple(f.overlap for f in layout.fragments), tuple(order))


def start(plan: Plan) -> State:
    """The state before the first step."""
    return State(rounds=(0,) * len(plan.overlaps))


def send_offset(overlap: Overlap, fragment: int, interval: int) -> int:
    """Steps into a cycle of K after which a fragment leaves; streaming: floor(p K / P) mod K, in (0, K]."""
    if isinstance(overlap, Streaming):
        return fragment * interval // overlap.fragments or interval
    return interval


def next_cycle(state: State, plan: Plan, interval: int) -> tuple[State, tuple[Event, ...]]:
    """One cycle of `interval` steps.

    Args:
        state: where the run stands.
        plan: from `make_plan`.
        interval: the K that all sites agreed on for this cycle.

    Returns:
        The state after it, and its events in the order in which they happen.

    Raises:
        UsageError: if a streaming delay does not fit into the interval.
    """
    end = state.step + interval
    rounds = list(state.rounds)
    due = list(state.pending)
    sends = []
    for f in plan.order:
        overlap = plan.overlaps[f]
        at = state.step + send_offset(overlap, f, interval)
        r = rounds[f]
        rounds[f] += 1
        sends.append(Event(at, "send", f, r))
        if isinstance(overlap, Blocking):
            due.append(Event(at, "apply", f, r))
        elif isinstance(overlap, Streaming):
            if overlap.steps >= interval:
                raise UsageError(f"overlap.steps: {overlap.steps} must be below the interval ({interval})")
            due.append(Event(at + overlap.steps, "apply", f, r))
        elif r >= overlap.windows:
            due.append(Event(at, "apply", f, r - overlap.windows))
    place = {f: i for i, f in enumerate(plan.order)}
    now = sends + [e for e in due if e.step <= end]
    now.sort(key=lambda e: (e.step, e.kind == "apply", place[e.fragment], e.round))
    later = tuple(e for e in due if e.step > end)
    return replace(state, step=end, cycle=state.cycle + 1, rounds=tuple(rounds), pending=later), tuple(now)


def finish(state: State, plan: Plan) -> tuple[Event, ...]:
    """The applies that end a run: every round that was sent and not yet applied, oldest first."""
    left = list(state.pending)
    for f, overlap in enumerate(plan.overlaps):
        if isinstance(overlap, Delayed | Eager):
            sent = state.rounds[f]
            left += [Event(state.step, "apply", f, r) for r in range(max(0, sent - overlap.windows), sent)]
    place = {f: i for i, f in enumerate(plan.order)}
    return tuple(sorted(left, key=lambda e: (e.step, e.round, place[e.fragment])))


def event_tables(plan: Plan, interval: int) -> tuple[np.ndarray, np.ndarray]:
    """A steady cycle as static tables for `lax.scan`.

    Returns:
        (send, age): int32 arrays [K, fragments]. `send[k, f]` is 1 if f leaves after the cycle's step k + 1;
        `age[k, f]` is 0 or more if a result is applied then: how many rounds of f left after the applied one;
        -1 if none is.
    """
    state = start(plan)
    for _ in range(2 + max((getattr(o, "windows", 1) for o in plan.overlaps), default=1)):
        base = state.step
        state, events = next_cycle(state, plan, interval)
    send = np.zeros((interval, len(plan.overlaps)), np.int32)
    age = np.full((interval, len(plan.overlaps)), -1, np.int32)
    latest = {f: state.rounds[f] - 2 for f in range(len(plan.overlaps))}
    for event in events:
        k = event.step - base - 1
        if event.kind == "send":
            send[k, event.fragment] = 1
            latest[event.fragment] = event.round
        else:
            age[k, event.fragment] = latest[event.fragment] - event.round
    return send, age
