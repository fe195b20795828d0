"""How a transfer's bytes leave: windows, pauses, bursts and stream, as laws of one path.

Every law holds for plain numbers as well as for arrays of numpy and JAX, and is compiled for single rows
(`sim.compiled_cycles`). Bytes are on the wire, times in seconds; flows that are alike count together. Slow
start as RFC 5681 has it; restart after idle as in Linux (`tcp_cwnd_restart`).
"""

import math
from typing import Any

import numpy as np
from array_api_compat import array_namespace

_TINY = 1e-12


class Numbers:
    """What the laws use of an array namespace, for plain numbers: some ten times as fast as numpy on them."""

    asarray = staticmethod(lambda value, dtype=float: float(value))
    where = staticmethod(lambda condition, yes, no: yes if condition else no)
    maximum = staticmethod(lambda a, b: a if a >= b else b)
    minimum = staticmethod(lambda a, b: a if a <= b else b)
    ceil = staticmethod(lambda value: float(math.ceil(value)))
    floor = staticmethod(lambda value: float(math.floor(value)))
    logical_not = staticmethod(lambda value: not value)
    log2 = staticmethod(math.log2)
    exp2 = staticmethod(lambda value: math.ldexp(1.0, int(value)))  # of whole numbers, exactly
    log = staticmethod(math.log)
    exp = staticmethod(math.exp)
    max = staticmethod(lambda value: value)
    all = staticmethod(lambda value: value)


def namespace(*values: Any) -> Any:
    """The array namespace of the first value that is neither a number nor a numpy array; else numpy's.

    Finite Python numbers alone have a namespace of their own; infinity has numpy's, whose rounding knows it.
    """
    found: Any = Numbers
    for value in values:
        if type(value) is float or type(value) is int:
            if not -math.inf < value < math.inf:
                found = np
        elif isinstance(value, np.ndarray | np.generic):
            found = np
        else:
            return array_namespace(value)
    return found


def window_after(window: Any, size_bytes: Any, limit: Any) -> Any:
    """The window after `size_bytes` were sent and acknowledged.

    Slow start adds what is acknowledged, while the window is less than twice the most that was in flight at
    once (Linux, `tcp_is_cwnd_limited`): of bursts of 1, 2, 4, ... windows the last full one or the rest.
    """
    xp = namespace(window, size_bytes, limit)
    window, size = xp.maximum(xp.asarray(window, dtype=float), 1.0), xp.asarray(size_bytes, dtype=float)
    full = xp.maximum(xp.ceil(xp.log2(size / window + 1)) - 1, 0.0)
    rest = size - window * (xp.exp2(full) - 1)
    largest = xp.maximum(xp.where(full > 0, window * xp.exp2(full - 1), 0.0), rest)
    return xp.minimum(xp.maximum(window, xp.minimum(window + size, 2 * largest)), limit)


def window_restart(window: Any, idle_s: Any, initial: Any, rto_s: Any, restarts: Any) -> Any:
    """The window after `idle_s` of silence: halved for every `rto_s`, but not below `initial`."""
    xp = namespace(window, idle_s, initial, rto_s)
    halvings = xp.where(restarts, xp.floor(xp.maximum(idle_s, 0.0) / rto_s), 0.0)
    fallen = xp.maximum(window * xp.exp2(-xp.minimum(halvings, 60.0)), initial)
    return xp.minimum(fallen, window)


def send_time(
    size_bytes: Any, rate: Any, rtt_s: Any, window: Any, limit: Any, stream: Any, paced: Any = False
) -> Any:
    """Seconds from the first byte's leaving until the last byte's, scalars or arrays alike.

    Never less with a longer way, if the last byte's crossing is counted, a lower rate or share, a smaller
    limit or more to send; nor with smaller windows, unless paced, where only those at their limit stream.

    Args:
        size_bytes, rate, rtt_s, window, limit, stream, paced: as of `slow_start`.
    """
    xp = namespace(size_bytes, rate, rtt_s, window, limit, stream)
    took, rest, pace = slow_start(size_bytes, rate, rtt_s, window, limit, stream, paced)
    return took + rest / xp.minimum(xp.minimum(xp.asarray(rate, dtype=float), stream), pace)


def slow_start(
    size_bytes: Any, rate: Any, rtt_s: Any, window: Any, limit: Any, stream: Any, paced: Any = False
) -> tuple[Any, Any, Any]:
    """How a transfer begins: what it takes until the rest streams.

    Windows leave a round trip apart, each twice the one before up to `limit`, until one takes a round trip;
    then the rest streams. Flows reach `stream`, but make up for pauses: they have a credit of time, which a
    window's head takes by leaving at `rate`, and what is left of a round trip adds. It is a round trip at
    most, or less if that fills the path, and half a round trip at the start. With more, a shorter way could
    be slower: half a round trip is what the last byte takes to cross.

    Args:
        size_bytes: on the wire.
        rate: the link's share, bytes per second.
        rtt_s: round trip, seconds.
        window: at the start, bytes.
        limit: of the window, bytes.
        stream: bytes per second that flows reach, while as much goes the other way if it may.
        paced: whether windows are spread over a round trip (`Path.paced`): no head leaves faster, and windows
            at their limit stream, too.

    Returns:
        seconds until the rest streams, how many bytes are left then, and the most at which they may go in
        bytes per second, beside `stream`.
    """
    xp = namespace(size_bytes, rate, rtt_s, window, limit, stream)
    size, rtt = xp.asarray(size_bytes, dtype=float), xp.asarray(rtt_s, dtype=float)
    rate = xp.asarray(rate, dtype=float)
    share = xp.minimum(rate, stream)
    held = share * rtt
    room = xp.where(paced, 0.0, xp.minimum(rtt, rtt * (rate - share) / share))
    credit = xp.minimum(room, 0.5 * rtt)
    limit = xp.where(rtt > 0, limit, 1.0)
    window = xp.where(rtt > 0, xp.minimum(window, limit), 1.0)
    # Windows of less than a round trip, of which credit grows.
    least = xp.maximum(xp.minimum(held, limit), window)
    ramp = xp.ceil(xp.log2(least / window))
    ramp = xp.where((ramp > 0) & (window * xp.exp2(ramp - 1) >= least), ramp - 1, ramp)
    need = xp.maximum(xp.ceil(xp.log2(size * (1 - _TINY) / window + 1)) - 1, 0.0)
    rounds = xp.minimum(ramp, need)
    sent = window * (xp.exp2(rounds) - 1)
    left = xp.maximum(size - sent, 0.0)
    credit = xp.minimum(room, credit + rounds * rtt - sent / share)
    window = xp.minimum(window * xp.exp2(rounds), limit)
    # One more that takes longer, while credit lasts.
    more = (need > ramp) & (window < limit) & (window < share * (rtt + credit) * (1 - _TINY))
    credit = credit + xp.where(more, rtt - window / share, 0.0)
    left = left - xp.where(more, window, 0.0)
    window = xp.where(more, xp.minimum(2 * window, limit), window)
    rounds = rounds + xp.where(more, 1.0, 0.0)
    # Windows at their limit, to the end or while credit lasts; a whole one but for rounding is the last.
    extra = window / share - rtt
    alike = xp.maximum(xp.ceil(left / window * (1 - _TINY)) - 1, 0.0)
    alike = xp.minimum(
        alike, xp.where(extra > 0, xp.floor(credit / xp.where(extra > 0, extra, 1.0)), math.inf)
    )
    alike = xp.where((window >= limit) & xp.logical_not(paced), alike, 0.0)
    left, rounds = left - alike * window, rounds + alike
    credit = xp.maximum(xp.minimum(room, credit - alike * extra), 0.0)
    streams = (window >= share * (rtt + credit) * (1 - _TINY)) | (paced & (window >= limit))
    pace = xp.where(streams, window_pace(limit, rtt), math.inf)
    head = xp.minimum(left, burst_head(credit, rate, xp.minimum(share, pace)))
    return rounds * rtt + head / rate, left - head, pace


def burst_head(credit_s: Any, rate: Any, stream: Any) -> Any:
    """Bytes that leave at `rate`, so that sending takes `credit_s` less than at `stream`."""
    xp = namespace(credit_s, rate, stream)
    spare = rate - stream
    return xp.where(spare > 0, credit_s * stream * rate / xp.where(spare > 0, spare, 1.0), 0.0)


def window_pace(limit: Any, rtt_s: Any) -> Any:
    """Bytes per second of windows of `limit`, spread over a round trip."""
    xp = namespace(limit, rtt_s)
    rtt = xp.asarray(rtt_s, dtype=float)
    return xp.where(rtt > 0, limit / xp.where(rtt > 0, rtt, 1.0), math.inf)


LAWS = (
    window_after,
    window_restart,
    window_pace,
    burst_head,
    slow_start,
    send_time,
)  # those of arrays of paths
