"""Events by time, and at one time in the order in which they were thought of, in machine code.

The heap lies from row 1 on; row 0 holds what is on its way through it. Events of the present instant wait in
a queue, first come first. `s`: a `state.State`.
"""

from typing import Any

from geosim.sim.lonely.compiled import inner

START, ALARM, PASS_ON, LEFT, MARKED, TAKE, ARRIVE, FREE = range(8)  # what happens in an exchange
# What is counted: events so far, those in the heap, where the queue begins and ends, transfers whose rates
# change, sites that are through.
EVENTS, HEAP, BEGIN, END, CHANGED, THROUGH = range(6)
COUNTS = 6


@inner
def is_before(a: Any, b: Any) -> bool:
    return a.at < b.at or (a.at == b.at and a.order < b.order)


@inner
def _put(s: Any, i: int, event: Any) -> None:
    s.heap[i] = event
    if event.what == ALARM:
        s.links[event.a].alarm = i


@inner
def _rise(s: Any, i: int) -> None:
    """The event in row 0 finds its place, from place i upwards."""
    while i > 1 and is_before(s.heap[0], s.heap[i >> 1]):
        _put(s, i, s.heap[i >> 1])
        i >>= 1
    _put(s, i, s.heap[0])


@inner
def _sink(s: Any, n: int, i: int) -> None:
    """The event in row 0 finds its place among n, from place i downwards."""
    while 2 * i <= n:
        child = 2 * i
        if child < n and is_before(s.heap[child + 1], s.heap[child]):
            child += 1
        if not is_before(s.heap[child], s.heap[0]):
            break
        _put(s, i, s.heap[child])
        i = child
    _put(s, i, s.heap[0])


@inner
def _set(s: Any, row: Any, at: float, what: int, a: int, b: int) -> None:
    s.counts[EVENTS] += 1
    row.at, row.order, row.what, row.a, row.b = at, s.counts[EVENTS], what, a, b


@inner
def push(s: Any, at: float, what: int, a: int, b: int) -> None:
    _set(s, s.heap[0], at, what, a, b)
    s.counts[HEAP] += 1
    _rise(s, s.counts[HEAP])


@inner
def set_alarm(s: Any, link: int, at: float) -> None:
    """A link's alarm, in place of the one that it may have."""
    place = s.links[link].alarm
    if not place:
        push(s, at, ALARM, link, 0)
        return
    _set(s, s.heap[0], at, ALARM, link, 0)
    if at < s.heap[place].at:
        _rise(s, place)
    else:
        _sink(s, s.counts[HEAP], place)


@inner
def pop(s: Any) -> None:
    """Take the first event out; its place is in row 0 no more."""
    n = s.counts[HEAP] = s.counts[HEAP] - 1
    if s.heap[1].what == ALARM:
        s.links[s.heap[1].a].alarm = 0
    if n:
        s.heap[0] = s.heap[n + 1]
        _sink(s, n, 1)


@inner
def add_now(s: Any, now: float, what: int, a: int, b: int) -> None:
    """An event of this instant."""
    _set(s, s.queue[s.counts[END]], now, what, a, b)
    s.counts[END] = (s.counts[END] + 1) % len(s.queue)
