"""One exchange over links that no two payloads share, event by event, in machine code.

The events, their order at equal times and the arithmetic are those of `exchange` and `network`, so that both
give the same numbers; what each step means is said there. Names of arrays are those of `lonely_state`.
"""

import math
from typing import Any

import numpy as np
from numba import njit

# As in `network`.
_TINY, _TINY_BYTES, _TINY_SHARE_OF_TIME = 1e-12, 1e-6, 1e-15
POST, ENTER = 0, 1  # what a site does
_START, _ALARM, _LEFT, _MARKED, _TAKE, _ARRIVE, _FREE = range(7)  # what happens in an exchange
# What is counted: events so far, those in the heap, where the queue begins and ends, transfers whose rates
# change, sites that are through.
_EVENTS, _HEAP, _BEGIN, _END, _CHANGED, _THROUGH = range(6)

_compiled: Any = njit(cache=True, nogil=True, no_cfunc_wrapper=True, error_model="numpy", _nrt=False)
_inner: Any = njit(
    cache=True, nogil=True, no_cfunc_wrapper=True, error_model="numpy", _nrt=False, no_cpython_wrapper=True
)
Array = np.ndarray


# A transfer on its link, as `network.Flow`.


@_inner
def _begin_round(f: Any, now: float) -> None:
    f.round, f.paused = now, -1.0
    full = f.rtt * f.rate
    most = f.limit if full == 0 and f.rtt > 0 else min(f.limit, full * (1 - _TINY))
    if f.in_flight < most:
        f.burst = f.in_flight
    elif f.limit >= full and full > 0:
        f.burst = full
    else:
        f.burst = math.inf


@_inner
def _cap(f: Any) -> float:
    if f.burst < math.inf:
        return math.inf
    return f.opposed if f.is_opposed else f.stream


@_inner
def _advance(f: Any, now: float) -> float:
    moved = 0.0
    if f.speed > 0 and now > f.since:
        moved = min(f.speed * (now - f.since), f.left)
        f.left -= moved
        f.burst -= moved
    f.since = now
    return moved


@_inner
def _tiny(f: Any, now: float) -> float:
    return _TINY_BYTES + f.speed * _TINY_SHARE_OF_TIME * (1 + now)


@_inner
def _is_through(f: Any, now: float) -> bool:
    tiny = _tiny(f, now)
    if f.left <= tiny:
        return True
    if f.paused >= 0:
        if f.paused <= now:
            f.in_flight = min(2 * f.in_flight, f.limit)
            _begin_round(f, now)
    elif f.burst <= tiny:
        until = f.round + f.rtt
        f.burst = math.inf
        if now < until - _TINY * (1 + now):
            f.paused = until
    return False


@_inner
def _part_ends(f: Any, rate: float) -> float:
    if f.paused >= 0:
        f.speed = 0.0
        return f.paused
    f.speed = rate
    ahead = min(f.left, f.burst)
    if f.has_mark and f.left > f.mark_left:
        ahead = min(ahead, f.left - f.mark_left)
    return f.since + ahead / rate


@_inner
def _run(f: Any, until: float) -> None:
    while True:
        end = _part_ends(f, min(_cap(f), f.rate))
        if end > until:
            _advance(f, until)
            return
        _advance(f, end)
        if _is_through(f, end):
            return


@_inner
def _window_after(window: float, size: float, limit: float) -> float:
    window = max(window, 1.0)
    full = max(np.ceil(math.log2(size / window + 1)) - 1, 0.0)
    rest = size - window * (2.0**full - 1)
    largest = max(window * 2.0 ** (full - 1) if full > 0 else 0.0, rest)
    return min(max(window, min(window + size, 2 * largest)), limit)


@_inner
def _window_restart(window: float, idle: float, first: float, rto: float) -> float:
    halvings = min(np.floor(max(idle, 0.0) / rto), 60.0)
    return min(max(window * 0.5**halvings, first), window)


# Events by time, and at one time in the order in which they were thought of: a heap from 1 on.


@_inner
def _is_before(a: Any, b: Any) -> bool:
    return a.at < b.at or (a.at == b.at and a.order < b.order)


@_inner
def _put(links: Array, heap: Array, i: int, event: Any) -> None:
    heap[i] = event
    if event.what == _ALARM:
        links[event.a].alarm = i


@_inner
def _rise(links: Array, heap: Array, i: int) -> None:
    """The event in row 0 finds its place, from place i upwards."""
    while i > 1 and _is_before(heap[0], heap[i >> 1]):
        _put(links, heap, i, heap[i >> 1])
        i >>= 1
    _put(links, heap, i, heap[0])


@_inner
def _sink(links: Array, heap: Array, n: int, i: int) -> None:
    """The event in row 0 finds its place among n, from place i downwards."""
    while 2 * i <= n:
        child = 2 * i
        if child < n and _is_before(heap[child + 1], heap[child]):
            child += 1
        if not _is_before(heap[child], heap[0]):
            break
        _put(links, heap, i, heap[child])
        i = child
    _put(links, heap, i, heap[0])


@_inner
def _set(row: Any, count: Array, at: float, what: int, a: int, b: int) -> None:
    count[_EVENTS] += 1
    row.at, row.order, row.what, row.a, row.b = at, count[_EVENTS], what, a, b


@_inner
def _push(links: Array, heap: Array, count: Array, at: float, what: int, a: int, b: int) -> None:
    _set(heap[0], count, at, what, a, b)
    count[_HEAP] += 1
    _rise(links, heap, count[_HEAP])


@_inner
def _set_alarm(links: Array, heap: Array, count: Array, link: int, at: float) -> None:
    """A link's alarm, in place of the one that it may have."""
    place = links[link].alarm
    if not place:
        _push(links, heap, count, at, _ALARM, link, 0)
        return
    _set(heap[0], count, at, _ALARM, link, 0)
    if at < heap[place].at:
        _rise(links, heap, place)
    else:
        _sink(links, heap, count[_HEAP], place)


@_inner
def _pop(links: Array, heap: Array, count: Array) -> None:
    """Take the first event out; its place is in row 0 no more."""
    n = count[_HEAP] = count[_HEAP] - 1
    if heap[1].what == _ALARM:
        links[heap[1].a].alarm = 0
    if n:
        heap[0] = heap[n + 1]
        _sink(links, heap, n, 1)


# Links.


@_inner
def _draw(links: Array, normals: Array, link: int) -> float:
    w = links[link]
    if w.jitter == 0:
        return w.delay
    w.drawn += 1
    return max(0.0, w.delay + w.jitter * normals[link, w.drawn - 1])


@_inner
def _move(f: Any, now: float) -> None:
    before = f.left
    if f.is_alone:
        _run(f, now)
        moved = before - f.left
    else:
        moved = _advance(f, now)
    f.carried += moved


@_inner
def _change(transfers: Array, count: Array, k: int) -> None:
    if not transfers[k].is_changed:
        transfers[k].is_changed = 1
        transfers[count[_CHANGED]].changed = k
        count[_CHANGED] += 1


@_inner
def _oppose(links: Array, transfers: Array, count: Array, link: int, is_opposed: int, now: float) -> None:
    if link < 0:
        return
    f = links[link]
    if f.on >= 0 and f.opposed != f.stream:
        _move(f, now)
        f.is_opposed = is_opposed
        _change(transfers, count, f.on)


@_inner
def _share_all(links: Array, transfers: Array, heap: Array, count: Array, now: float) -> None:
    changed = count[_CHANGED]
    count[_CHANGED] = 0
    for i in range(changed):
        k = transfers[i].changed
        transfers[k].is_changed = 0
        link = transfers[k].link
        if links[link].on == k:
            _share(links, heap, count, link, now)


@_inner
def _share(links: Array, heap: Array, count: Array, link: int, now: float) -> None:
    f = links[link]
    _move(f, now)
    f.is_alone = 0
    if f.has_mark:
        end = _part_ends(f, f.flows * min(_cap(f) / f.flows, f.rate / f.flows))
    else:
        end = _looking_ahead(links, link, f.since)
        f.is_alone = 1
    _set_alarm(links, heap, count, link, now + max(0.0, end - now))


@_inner
def _looking_ahead(links: Array, link: int, now: float) -> float:
    """When a transfer will be through that began its round before `now`, if nothing changes."""
    links[-1] = links[link]
    ahead = links[-1]
    _run(ahead, math.inf)
    return ahead.since


@_inner
def _on_alarm(links: Array, transfers: Array, queue: Array, count: Array, link: int, now: float) -> None:
    f = links[link]
    if f.is_alone:
        _end(links, transfers, queue, count, link, now)
        return
    _move(f, now)
    if f.has_mark and f.left - f.mark_left <= _tiny(f, now):
        f.has_mark = 0
        _now(queue, count, now, _MARKED, link, f.mark_place)
    k = f.on
    if _is_through(f, now):
        _end(links, transfers, queue, count, link, now)
    _change(transfers, count, k)


@_inner
def _now(queue: Array, count: Array, now: float, what: int, a: int, b: int) -> None:
    """An event of this instant."""
    _set(queue[count[_END]], count, now, what, a, b)
    count[_END] = (count[_END] + 1) % len(queue)


@_inner
def _end(links: Array, transfers: Array, queue: Array, count: Array, link: int, now: float) -> None:
    f = links[link]
    f.carried += f.left
    k, f.on = f.on, -1
    _oppose(links, transfers, count, f.back, 0, now)
    _now(queue, count, now, _LEFT, k, 0)


# Transfers. `notices` are those of one fragment.


@_inner
def _post(
    links: Array,
    transfers: Array,
    sites: Array,
    lists: Array,
    notices: Array,
    normals: Array,
    heap: Array,
    count: Array,
    site: int,
    now: float,
) -> None:
    for i in range(sites[site].into, sites[site].into_end):
        k = lists[i]
        link = transfers[k].link
        back = links[link].back
        if back >= 0:
            links[back].silent = max(links[back].silent, now)
        notices[k].ready = now + _draw(links, normals, link)
        _one_less(links, transfers, sites, notices, heap, count, k, now)


@_inner
def _ask(
    links: Array,
    transfers: Array,
    sites: Array,
    notices: Array,
    heap: Array,
    count: Array,
    k: int,
    now: float,
) -> None:
    transfers[k].asked = now
    _one_less(links, transfers, sites, notices, heap, count, k, now)


@_inner
def _one_less(
    links: Array,
    transfers: Array,
    sites: Array,
    notices: Array,
    heap: Array,
    count: Array,
    k: int,
    now: float,
) -> None:
    notice = notices[k]
    notice.missing -= 1
    if notice.missing == 0:
        wait = notice.ready - now
        if wait > 0:
            _push(links, heap, count, now + wait, _START, k, 0)
        else:
            _start(links, transfers, sites, heap, count, k, now)


@_inner
def _start(
    links: Array, transfers: Array, sites: Array, heap: Array, count: Array, k: int, now: float
) -> None:
    link = transfers[k].link
    w = links[link]
    place = transfers[w.place + w.ready]
    w.ready += 1
    if w.ready <= w.held or place.has_room:
        _close(sites, count, w.sender, now)
    else:
        place.waits = 1
    if not w.is_busy and w.free <= now:
        w.is_busy = 1
        _send(links, transfers, heap, count, k, now)
        return
    if not w.is_busy:
        w.is_busy = 1
        _push(links, heap, count, w.free, _FREE, link, 0)
    if w.head < 0:
        w.head = k
    else:
        transfers[w.tail].following = k
    w.tail = k


@_inner
def _dequeue(links: Array, transfers: Array, heap: Array, count: Array, link: int, now: float) -> None:
    w = links[link]
    k = w.head
    if k < 0:
        w.is_busy = 0
    else:
        w.head = transfers[k].following
        _send(links, transfers, heap, count, k, now)


@_inner
def _send(links: Array, transfers: Array, heap: Array, count: Array, k: int, now: float) -> None:
    link = transfers[k].link
    f = links[link]
    window = f.window
    if window < 0:
        window = f.first
    else:
        idle = transfers[k].asked - f.silent
        if f.restarts and idle >= f.rto:
            window = _window_restart(window, idle, f.first, f.rto)
    f.window = _window_after(window, f.payload, f.limit)
    f.left, f.since, f.speed, f.in_flight = f.payload, now, 0.0, min(window, f.limit)
    f.is_opposed = 1 if f.back >= 0 and links[f.back].on >= 0 else 0
    _begin_round(f, now)
    _oppose(links, transfers, count, f.back, 1, now)
    f.on = k
    whole = np.floor(f.held)
    place = f.sent + whole
    f.sent += 1
    f.has_mark = 1 if place < f.load else 0
    f.is_alone = 1 - f.has_mark
    if f.has_mark:
        f.mark_place = int(place)
        f.mark_left = f.payload - (1.0 - (f.held - whole)) * f.payload
        _change(transfers, count, k)
        return
    links[-1] = f
    ahead = links[-1]
    ahead.since = ahead.round = 0.0
    _run(ahead, math.inf)
    _set_alarm(links, heap, count, link, now + ahead.since)


@_inner
def _close(sites: Array, count: Array, site: int, now: float) -> None:
    sites[site].waits_for -= 1
    if sites[site].waits_for == 0:
        sites[site].done, sites[site].order = now, count[_THROUGH]
        count[_THROUGH] += 1


@_inner
def _happen(
    links: Array,
    transfers: Array,
    sites: Array,
    lists: Array,
    notices: Array,
    normals: Array,
    heap: Array,
    queue: Array,
    count: Array,
    what: int,
    a: int,
    b: int,
    now: float,
) -> None:
    if what == _ALARM:
        _on_alarm(links, transfers, queue, count, a, now)
    elif what == _LEFT:
        link = transfers[a].link
        links[link].silent = links[link].free = now
        _dequeue(links, transfers, heap, count, link, now)
        _push(links, heap, count, now + _draw(links, normals, link), _ARRIVE, a, 0)
    elif what == _ARRIVE:
        _close(sites, count, transfers[a].target, now)
        for i in range(transfers[a].later, transfers[a].later_end):
            _ask(links, transfers, sites, notices, heap, count, lists[i], now)
    elif what == _MARKED:
        _push(links, heap, count, now + links[a].rtt, _TAKE, a, b)
    elif what == _TAKE:
        place = transfers[links[a].place + b]
        if place.waits:
            _close(sites, count, links[a].sender, now)
        else:
            place.has_room = 1
    elif what == _START:
        _start(links, transfers, sites, heap, count, a, now)
    else:
        _dequeue(links, transfers, heap, count, a, now)


@_inner
def _begin(links: Array, transfers: Array, sites: Array, count: Array) -> None:
    """Nothing of this exchange has happened yet."""
    count[:] = 0
    for w in links:
        w.on = w.head = -1
        w.is_busy = w.ready = w.sent = w.alarm = 0
    for t in transfers:
        t.following = -1
        t.is_changed = t.has_room = t.waits = 0
    for m in sites:
        m.waits_for = m.out_of_end - m.out_of + m.into_end - m.into
        m.done = math.inf


@_compiled
def play(
    links: Array,
    transfers: Array,
    sites: Array,
    lists: Array,
    notices: Array,
    normals: Array,
    heap: Array,
    queue: Array,
    count: Array,
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
    _begin(links, transfers, sites, count)
    mine = notices[of]
    now, call = 0.0, 0
    while True:
        next_call = at[call] if call < len(at) else math.inf
        is_now = count[_BEGIN] != count[_END]
        next_event = now if is_now else (heap[1].at if count[_HEAP] else math.inf)
        soonest = min(next_call, next_event)
        if count[_CHANGED] and soonest > now:
            _share_all(links, transfers, heap, count, now)
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
                    count,
                    site[call],
                    now,
                )
            else:
                for i in range(sites[site[call]].out_of, sites[site[call]].out_of_end):
                    _ask(links, transfers, sites, mine, heap, count, lists[i], now)
            call += 1
            continue
        event = heap[1]
        if is_now and not (count[_HEAP] and _is_before(event, queue[count[_BEGIN]])):
            event = queue[count[_BEGIN]]
            what, a, b = event.what, event.a, event.b
            count[_BEGIN] = (count[_BEGIN] + 1) % len(queue)
        else:
            what, a, b = event.what, event.a, event.b
            _pop(links, heap, count)
        _happen(links, transfers, sites, lists, mine, normals, heap, queue, count, what, a, b, now)
    if until < math.inf:
        for w in links[:-1]:
            if w.on >= 0:
                _move(w, until)
