"""A transfer on its link, as `sim.flow.Flow`, and its window, as `cost.transport`, in machine code."""

import math
from typing import Any

import numpy as np

from geosim.sim.lonely.compiled import inner

# As in `sim.flow`.
TINY, TINY_BYTES, TINY_SHARE_OF_TIME = 1e-12, 1e-6, 1e-15


@inner
def begin_round(f: Any, now: float) -> None:
    f.round, f.paused = now, -1.0
    f.burst = f.in_flight if f.in_flight < _most(f) else _filling(f)


@inner
def _most(f: Any) -> float:
    full = f.rtt * f.rate
    return f.limit if full == 0 and f.rtt > 0 else min(f.limit, full * (1 - TINY))


@inner
def _filling(f: Any) -> float:
    full = f.rtt * f.rate
    if _is_short(f):
        return min(min(full, f.opposed * f.rtt * (1 + TINY)), f.limit)
    return full if f.limit >= full and full > 0 else math.inf


@inner
def _is_short(f: Any) -> bool:
    return not f.paced and f.limit < f.rtt * f.rate


@inner
def _rounds_alike(f: Any, left: float, since: float, until: float) -> tuple[float, float]:
    """How many go at once, and how many bytes are left then."""
    filling = _filling(f)
    told = left - slack(f.rate, since)
    rounds = max(np.ceil(told / filling * (1 - TINY)) - 1.0, 0.0)
    more = rounds
    if until < math.inf:
        rounds = min(rounds, np.floor((until - since) / f.rtt))
    left -= rounds * filling
    if rounds == more and left > filling:
        left = filling
    return rounds, left


@inner
def cap(f: Any) -> float:
    if f.burst < math.inf:
        return math.inf
    return f.opposed if f.is_opposed else f.stream


@inner
def advance(f: Any, now: float) -> float:
    moved = 0.0
    if f.speed > 0 and now > f.since:
        moved = min(f.speed * (now - f.since), f.left)
        f.left -= moved
        f.burst -= moved
    f.since = now
    return moved


@inner
def slack(rate: float, now: float) -> float:
    return TINY_BYTES + rate * TINY_SHARE_OF_TIME * (1 + now)


@inner
def is_through(f: Any, now: float) -> bool:
    tiny = slack(f.speed, now)
    if f.left <= tiny:
        return True
    if f.paused >= 0:
        if f.paused <= now:
            f.in_flight = min(2 * f.in_flight, f.limit)
            begin_round(f, now)
    elif f.burst <= tiny:
        until = f.round + f.rtt
        f.burst = math.inf
        if (f.in_flight < _most(f) or _is_short(f)) and now < until - TINY * (1 + now):
            f.paused = until
    return False


@inner
def part_ends(f: Any, rate: float) -> float:
    if f.paused >= 0:
        f.speed = 0.0
        return f.paused
    f.speed = rate
    return f.since + min(f.left, f.burst) / rate


@inner
def run(f: Any, until: float) -> None:
    while True:
        end = part_ends(f, min(cap(f), f.rate))
        if end > until:
            advance(f, until)
            return
        advance(f, end)
        was_paused = f.paused >= 0
        if is_through(f, end):
            return
        if was_paused and f.paused < 0 and f.in_flight >= _most(f) and _is_short(f) and f.left > _filling(f):
            rounds, f.left = _rounds_alike(f, f.left, f.since, until)
            f.since += rounds * f.rtt
            f.round = f.since


@inner
def end_alone(f: Any, left: float, since: float, round_start: float, is_opposed: int) -> float:
    """When `left` bytes have left: `run` to the end, of a copy whose numbers are never stored."""
    burst, paused, window = f.burst, f.paused, f.in_flight
    stream = min(f.opposed if is_opposed else f.stream, f.rate)
    most, filling, short = _most(f), _filling(f), _is_short(f)
    pauses = window < most or short
    while True:
        if paused >= 0:
            since = round_start = paused
            paused = -1.0
            window = min(2 * window, f.limit)
            burst = window if window < most else filling
            pauses = window < most or short
            if short and window >= most and left > filling:
                rounds, left = _rounds_alike(f, left, since, math.inf)
                since += rounds * f.rtt
                round_start = since
        speed = f.rate if burst < math.inf else stream
        end = since + min(left, burst) / speed
        if end > since:
            moved = min(speed * (end - since), left)
            left -= moved
            burst -= moved
        since = end
        tiny = TINY_BYTES + speed * TINY_SHARE_OF_TIME * (1 + since)
        if left <= tiny:
            return since
        if burst <= tiny:
            burst = math.inf
            if pauses and since < round_start + f.rtt - TINY * (1 + since):
                paused = round_start + f.rtt


@inner
def window_after(window: float, size: float, limit: float) -> float:
    window = max(window, 1.0)
    full = max(np.ceil(math.log2(size / window + 1)) - 1, 0.0)
    rest = size - window * (2.0**full - 1)
    largest = max(window * 2.0 ** (full - 1) if full > 0 else 0.0, rest)
    return min(max(window, min(window + size, 2 * largest)), limit)


@inner
def window_restart(window: float, idle: float, first: float, rto: float) -> float:
    halvings = min(np.floor(max(idle, 0.0) / rto), 60.0)
    return min(max(window * 0.5**halvings, first), window)
