"""Transfers from their sources' asking to their arrival, in machine code, as in `sim.exchange`.

`s`: a `state.State`; `notices`: those of the exchange's fragment.
"""

import math
from typing import Any

import numpy as np

from geosim.sim.lonely.compiled import Array, inner
from geosim.sim.lonely.flow import begin, end_alone, pace, window_after, window_restart
from geosim.sim.lonely.heap import ARRIVE, FREE, PASS_ON, START, TAKE, THROUGH, push, set_alarm
from geosim.sim.lonely.links import draw, oppose


@inner
def post(s: Any, notices: Array, site: int, now: float) -> None:
    for i in range(s.sites[site].into, s.sites[site].into_end):
        k = s.lists[i]
        link = s.transfers[k].link
        back = s.links[link].back
        if back >= 0:
            _talks(s, back, now)
        notices[k].ready = now + draw(s, link)
        _one_less(s, notices, k, now)


@inner
def enter(s: Any, notices: Array, site: int, now: float) -> None:
    for i in range(s.sites[site].out_of, s.sites[site].out_of_end):
        _ask(s, notices, s.lists[i], now)


@inner
def pass_on(s: Any, notices: Array, k: int, now: float) -> None:
    for i in range(s.transfers[k].later, s.transfers[k].later_end):
        _ask(s, notices, s.lists[i], now)


@inner
def _ask(s: Any, notices: Array, k: int, now: float) -> None:
    s.transfers[k].asked = now
    _one_less(s, notices, k, now)


@inner
def _one_less(s: Any, notices: Array, k: int, now: float) -> None:
    notice = notices[k]
    notice.missing -= 1
    if notice.missing == 0:
        wait = notice.ready - now
        if wait > 0:
            push(s, now + wait, START, k, 0)
        else:
            start(s, k, now)


@inner
def start(s: Any, k: int, now: float) -> None:
    link = s.transfers[k].link
    w = s.links[link]
    place = s.transfers[w.place + w.ready]
    w.ready += 1
    if w.ready <= w.held or place.has_room:
        close(s, w.sender, now)
    else:
        place.waits = 1
    if not w.is_busy and w.free <= now:
        w.is_busy = 1
        _send(s, k, now)
        return
    if not w.is_busy:
        w.is_busy = 1
        push(s, w.free, FREE, link, 0)
    if w.head < 0:
        w.head = k
    else:
        s.transfers[w.tail].following = k
    w.tail = k


@inner
def dequeue(s: Any, link: int, now: float) -> None:
    w = s.links[link]
    k = w.head
    if k < 0:
        w.is_busy = 0
    else:
        w.head = s.transfers[k].following
        _send(s, k, now)


@inner
def _send(s: Any, k: int, now: float) -> None:
    t = s.transfers[k]
    link = t.link
    f = s.links[link]
    window = f.window
    if window < 0:
        window = f.first
    elif not f.trickles:
        idle = t.asked - f.silent
        if f.restarts and idle >= f.rto:
            window = window_restart(window, idle, f.first, f.rto)
    f.window = window_after(window, f.payload, f.limit)
    f.left, f.since, f.speed, f.in_flight = f.payload, now, 0.0, min(window, f.limit)
    f.is_opposed = 1 if f.back >= 0 and s.links[f.back].on >= 0 else 0
    begin(f, now)
    oppose(s, f.back, 1, now)
    f.on = k
    whole = np.floor(f.held)
    place = f.sent + whole
    f.sent += 1
    f.has_mark, f.mark_left = 0, 0.0
    if place < f.load:
        f.has_mark, f.mark_place = 1, int(place)
        f.mark_left = f.payload - (1.0 - (f.held - whole)) * f.payload
    set_alarm(s, link, now + end_alone(f, f.left - f.mark_left, 0.0, 0.0, f.is_opposed))
    t.delay = draw(s, link)
    if t.later < t.later_end:
        push(s, now + (end_alone(f, f.slice, 0.0, 0.0, 0) + t.delay), PASS_ON, k, 0)


@inner
def left(s: Any, k: int, now: float) -> None:
    t = s.transfers[k]
    w = s.links[t.link]
    _talks(s, t.link, now)
    w.free = now
    dequeue(s, t.link, now)
    if t.need < 0:
        push(s, now + t.delay, ARRIVE, k, 0)
    elif s.transfers[t.need].came == math.inf:
        t.trickles = 1
        w.trickles += 1
    else:
        _cross(s, k, max(0.0, s.transfers[t.need].came + _last_slice(w) - now), now)


@inner
def _cross(s: Any, k: int, last: float, now: float) -> None:
    t = s.transfers[k]
    _talks(s, t.link, now + last)
    push(s, now + (last + t.delay), ARRIVE, k, 0)


@inner
def _last_slice(w: Any) -> float:
    return w.slice / min(w.rate, w.stream, pace(w))


@inner
def arrive(s: Any, k: int, now: float) -> None:
    t = s.transfers[k]
    t.came = now
    close(s, t.target, now)
    for i in range(t.later, t.later_end):
        later = s.transfers[s.lists[i]]
        if later.trickles:
            w = s.links[later.link]
            w.trickles -= 1
            _talks(s, later.link, now)
            _cross(s, s.lists[i], _last_slice(w), now)


@inner
def take(s: Any, link: int, number: int, now: float) -> None:
    place = s.transfers[s.links[link].place + number]
    if place.waits:
        close(s, s.links[link].sender, now)
    else:
        place.has_room = 1


@inner
def marked(s: Any, link: int, place: int, now: float) -> None:
    push(s, now + s.links[link].rtt, TAKE, link, place)


@inner
def _talks(s: Any, link: int, until: float) -> None:
    s.links[link].silent = max(s.links[link].silent, until)


@inner
def close(s: Any, site: int, now: float) -> None:
    m = s.sites[site]
    m.waits_for -= 1
    if m.waits_for == 0:
        m.done, m.order = now, s.counts[THROUGH]
        s.counts[THROUGH] += 1
