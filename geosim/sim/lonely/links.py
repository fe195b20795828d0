"""Links and what is on them, in machine code, as in `sim.network`. `s`: a `state.State`."""

from typing import Any

from geosim.sim.lonely.compiled import inner
from geosim.sim.lonely.flow import end_alone, run, slack, top
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
    if f.has_mark and f.left - f.mark_left <= slack(max(f.speed, top(f)), now):
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
def _look_ahead(s: Any, link: int, now: float) -> None:
    f = s.links[link]
    left = f.left - f.mark_left if f.has_mark else f.left
    ends = end_alone(f, left, f.since, f.round, f.is_opposed)
    set_alarm(s, link, now + max(0.0, ends - now))


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
