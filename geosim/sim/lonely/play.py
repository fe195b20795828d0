"""One exchange over links that no two payloads share, event by event, in machine code.

The events, their order at equal times and the arithmetic are those of `sim.exchange` and `sim.network`, so
that both give the same numbers; what each step means is said there. Names of arrays are those of `state`.
"""

import math
from typing import Any

import numpy as np

from geosim.sim.lonely.compiled import Array, compiled, inner
from geosim.sim.lonely.flow import (
    begin_round,
    run,
    tiny_bytes,
    window_after,
    window_restart,
)
from geosim.sim.lonely.heap import (
    ALARM,
    ARRIVE,
    BEGIN,
    CHANGED,
    END,
    FREE,
    HEAP,
    LEFT,
    MARKED,
    START,
    TAKE,
    THROUGH,
    add_now,
    is_before,
    pop,
    push,
    set_alarm,
)

POST, ENTER = 0, 1  # what a site does


# Links.


@inner
def _draw(links: Array, normals: Array, link: int) -> float:
    w = links[link]
    if w.jitter == 0:
        return w.delay
    w.drawn += 1
    return max(0.0, w.delay + w.jitter * normals[link, w.drawn - 1])


@inner
def _move(f: Any, now: float) -> None:
    before = f.left
    run(f, now)
    f.carried += before - f.left


@inner
def _advance(links: Array, queue: Array, counts: Array, link: int, now: float) -> None:
    f = links[link]
    _move(f, now)
    if f.has_mark and f.left - f.mark_left <= tiny_bytes(f, now):
        f.has_mark = 0
        add_now(queue, counts, now, MARKED, link, f.mark_place)


@inner
def _change(transfers: Array, counts: Array, k: int) -> None:
    if not transfers[k].is_changed:
        transfers[k].is_changed = 1
        transfers[counts[CHANGED]].changed = k
        counts[CHANGED] += 1


@inner
def _oppose(
    links: Array, transfers: Array, queue: Array, counts: Array, link: int, is_opposed: int, now: float
) -> None:
    if link < 0:
        return
    f = links[link]
    if f.on >= 0 and f.opposed != f.stream:
        _advance(links, queue, counts, link, now)
        f.is_opposed = is_opposed
        _change(transfers, counts, f.on)


@inner
def _share_all(links: Array, transfers: Array, heap: Array, queue: Array, counts: Array, now: float) -> None:
    changed = counts[CHANGED]
    counts[CHANGED] = 0
    for i in range(changed):
        k = transfers[i].changed
        transfers[k].is_changed = 0
        link = transfers[k].link
        if links[link].on == k:
            _advance(links, queue, counts, link, now)
            _look_ahead(links, heap, counts, link, now)


@inner
def _look_ahead(links: Array, heap: Array, counts: Array, link: int, now: float) -> None:
    links[-1] = links[link]
    ahead = links[-1]
    if ahead.has_mark:
        ahead.has_mark = 0
        ahead.left -= ahead.mark_left
    run(ahead, math.inf)
    set_alarm(links, heap, counts, link, now + max(0.0, ahead.since - now))


@inner
def _on_alarm(
    links: Array, transfers: Array, heap: Array, queue: Array, counts: Array, link: int, now: float
) -> None:
    if links[link].has_mark:
        _advance(links, queue, counts, link, now)
        _look_ahead(links, heap, counts, link, now)
    else:
        _end(links, transfers, queue, counts, link, now)


@inner
def _end(links: Array, transfers: Array, queue: Array, counts: Array, link: int, now: float) -> None:
    f = links[link]
    f.carried += f.left
    k, f.on = f.on, -1
    _oppose(links, transfers, queue, counts, f.back, 0, now)
    add_now(queue, counts, now, LEFT, k, 0)


# Transfers. `notices` are those of one fragment.


@inner
def _post(
    links: Array,
    transfers: Array,
    sites: Array,
    lists: Array,
    notices: Array,
    normals: Array,
    heap: Array,
    queue: Array,
    counts: Array,
    site: int,
    now: float,
) -> None:
    for i in range(sites[site].into, sites[site].into_end):
        k = lists[i]
        link = transfers[k].link
        back = links[link].back
        if back >= 0:
            links[back].silent = max(links[back].silent, now)
        notices[k].ready = max(notices[k].ready, now + _draw(links, normals, link))
        _one_less(links, transfers, sites, lists, notices, normals, heap, queue, counts, k, now)


@inner
def _ask(
    links: Array,
    transfers: Array,
    sites: Array,
    lists: Array,
    notices: Array,
    normals: Array,
    heap: Array,
    queue: Array,
    counts: Array,
    k: int,
    now: float,
) -> None:
    transfers[k].asked = max(transfers[k].asked, now)
    _one_less(links, transfers, sites, lists, notices, normals, heap, queue, counts, k, now)


@inner
def _one_less(
    links: Array,
    transfers: Array,
    sites: Array,
    lists: Array,
    notices: Array,
    normals: Array,
    heap: Array,
    queue: Array,
    counts: Array,
    k: int,
    now: float,
) -> None:
    notice = notices[k]
    notice.missing -= 1
    if notice.missing == 0:
        wait = notice.ready - now
        if wait > 0:
            push(links, heap, counts, now + wait, START, k, 0)
        else:
            _start(links, transfers, sites, lists, notices, normals, heap, queue, counts, k, now)


@inner
def _start(
    links: Array,
    transfers: Array,
    sites: Array,
    lists: Array,
    notices: Array,
    normals: Array,
    heap: Array,
    queue: Array,
    counts: Array,
    k: int,
    now: float,
) -> None:
    link = transfers[k].link
    w = links[link]
    place = transfers[w.place + w.ready]
    w.ready += 1
    if w.ready <= w.held or place.has_room:
        _close(sites, counts, w.sender, now)
    else:
        place.waits = 1
    if not w.is_busy and w.free <= now:
        w.is_busy = 1
        _send(links, transfers, lists, notices, normals, heap, queue, counts, k, now)
        return
    if not w.is_busy:
        w.is_busy = 1
        push(links, heap, counts, w.free, FREE, link, 0)
    if w.head < 0:
        w.head = k
    else:
        transfers[w.tail].following = k
    w.tail = k


@inner
def _dequeue(
    links: Array,
    transfers: Array,
    lists: Array,
    notices: Array,
    normals: Array,
    heap: Array,
    queue: Array,
    counts: Array,
    link: int,
    now: float,
) -> None:
    w = links[link]
    k = w.head
    if k < 0:
        w.is_busy = 0
    else:
        w.head = transfers[k].following
        _send(links, transfers, lists, notices, normals, heap, queue, counts, k, now)


@inner
def _send(
    links: Array,
    transfers: Array,
    lists: Array,
    notices: Array,
    normals: Array,
    heap: Array,
    queue: Array,
    counts: Array,
    k: int,
    now: float,
) -> None:
    link = transfers[k].link
    f = links[link]
    window = f.window
    if window < 0:
        window = f.first
    elif not f.trickles:
        idle = transfers[k].asked - f.silent
        if f.restarts and idle >= f.rto:
            window = window_restart(window, idle, f.first, f.rto)
    f.window = window_after(window, f.payload, f.limit)
    f.left, f.since, f.speed, f.in_flight = f.payload, now, 0.0, min(window, f.limit)
    f.is_opposed = 1 if f.back >= 0 and links[f.back].on >= 0 else 0
    begin_round(f, now)
    _oppose(links, transfers, queue, counts, f.back, 1, now)
    f.on = k
    whole = np.floor(f.held)
    place = f.sent + whole
    f.sent += 1
    f.has_mark, f.mark_left = 0, 0.0
    links[-1] = f
    ahead = links[-1]
    if place < f.load:
        f.has_mark, f.mark_place = 1, int(place)
        f.mark_left = f.payload - (1.0 - (f.held - whole)) * f.payload
        ahead.left -= f.mark_left
    ahead.since = ahead.round = 0.0
    run(ahead, math.inf)
    set_alarm(links, heap, counts, link, now + ahead.since)
    transfers[k].delay = _draw(links, normals, link)
    if transfers[k].later < transfers[k].later_end:
        comes = now + (_first_slice(links, link) + transfers[k].delay)
        for i in range(transfers[k].later, transfers[k].later_end):
            _foresee(links, transfers, notices, heap, counts, lists[i], comes, now)


@inner
def _first_slice(links: Array, link: int) -> float:
    links[-1] = links[link]
    ahead = links[-1]
    ahead.left = ahead.slice
    ahead.is_opposed = ahead.has_mark = 0
    ahead.since = ahead.round = 0.0
    run(ahead, math.inf)
    return ahead.since


@inner
def _foresee(
    links: Array, transfers: Array, notices: Array, heap: Array, counts: Array, k: int, at: float, now: float
) -> None:
    notice = notices[k]
    transfers[k].asked = max(transfers[k].asked, at)
    notice.ready = max(notice.ready, at)
    notice.missing -= 1
    if notice.missing == 0:
        push(links, heap, counts, now + max(0.0, notice.ready - now), START, k, 0)


@inner
def _left(
    links: Array,
    transfers: Array,
    lists: Array,
    notices: Array,
    normals: Array,
    heap: Array,
    queue: Array,
    counts: Array,
    k: int,
    now: float,
) -> None:
    link, need = transfers[k].link, transfers[k].need
    w = links[link]
    w.silent, w.free = max(w.silent, now), now
    _dequeue(links, transfers, lists, notices, normals, heap, queue, counts, link, now)
    if need < 0:
        push(links, heap, counts, now + transfers[k].delay, ARRIVE, k, 0)
    elif transfers[need].came == math.inf:
        transfers[k].trickles = 1
        w.trickles += 1
    else:
        last = transfers[need].came + w.slice / min(w.rate, w.stream) - now
        _cross(links, transfers, heap, counts, k, max(0.0, last), now)


@inner
def _cross(
    links: Array, transfers: Array, heap: Array, counts: Array, k: int, last: float, now: float
) -> None:
    w = links[transfers[k].link]
    w.silent = max(w.silent, now + last)
    push(links, heap, counts, now + (last + transfers[k].delay), ARRIVE, k, 0)


@inner
def _arrive(
    links: Array, transfers: Array, sites: Array, lists: Array, heap: Array, counts: Array, k: int, now: float
) -> None:
    transfers[k].came = now
    _close(sites, counts, transfers[k].target, now)
    for i in range(transfers[k].later, transfers[k].later_end):
        later = lists[i]
        if transfers[later].trickles:
            w = links[transfers[later].link]
            w.trickles -= 1
            w.silent = max(w.silent, now)
            _cross(links, transfers, heap, counts, later, w.slice / min(w.rate, w.stream), now)


@inner
def _close(sites: Array, counts: Array, site: int, now: float) -> None:
    sites[site].waits_for -= 1
    if sites[site].waits_for == 0:
        sites[site].done, sites[site].order = now, counts[THROUGH]
        counts[THROUGH] += 1


@inner
def _happen(
    links: Array,
    transfers: Array,
    sites: Array,
    lists: Array,
    notices: Array,
    normals: Array,
    heap: Array,
    queue: Array,
    counts: Array,
    what: int,
    a: int,
    b: int,
    now: float,
) -> None:
    if what == ALARM:
        _on_alarm(links, transfers, heap, queue, counts, a, now)
    elif what == LEFT:
        _left(links, transfers, lists, notices, normals, heap, queue, counts, a, now)
    elif what == ARRIVE:
        _arrive(links, transfers, sites, lists, heap, counts, a, now)
    elif what == MARKED:
        push(links, heap, counts, now + links[a].rtt, TAKE, a, b)
    elif what == TAKE:
        place = transfers[links[a].place + b]
        if place.waits:
            _close(sites, counts, links[a].sender, now)
        else:
            place.has_room = 1
    elif what == START:
        _start(links, transfers, sites, lists, notices, normals, heap, queue, counts, a, now)
    else:
        _dequeue(links, transfers, lists, notices, normals, heap, queue, counts, a, now)


@inner
def _begin(links: Array, transfers: Array, sites: Array, counts: Array) -> None:
    """Nothing of this exchange has happened yet."""
    counts[:] = 0
    for w in links:
        w.on = w.head = -1
        w.is_busy = w.ready = w.sent = w.alarm = w.trickles = 0
    for t in transfers:
        t.following = -1
        t.is_changed = t.has_room = t.waits = t.trickles = 0
        t.asked, t.came = 0.0, math.inf
    for m in sites:
        m.waits_for = m.out_of_end - m.out_of + m.into_end - m.into
        m.done = math.inf


@compiled
def play(
    links: Array,
    transfers: Array,
    sites: Array,
    lists: Array,
    notices: Array,
    normals: Array,
    heap: Array,
    queue: Array,
    counts: Array,
    of: int,
    at: Array,
    kind: Array,
    site: Array,
    which: Array,
    until: float,
) -> None:
    """Let an exchange of fragment `of` go on until a time, or until all its bytes are there.

    `at`, `kind`, `site`, `which`: what sites have done since the exchange before, in order: when, what, who,
    with which fragment. At one instant what sites do comes first.
    """
    _begin(links, transfers, sites, counts)
    mine = notices[of]
    now, call = 0.0, 0
    while True:
        next_call = at[call] if call < len(at) else math.inf
        is_now = counts[BEGIN] != counts[END]
        next_event = now if is_now else (heap[1].at if counts[HEAP] else math.inf)
        soonest = min(next_call, next_event)
        if counts[CHANGED] and soonest > now:
            _share_all(links, transfers, heap, queue, counts, now)
            continue
        if soonest > until or soonest == math.inf:
            break
        now = soonest
        if next_call <= next_event:
            if kind[call] == POST:
                _post(
                    links,
                    transfers,
                    sites,
                    lists,
                    notices[which[call]],
                    normals,
                    heap,
                    queue,
                    counts,
                    site[call],
                    now,
                )
            else:
                for i in range(sites[site[call]].out_of, sites[site[call]].out_of_end):
                    _ask(links, transfers, sites, lists, mine, normals, heap, queue, counts, lists[i], now)
            call += 1
            continue
        event = heap[1]
        if is_now and not (counts[HEAP] and is_before(event, queue[counts[BEGIN]])):
            event = queue[counts[BEGIN]]
            what, a, b = event.what, event.a, event.b
            counts[BEGIN] = (counts[BEGIN] + 1) % len(queue)
        else:
            what, a, b = event.what, event.a, event.b
            pop(links, heap, counts)
        _happen(links, transfers, sites, lists, mine, normals, heap, queue, counts, what, a, b, now)
    if until < math.inf:
        for w in links[:-1]:
            if w.on >= 0:
                _move(w, until)
