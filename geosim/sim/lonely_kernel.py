"""One exchange over links that no two payloads share, event by event, in machine code.

The events, their order at equal times and the arithmetic are those of `sim.exchange` and `sim.network`, so
that both give the same numbers; what each step means is said there. What two functions here do with one flow
is `network.Flow`'s, what a window becomes is `cost.transport`'s.
"""

import math
from heapq import heappop, heappush
from typing import Any

import numpy as np
from numba import njit

from geosim.sim.lonely_state import Laws, Net, Play, State

# As in `network`.
_TINY, _TINY_BYTES, _TINY_SHARE_OF_TIME = 1e-12, 1e-6, 1e-15
POST, ENTER = 0, 1  # what a site does
_START, _ALARM, _LEFT, _MARKED, _TAKE, _ARRIVE, _FREE = range(7)  # what happens in an exchange
# The columns of `Play.flow`; `network.Flow` says what they are.
_F_LEFT, _BURST, _SINCE, _RATE, _ROUND, _PAUSED, _WINDOW, _LIMIT, _FULL, _RTT = range(10)
_STREAM, _OPPOSED, _IS_OPPOSED, _MARK_LEFT, _HAS_MARK, _IS_ALONE, _FLOWS = range(10, 17)
_EVENTS, _CHANGED, _THROUGH = range(3)  # what `Play.count` counts

Heap = list[tuple[float, int, int, int, int]]


_compiled: Any = njit(cache=True, nogil=True)


# One flow.


@_compiled
def _begin(
    f: np.ndarray, size: float, flows: int, rtt: float, window: float, limit: float, full: float, now: float
) -> None:
    f[:] = 0.0
    f[_F_LEFT], f[_FLOWS], f[_RTT], f[_FULL], f[_SINCE] = size, flows, rtt, full, now
    f[_WINDOW], f[_LIMIT] = min(window, limit), limit
    _begin_round(f, now)


@_compiled
def _begin_round(f: np.ndarray, now: float) -> None:
    f[_ROUND], f[_PAUSED] = now, -1.0
    limit, full = f[_LIMIT], f[_FULL]
    most = limit if full == 0 and f[_RTT] > 0 else min(limit, full * (1 - _TINY))
    if f[_WINDOW] < most:
        f[_BURST] = f[_WINDOW]
    else:
        f[_BURST] = full if limit >= full and full > 0 else math.inf


@_compiled
def _cap(f: np.ndarray) -> float:
    if f[_BURST] < math.inf:
        return math.inf
    return f[_OPPOSED] if f[_IS_OPPOSED] else f[_STREAM]


@_compiled
def _advance(f: np.ndarray, now: float) -> float:
    moved = 0.0
    if f[_RATE] > 0 and now > f[_SINCE]:
        moved = min(f[_RATE] * (now - f[_SINCE]), f[_F_LEFT])
        f[_F_LEFT] -= moved
        f[_BURST] -= moved
    f[_SINCE] = now
    return moved


@_compiled
def _tiny(f: np.ndarray, now: float) -> float:
    return _TINY_BYTES + f[_RATE] * _TINY_SHARE_OF_TIME * (1 + now)


@_compiled
def _is_through(f: np.ndarray, now: float) -> bool:
    tiny = _tiny(f, now)
    if f[_F_LEFT] <= tiny:
        return True
    if f[_PAUSED] >= 0:
        if f[_PAUSED] <= now:
            f[_WINDOW] = min(2 * f[_WINDOW], f[_LIMIT])
            _begin_round(f, now)
    elif f[_BURST] <= tiny:
        until = f[_ROUND] + f[_RTT]
        f[_BURST] = math.inf
        if now < until - _TINY * (1 + now):
            f[_PAUSED] = until
    return False


@_compiled
def _part_ends(f: np.ndarray, rate: float) -> float:
    if f[_PAUSED] >= 0:
        f[_RATE] = 0.0
        return f[_PAUSED]
    f[_RATE] = rate
    ahead = min(f[_F_LEFT], f[_BURST])
    if f[_HAS_MARK] and f[_F_LEFT] > f[_MARK_LEFT]:
        ahead = min(ahead, f[_F_LEFT] - f[_MARK_LEFT])
    return f[_SINCE] + ahead / rate


@_compiled
def _run(f: np.ndarray, rate: float, until: float) -> None:
    while True:
        end = _part_ends(f, min(_cap(f), rate))
        if end > until:
            _advance(f, until)
            return
        _advance(f, end)
        if _is_through(f, end):
            return


@_compiled
def _window_after(window: float, size: float, limit: float) -> float:
    window = max(window, 1.0)
    full = max(np.ceil(math.log2(size / window + 1)) - 1, 0.0)
    rest = size - window * (2.0**full - 1)
    largest = max(window * 2.0 ** (full - 1) if full > 0 else 0.0, rest)
    return min(max(window, min(window + size, 2 * largest)), limit)


@_compiled
def _window_restart(window: float, idle: float, first: float, rto: float) -> float:
    halvings = min(np.floor(max(idle, 0.0) / rto), 60.0)
    return min(max(window * 0.5**halvings, first), window)


# Links.


@_compiled
def _push(p: Play, heap: Heap, at: float, what: int, a: int, b: int) -> None:
    p.count[_EVENTS] += 1
    heappush(heap, (at, p.count[_EVENTS], what, a, b))


@_compiled
def _draw(net: Net, state: State, link: int) -> float:
    if net.jitter[link] == 0:
        return net.delay[link]
    drawn = state.normals[link, state.drawn[link]]
    state.drawn[link] += 1
    return max(0.0, net.delay[link] + net.jitter[link] * drawn)


@_compiled
def _move(net: Net, state: State, p: Play, link: int, now: float) -> None:
    f = p.flow[link]
    before = f[_F_LEFT]
    if f[_IS_ALONE]:
        _run(f, net.rate[link], now)
        moved = before - f[_F_LEFT]
    else:
        moved = _advance(f, now)
    if moved > 0:
        state.carried[link] += moved


@_compiled
def _change(p: Play, k: int) -> None:
    if not p.is_changed[k]:
        p.is_changed[k] = 1
        p.changed[p.count[_CHANGED]] = k
        p.count[_CHANGED] += 1


@_compiled
def _oppose(net: Net, state: State, p: Play, link: int, is_opposed: int, now: float) -> None:
    if link >= 0 and p.on[link] >= 0 and p.flow[link, _OPPOSED] != p.flow[link, _STREAM]:
        _move(net, state, p, link, now)
        p.flow[link, _IS_OPPOSED] = is_opposed
        _change(p, p.on[link])


@_compiled
def _set_alarm(p: Play, heap: Heap, link: int, delay: float, now: float) -> None:
    p.alarm[link] += 1
    _push(p, heap, now + max(0.0, delay), _ALARM, link, p.alarm[link])


@_compiled
def _share_all(net: Net, state: State, p: Play, heap: Heap, now: float) -> None:
    changed = p.count[_CHANGED]
    p.count[_CHANGED] = 0
    for i in range(changed):
        k = p.changed[i]
        p.is_changed[k] = 0
        link = net.link_of[k]
        if p.on[link] == k:
            _share(net, state, p, heap, link, now)


@_compiled
def _share(net: Net, state: State, p: Play, heap: Heap, link: int, now: float) -> None:
    _move(net, state, p, link, now)
    f = p.flow[link]
    if not f[_HAS_MARK]:
        ahead = p.flow[-1]
        ahead[:] = f
        f[_IS_ALONE] = 1
        _run(ahead, net.rate[link], math.inf)
        _set_alarm(p, heap, link, ahead[_SINCE] - now, now)
        return
    f[_IS_ALONE] = 0
    n = f[_FLOWS]
    rate = n * min(_cap(f) / n, net.rate[link] / n)
    _set_alarm(p, heap, link, _part_ends(f, rate) - now, now)


@_compiled
def _on_alarm(net: Net, state: State, p: Play, heap: Heap, link: int, now: float) -> None:
    f = p.flow[link]
    if f[_IS_ALONE]:
        _end(net, state, p, heap, link, now)
        return
    _move(net, state, p, link, now)
    if f[_HAS_MARK] and f[_F_LEFT] - f[_MARK_LEFT] <= _tiny(f, now):
        f[_HAS_MARK] = 0
        _push(p, heap, now, _MARKED, link, p.mark_place[link])
    k = p.on[link]
    if _is_through(f, now):
        _end(net, state, p, heap, link, now)
    _change(p, k)


@_compiled
def _end(net: Net, state: State, p: Play, heap: Heap, link: int, now: float) -> None:
    k = p.on[link]
    state.carried[link] += p.flow[link, _F_LEFT]
    p.on[link] = -1
    _oppose(net, state, p, net.back[link], 0, now)
    _push(p, heap, now, _LEFT, k, 0)


# Transfers.


@_compiled
def _post(net: Net, laws: Laws, state: State, p: Play, heap: Heap, site: int, f: int, now: float) -> None:
    for i in range(net.into_at[site], net.into_at[site + 1]):
        k = net.into[i]
        link = net.link_of[k]
        back = net.back[link]
        if back >= 0:
            state.silent[back] = max(state.silent[back], now)
        state.ready[f, k] = now + _draw(net, state, link)
        _one_less(net, laws, state, p, heap, f, k, now)


@_compiled
def _ask(net: Net, laws: Laws, state: State, p: Play, heap: Heap, f: int, k: int, now: float) -> None:
    p.asked[k] = now
    _one_less(net, laws, state, p, heap, f, k, now)


@_compiled
def _one_less(net: Net, laws: Laws, state: State, p: Play, heap: Heap, f: int, k: int, now: float) -> None:
    state.missing[f, k] -= 1
    if state.missing[f, k] == 0:
        wait = state.ready[f, k] - now
        if wait > 0:
            _push(p, heap, now + wait, _START, k, 0)
        else:
            _start(net, laws, state, p, heap, k, now)


@_compiled
def _start(net: Net, laws: Laws, state: State, p: Play, heap: Heap, k: int, now: float) -> None:
    link = net.link_of[k]
    place = p.ready_count[link]
    p.ready_count[link] += 1
    if place + 1 <= laws.held[link] or p.is_free[net.place[link] + place]:
        _close(p, net.source[k], now)
    else:
        p.waits[net.place[link] + place] = 1
    if p.busy[link] or state.free[link] > now:
        if p.head[link] < 0:
            p.head[link] = k
        else:
            p.following[p.tail[link]] = k
        p.tail[link] = k
        if not p.busy[link]:
            _push(p, heap, state.free[link], _FREE, link, 0)
        p.busy[link] = 1
    else:
        p.busy[link] = 1
        _send(net, laws, state, p, heap, k, now)


@_compiled
def _dequeue(net: Net, laws: Laws, state: State, p: Play, heap: Heap, link: int, now: float) -> None:
    k = p.head[link]
    if k < 0:
        p.busy[link] = 0
    else:
        p.head[link] = p.following[k]
        _send(net, laws, state, p, heap, k, now)


@_compiled
def _send(net: Net, laws: Laws, state: State, p: Play, heap: Heap, k: int, now: float) -> None:
    link = net.link_of[k]
    f, size, limit, first = p.flow[link], laws.size[link], laws.limit[link], laws.first[link]
    window, rtt, rate, back = state.window[link], net.rtt[link], net.rate[link], net.back[link]
    if window < 0:
        window = first
    else:
        idle = p.asked[k] - state.silent[link]
        if net.restarts[link] and idle >= net.rto[link]:
            window = _window_restart(window, idle, first, net.rto[link])
    state.window[link] = _window_after(window, size, limit)
    _begin(f, size, laws.flows, rtt, window, limit, rtt * rate, now)
    f[_STREAM], f[_OPPOSED] = laws.stream[link], min(laws.stream[link], laws.opposed[link])
    f[_IS_OPPOSED] = back >= 0 and p.on[back] >= 0
    _oppose(net, state, p, back, 1, now)
    p.on[link] = k
    whole = np.floor(laws.held[link])
    place = p.sent_count[link] + whole
    p.sent_count[link] += 1
    if place < net.load[link]:
        p.mark_place[link] = int(place)
        f[_HAS_MARK], f[_MARK_LEFT] = 1, size - (1.0 - (laws.held[link] - whole)) * size
        _change(p, k)
        return
    f[_IS_ALONE] = 1
    ahead = p.flow[-1]
    ahead[:] = f
    ahead[_SINCE] = ahead[_ROUND] = 0.0
    _run(ahead, rate, math.inf)
    _set_alarm(p, heap, link, ahead[_SINCE], now)


@_compiled
def _close(p: Play, site: int, now: float) -> None:
    p.open_[site] -= 1
    if p.open_[site] == 0:
        p.done[site] = now
        p.order[p.count[_THROUGH]] = site
        p.count[_THROUGH] += 1


@_compiled
def _happen(
    net: Net, laws: Laws, state: State, p: Play, heap: Heap, of: int, what: int, a: int, b: int, now: float
) -> None:
    if what == _START:
        _start(net, laws, state, p, heap, a, now)
    elif what == _ALARM:
        if b == p.alarm[a]:
            _on_alarm(net, state, p, heap, a, now)
    elif what == _LEFT:
        link = net.link_of[a]
        state.silent[link] = state.free[link] = now
        _dequeue(net, laws, state, p, heap, link, now)
        _push(p, heap, now + _draw(net, state, link), _ARRIVE, a, 0)
    elif what == _MARKED:
        _push(p, heap, now + net.rtt[a], _TAKE, a, b)
    elif what == _TAKE:
        place = net.place[a] + b
        if p.waits[place]:
            p.waits[place] = 0
            _close(p, net.sender[a], now)
        else:
            p.is_free[place] = 1
    elif what == _ARRIVE:
        _close(p, net.target[a], now)
        for i in range(net.later_at[a], net.later_at[a + 1]):
            _ask(net, laws, state, p, heap, of, net.later[i], now)
    else:
        _dequeue(net, laws, state, p, heap, a, now)


@_compiled
def play(
    net: Net,
    laws: Laws,
    state: State,
    p: Play,
    of: int,
    calls: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray],
    until: float,
) -> None:
    """Let an exchange of fragment `of` go on until a time, or until all its bytes are there.

    `calls`: what sites have done since the exchange before, in order: when, what, who, with which fragment.
    At one instant what sites do comes first.
    """
    at, kind, site, which = calls
    heap = [(0.0, 0, 0, 0, 0) for _ in range(0)]
    now, call = 0.0, 0
    while True:
        next_call = at[call] if call < len(at) else math.inf
        next_event = heap[0][0] if len(heap) else math.inf
        soonest = min(next_call, next_event)
        if p.count[_CHANGED] and soonest > now:
            _share_all(net, state, p, heap, now)
            continue
        if soonest > until or soonest == math.inf:
            break
        now = soonest
        if next_event < next_call:
            _, _, what, a, b = heappop(heap)
            _happen(net, laws, state, p, heap, of, what, a, b, now)
            continue
        m = site[call]
        if kind[call] == POST:
            _post(net, laws, state, p, heap, m, which[call], now)
        else:
            for i in range(net.out_of_at[m], net.out_of_at[m + 1]):
                _ask(net, laws, state, p, heap, of, net.out_of[i], now)
        call += 1
    if until < math.inf:
        for link in range(len(p.on)):
            if p.on[link] >= 0:
                _move(net, state, p, link, until)
