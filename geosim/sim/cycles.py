"""A cycle of a policy where sites and links are alike: what it takes, what an exchange takes, what is waited.

Every line holds for one policy as well as for arrays of them: the same functions run on numpy and JAX arrays
(`sim.closed_form`) and, compiled, on one row after another (`sim.compiled_cycles`).
"""

from typing import Any, NamedTuple

from geosim.cost.sending import namespace, send_time, window_after, window_pace, window_restart
from geosim.sim.batch import Batch

_ROUNDS = 12  # cycles until TCP's windows have settled, at most


class Row(NamedTuple):
    """Columns of `Batch`, each an array [n], fragments' [F, n]; or one policy's numbers, fragments' [F]."""

    interval: Any
    delay: Any
    lag: Any
    steady_s: Any
    encode_s: Any
    after_s: Any
    decode_s: Any
    size_bytes: Any
    slice_bytes: Any
    window_limit: Any
    window_first: Any
    stream: Any
    hops: Any
    mutual: Any
    rate: Any
    rtt_s: Any
    rto_s: Any
    restarts: Any
    paced: Any


def rows_of(batch: Batch) -> Row:
    """The columns of a batch that cycles follow from."""
    return Row(*(getattr(batch, name).T for name in Row._fields))  # a column of one axis is its own transpose


class Cycle(NamedTuple):
    """Seconds of a cycle, of an exchange (mean over fragments), and of what a cycle waits for the WAN.

    settled: whether TCP's windows have. queues: whether exchanges of different fragments may.
    """

    period_s: Any
    exchange_s: Any
    wait_s: Any
    settled: Any
    queues: Any


def _wire(row: Row, f: int, window: Any) -> tuple[Any, Any, Any]:
    """Fragment f's exchange from a given window, its receivers ready.

    Returns:
        seconds from entering the exchange to the last receipt; to the last byte's leaving; and the window
        then.
    """
    xp = namespace(*row)
    size, limit = row.size_bytes[f], row.window_limit[f]
    used = size > 0
    safe = xp.where(used, size, 1.0)
    part = xp.where(used, row.slice_bytes[f], 1.0)
    flight, stream = row.rtt_s / 2, row.stream[f]
    left = arrived = free = first = 0.0 * row.rtt_s
    last = part / xp.minimum(xp.minimum(row.rate, stream), window_pace(limit, row.rtt_s))
    hops = xp.max(row.hops)
    for hop in range(hops):
        now = used & (hop < row.hops)
        # The first slice is there, and the link has sent the payload before; the last slice comes last.
        begin = xp.maximum(free, first)
        free = begin + send_time(safe, row.rate, row.rtt_s, window, limit, stream, row.paced)
        end = xp.maximum(free, arrived + last) if hop else free
        if hop + 1 < hops:
            first = begin + send_time(part, row.rate, row.rtt_s, window, limit, stream, row.paced) + flight
        left = xp.where(now, end, left)
        arrived = xp.where(now, end + flight, arrived)
        window = xp.where(now, window_after(xp.minimum(window, limit), safe, limit), window)
    return arrived, left, window


def _restart(row: Row, f: int, window: Any, idle: Any) -> Any:
    return window_restart(window, idle, row.window_first[f], row.rto_s, row.restarts)


def _one_fragment(row: Row, before: Any) -> tuple[Cycle, Any]:
    """One cycle from a given window, and the window after it."""
    xp = namespace(*row)
    own = row.interval * row.steady_s + row.encode_s[0] + row.after_s[0]
    arrived, left, window = _wire(row, 0, before)
    wire = arrived + row.decode_s[0]
    again = wire + xp.where(row.hops > 0, row.rtt_s / 2, 0.0)
    period = xp.maximum(xp.maximum(own, again), (own + wire) / (row.delay + 1))
    notice = xp.where(own < again, again - wire - xp.where(row.delay == 0, own, 0.0), 0.0)
    notice = xp.maximum(notice, 0.0)
    exchange = wire + notice
    last = xp.where(row.mutual, exchange, left + notice)
    window = _restart(row, 0, window, period - last)
    return Cycle(period, exchange, period - own, window == before, 0 * row.lag > 0), window


def _all_fragments(row: Row, spacing: Any, window: Any) -> tuple[Any, Any, Any, Any]:
    """A cycle from a given window: the sum of all exchanges, the longest, what is waited, the window then."""
    xp = namespace(*row)
    fragments = len(row.size_bytes)
    free = row.lag * row.steady_s
    total = longest = waited = 0.0 * row.steady_s
    for place in range(fragments):
        f = (place + 1) % fragments  # fragment 0 leaves at the end of a cycle
        used = row.size_bytes[f] > 0
        arrived, left, after = _wire(row, f, window)
        wire = arrived + xp.where(used, row.decode_s[f], 0.0)
        wait = xp.where(used, xp.maximum(wire - free, 0.0), 0.0)
        gap = spacing * row.steady_s + row.encode_s[f] + row.after_s[f] + wait
        last = xp.where(row.mutual, wire, left)
        window = xp.where(used, _restart(row, f, after, gap - last), window)
        total, longest, waited = total + wire, xp.maximum(longest, wire), waited + wait
    return total, longest, waited, window


def boundary(row: Row) -> Cycle:
    """Blocking, delayed and eager with one fragment.

    A window takes the longest of three cycles: the site's own work; the worker, one exchange after another,
    each half a round trip after the last, since the receivers' notices leave only then; and an exchange
    between its sending and its use `delay` windows later.
    """
    xp = namespace(*row)
    window = row.window_first[0]
    for _ in range(_ROUNDS):
        found, window = _one_fragment(row, window)
        if xp.all(found.settled):
            break
    return found


def streaming(row: Row) -> Cycle:
    """Staggered fragments, one after another through a cycle.

    Holds if every exchange is through before its result is due and before the next fragment leaves, or else
    if results are due before the next fragment leaves, so that one exchange at a time is on the way.
    """
    xp = namespace(*row)
    fragments = len(row.size_bytes)
    own, count = row.interval * row.steady_s, 0 * row.interval
    for f in range(fragments):
        own = own + row.encode_s[f] + row.after_s[f]
        count = count + (row.size_bytes[f] > 0)
    spacing = row.interval // count
    window = row.window_first[0]
    for _ in range(_ROUNDS):
        before = window
        total, longest, waited, window = _all_fragments(row, spacing, before)
        settled = window == before
        if xp.all(settled):
            break
    queues = (longest > xp.minimum(row.lag, spacing) * row.steady_s) & (row.lag >= spacing)
    return Cycle(own + waited, total / count, waited, settled, queues)


FORMS = (_wire, _restart, _one_fragment, _all_fragments, boundary, streaming)
