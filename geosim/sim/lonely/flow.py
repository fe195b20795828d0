"""A transfer on its link, as `sim.flow.Flow`, and its window, as `cost.sending`, in machine code."""

import math
from typing import Any

import numpy as np

from geosim.sim.lonely.compiled import inner

# As in `sim.flow`.
TINY, TINY_BYTES, TINY_SHARE_OF_TIME = 1e-12, 1e-6, 1e-15
HEAD, BODY, STREAM = range(3)


@inner
def begin(f: Any, now: float) -> None:
    f.credit = min(_room(f), 0.5 * f.rtt)
    _begin_round(f, now)


@inner
def _begin_round(f: Any, now: float) -> None:
    f.round, f.paused = now, -1.0
    f.phase, f.burst, f.body = _round(f, f.in_flight, f.credit)


@inner
def _round(f: Any, window: float, credit: float) -> tuple[int, float, float]:
    peak = top(f)
    if peak == 0 < f.rtt:
        return BODY, window, 0.0
    share = min(f.opposed, peak)
    rate, body = share, window
    if window >= share * (f.rtt + credit) * (1 - TINY) or (f.paced and window >= f.limit):
        rate, body = min(share, pace(f)), math.inf
    spare = peak - rate
    if credit <= 0 or spare <= 0:
        return STREAM if body == math.inf else BODY, body, 0.0
    head = min(credit * rate * peak / spare, body)
    return HEAD, head, body - head


@inner
def top(f: Any) -> float:
    return f.rtt * f.rate / f.rtt if f.rtt > 0 else 0.0  # as `Flow.top`


@inner
def _share(f: Any) -> float:
    return min(f.opposed, top(f))


@inner
def _room(f: Any) -> float:
    peak, share = top(f), _share(f)
    return 0.0 if f.paced or not 0 < share < peak else min(f.rtt, f.rtt * (peak - share) / share)


@inner
def pace(f: Any) -> float:
    return f.limit / f.rtt if f.rtt > 0 else math.inf


@inner
def _later(f: Any, window: float, credit: float) -> tuple[float, float]:
    """A round trip later: the window and the credit."""
    share = _share(f)
    if share > 0:
        credit = min(_room(f), credit + f.rtt - window / share)
    return min(2 * window, f.limit), credit


@inner
def _rounds_alike(
    f: Any, left: float, credit: float, since: float, until: float
) -> tuple[float, float, float]:
    """How many go at once, and how many bytes and what credit are left then."""
    share = _share(f)
    told = left - slack(top(f), since)
    whole = max(np.ceil(told / f.limit * (1 - TINY)) - 1.0, 0.0)
    rounds, extra = whole, f.limit / share - f.rtt
    if extra > 0:
        rounds = min(rounds, np.floor(credit / extra))
    if until < math.inf:
        rounds = min(rounds, np.floor((until - since) / f.rtt))
    left -= rounds * f.limit
    if rounds == whole:
        left = min(left, f.limit)
    return rounds, left, max(min(_room(f), credit - rounds * extra), 0.0)


@inner
def _are_alike(f: Any, window: float, left: float) -> bool:
    return window == f.limit and left > f.limit and _share(f) > 0 and not f.paced


@inner
def _cap(f: Any) -> float:
    if f.phase == HEAD:
        return math.inf
    reached = f.opposed if f.is_opposed else f.stream
    return min(reached, pace(f)) if f.phase == STREAM else reached


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
            f.in_flight, f.credit = _later(f, f.in_flight, f.credit)
            _begin_round(f, now)
    elif f.burst <= tiny:
        until = f.round + f.rtt
        if f.body > tiny:
            f.phase = STREAM if f.body == math.inf else BODY
            f.burst, f.body = f.body, 0.0
        elif now < until - TINY * (1 + now):
            f.burst, f.paused = math.inf, until
        else:
            f.phase, f.burst = STREAM, math.inf
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
        end = part_ends(f, min(_cap(f), f.rate))
        if end > until:
            advance(f, until)
            return
        advance(f, end)
        was_paused = f.paused >= 0
        if is_through(f, end):
            return
        if was_paused and f.paused < 0 and _are_alike(f, f.in_flight, f.left):
            rounds, f.left, f.credit = _rounds_alike(f, f.left, f.credit, f.since, until)
            f.since += rounds * f.rtt
            _begin_round(f, f.since)


@inner
def end_alone(f: Any, left: float, since: float, round_start: float, is_opposed: int) -> float:
    """When `left` bytes have left: `run` to the end, of a copy whose numbers are never stored."""
    burst, body, phase, paused = f.burst, f.body, f.phase, f.paused
    window, credit = f.in_flight, f.credit
    reached = min(f.opposed if is_opposed else f.stream, f.rate)
    streaming = min(reached, pace(f))
    while True:
        if paused >= 0:
            since = round_start = paused
            paused = -1.0
            window, credit = _later(f, window, credit)
            if _are_alike(f, window, left):
                rounds, left, credit = _rounds_alike(f, left, credit, since, math.inf)
                since += rounds * f.rtt
                round_start = since
            phase, burst, body = _round(f, window, credit)
        speed = streaming if phase == STREAM else reached if phase == BODY else f.rate
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
            if body > tiny:
                phase, burst, body = STREAM if body == math.inf else BODY, body, 0.0
            elif since < round_start + f.rtt - TINY * (1 + since):
                burst, paused, body = math.inf, round_start + f.rtt, 0.0
            else:
                phase, burst, body = STREAM, math.inf, 0.0


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
