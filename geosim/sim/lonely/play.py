"""One exchange over links that no two payloads share, event by event, in machine code.

The events, their order at equal times and the arithmetic are those of `sim.exchange` and `sim.network`, so
that both give the same numbers; what each step means is said there. Names of arrays are those of `state`.
"""

import math
from typing import Any

from geosim.sim.lonely.compiled import Array, compiled, inner
from geosim.sim.lonely.heap import (
    ALARM,
    ARRIVE,
    BEGIN,
    CHANGED,
    END,
    HEAP,
    LEFT,
    MARKED,
    PASS_ON,
    START,
    TAKE,
    is_before,
    pop,
)
from geosim.sim.lonely.links import move, on_alarm, share_all
from geosim.sim.lonely.transfers import arrive, dequeue, enter, left, marked, pass_on, post, start, take

POST, ENTER = 0, 1  # what a site does


@inner
def _happen(s: Any, notices: Array, what: int, a: int, b: int, now: float) -> None:
    if what == ALARM:
        on_alarm(s, a, now)
    elif what == LEFT:
        left(s, a, now)
    elif what == PASS_ON:
        pass_on(s, notices, a, now)
    elif what == ARRIVE:
        arrive(s, a, now)
    elif what == MARKED:
        marked(s, a, b, now)
    elif what == TAKE:
        take(s, a, b, now)
    elif what == START:
        start(s, a, now)
    else:
        dequeue(s, a, now)


@inner
def _begin(s: Any) -> None:
    """Nothing of this exchange has happened yet."""
    s.counts[:] = 0
    for w in s.links:
        w.on = w.head = -1
        w.is_busy = w.ready = w.sent = w.alarm = w.trickles = 0
    for t in s.transfers:
        t.following = -1
        t.is_changed = t.has_room = t.waits = t.trickles = 0
        t.came = math.inf
    for m in s.sites:
        m.waits_for = m.out_of_end - m.out_of + m.into_end - m.into
        m.done = math.inf


@compiled
def play(s: Any, of: int, at: Array, kind: Array, site: Array, which: Array, until: float) -> None:
    """Let an exchange of fragment `of` go on until a time, or until all its bytes are there.

    `s`: a `state.State`. `at`, `kind`, `site`, `which`: what sites have done since the exchange before, in
    order: when, what, who, with which fragment. At one instant what sites do comes first.
    """
    _begin(s)
    mine = s.notices[of]
    now, call = 0.0, 0
    while True:
        next_call = at[call] if call < len(at) else math.inf
        is_now = s.counts[BEGIN] != s.counts[END]
        next_event = now if is_now else (s.heap[1].at if s.counts[HEAP] else math.inf)
        soonest = min(next_call, next_event)
        if s.counts[CHANGED] and soonest > now:
            share_all(s, now)
            continue
        if soonest > until or soonest == math.inf:
            break
        now = soonest
        if next_call <= next_event:
            if kind[call] == POST:
                post(s, s.notices[which[call]], site[call], now)
            else:
                enter(s, mine, site[call], now)
            call += 1
            continue
        event = s.heap[1]
        if is_now and not (s.counts[HEAP] and is_before(event, s.queue[s.counts[BEGIN]])):
            event = s.queue[s.counts[BEGIN]]
            what, a, b = event.what, event.a, event.b
            s.counts[BEGIN] = (s.counts[BEGIN] + 1) % len(s.queue)
        else:
            what, a, b = event.what, event.a, event.b
            pop(s)
        _happen(s, mine, what, a, b, now)
    if until < math.inf:
        for w in s.links[:-1]:
            if w.on >= 0:
                move(w, until)
