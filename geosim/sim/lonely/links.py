"""Links and what is on them, in machine code, as in `sim.network`. `s`: a `state.State`."""

import math
from typing import Any

from geosim.sim.lonely.compiled import inner
from geosim.sim.lonely.flow import run, tiny_bytes
from geosim.sim.lonely.heap import CHANGED, LEFT, MARKED, add_now, set_alarm


@inner
def draw(s: Any, link: int) -> float:
    w = s.links[link]
    if w.jitter == 0:
        return w.delay
    w.drawn += 1
    return max(0.0, w.delay + w.jitter * s.normals[link, w.drawn - 1])


@inner
def move(f: Any, now: float) -> None:
    before = f.left
    run(f, now)
    f.carried += before - f.left


@inner
def advance(s: Any, link: int, now: float) -> None:
    f = s.links[link]
    move(f, now)
    if f.has_mark and f.left - f.mark_left <= tiny_bytes(f, now):
        f.has_mark = 0
        add_now(s, now, MARKED, link, f.mark_place)


@inner
def oppose(s: Any, link: int, is_opposed: int, now: float) -> None:
    if link < 0:
        return
    f = s.links[link]
    if f.on >= 0 and f.opposed != f.stream:
        advance(s, link, now)
        f.is_opposed = is_opposed
        if not s.transfers[f.on].is_changed:
            s.transfers[f.on].is_changed = 1
            s.transfers[s.counts[CHANGED]].changed = f.on
            s.counts[CHANGED] += 1


@inner
def share_all(s: Any, now: float) -> None:
    changed = s.counts[CHANGED]
    s.counts[CHANGED] = 0
    for i in range(changed):
        k = s.transfers[i].changed
        s.transfers[k].is_changed = 0
        link = s.transfers[k].link
        if s.links[link].on == k:
            advance(s, link, now)
            _look_ahead(s, link, now)


@inner
def time_alone(s: Any, link: int, size: float, is_opposed: int) -> float:
    """Of so many bytes that begin to leave now."""
    s.links[-1] = s.links[link]
    ahead = s.links[-1]
    ahead.left, ahead.is_opposed, ahead.has_mark = size, is_opposed, 0
    ahead.since = ahead.round = 0.0
    run(ahead, math.inf)
    return ahead.since


@inner
def _look_ahead(s: Any, link: int, now: float) -> None:
    s.links[-1] = s.links[link]
    ahead = s.links[-1]
    if ahead.has_mark:
        ahead.has_mark = 0
        ahead.left -= ahead.mark_left
    run(ahead, math.inf)
    set_alarm(s, link, now + max(0.0, ahead.since - now))


@inner
def on_alarm(s: Any, link: int, now: float) -> None:
    if s.links[link].has_mark:
        advance(s, link, now)
        _look_ahead(s, link, now)
        return
    f = s.links[link]
    f.carried += f.left
    k, f.on = f.on, -1
    oppose(s, f.back, 0, now)
    add_now(s, now, LEFT, k, 0)
