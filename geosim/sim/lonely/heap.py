"""Events by time, and at one time in the order in which they were thought of, in machine code.

The heap lies from row 1 on; row 0 holds what is on its way through it. Events of the present instant wait in
a queue, first come first.
"""

from typing import Any

from geosim.sim.lonely.compiled import Array, inner

START, ALARM, LEFT, MARKED, TAKE, ARRIVE, FREE = range(7)  # what happens in an exchange
# What is counted: events so far, those in the heap, where the queue begins and ends, transfers whose rates
# change, sites that are through.
EVENTS, HEAP, BEGIN, END, CHANGED, THROUGH = range(6)
COUNTS = 6


@inner
def is_before(a: Any, b: Any) -> bool:
    return a.at < b.at or (a.at == b.at and a.order < b.order)


@inner
def _put(links: Array, heap: Array, i: int, event: Any) -> None:
    heap[i] = event
    if event.what == ALARM:
        links[event.a].alarm = i


@inner
def _rise(links: Array, heap: Array, i: int) -> None:
    """The event in row 0 finds its place, from place i upwards."""
    while i > 1 and is_before(heap[0], heap[i >> 1]):
        _put(links, heap, i, heap[i >> 1])
        i >>= 1
    _put(links, heap, i, heap[0])


@inner
def _sink(links: Array, heap: Array, n: int, i: int) -> None:
    """The event in row 0 finds its place among n, from place i downwards."""
    while 2 * i <= n:
        child = 2 * i
        if child < n and is_before(heap[child + 1], heap[child]):
            child += 1
        if not is_before(heap[child], heap[0]):
            break
        _put(links, heap, i, heap[child])
        i = child
    _put(links, heap, i, heap[0])


@inner
def _set(row: Any, counts: Array, at: float, what: int, a: int, b: int) -> None:
    counts[EVENTS] += 1
    row.at, row.order, row.what, row.a, row.b = at, counts[EVENTS], what, a, b


@inner
def push(links: Array, heap: Array, counts: Array, at: float, what: int, a: int, b: int) -> None:
    _set(heap[0], counts, at, what, a, b)
    counts[HEAP] += 1
    _rise(links, heap, counts[HEAP])


@inner
def set_alarm(links: Array, heap: Array, counts: Array, link: int, at: float) -> None:
    """A link's alarm, in place of the one that it may have."""
    place = links[link].alarm
    if not place:
        push(links, heap, counts, at, ALARM, link, 0)
        return
    _set(heap[0], counts, at, ALARM, link, 0)
    if at < heap[place].at:
        _rise(links, heap, place)
    else:
        _sink(links, heap, counts[HEAP], place)


@inner
def pop(links: Array, heap: Array, counts: Array) -> None:
    """Take the first event out; its place is in row 0 no more."""
    n = counts[HEAP] = counts[HEAP] - 1
    if heap[1].what == ALARM:
        links[heap[1].a].alarm = 0
    if n:
        heap[0] = heap[n + 1]
        _sink(links, heap, n, 1)


@inner
def add_now(queue: Array, counts: Array, now: float, what: int, a: int, b: int) -> None:
    """An event of this instant."""
    _set(queue[counts[END]], counts, now, what, a, b)
    counts[END] = (counts[END] + 1) % len(queue)
