"""The steady state of the same model as the engine's, for millions of policies at once, on arrays.

It holds where sites and links are alike and nothing is random; every entry says whether it does, and if not,
why. Agreement with the engine: to rounding without slow start, within 1 % with it.

Written over array namespaces: a batch whose times, sizes or rates are JAX arrays gives JAX arrays, and
derivatives under `jax.jvp`. Not under `jax.jit`: the walk ends once TCP's windows have settled.
"""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from geosim.cost.transport import send_time, window_after, window_restart
from geosim.sim.batch import TEXT, WALKED, Batch, Reason, batch_from
from geosim.sim.walk import walk

__all__ = ["TEXT", "Batch", "Reason", "SteadyState", "batch_from", "steady_state"]

_ROUNDS = 12
_CHUNK = 16384  # rows at once: what they need fits a processor's cache
_THREADS = 2  # numpy computes outside the interpreter's lock


@dataclass(frozen=True)
class SteadyState:
    """One entry a policy; seconds and bytes a step. Where `applies` is false the figures are estimates.

    Attributes:
        step_s: a step, everything included.
        exposed_s: of it waiting for the WAN.
        exchange_s: one WAN round, mean over fragments.
        link_bytes: on the wire over each directed link.
        compute_utilization, tokens_per_s, relative_to_colocated, wan_bytes_vs_ddp: as in `Result`.
        applies: whether the closed form holds.
        reason: a `Reason`.
    """

    step_s: np.ndarray
    exposed_s: np.ndarray
    exchange_s: np.ndarray
    link_bytes: np.ndarray
    compute_utilization: np.ndarray
    tokens_per_s: np.ndarray
    relative_to_colocated: np.ndarray
    wan_bytes_vs_ddp: np.ndarray
    applies: np.ndarray
    reason: np.ndarray


def steady_state(batch: Batch) -> SteadyState:
    """The steady state of every policy of a batch."""
    parts = [batch.take(slice(at, at + _CHUNK)) for at in range(0, len(batch), _CHUNK)]
    if len(parts) == 1:
        return _some(parts[0])
    with ThreadPoolExecutor(_THREADS) as pool:
        states = list(pool.map(_some, parts))
    xp = batch.namespace
    return SteadyState(
        **{name: xp.concatenate([getattr(part, name) for part in states]) for name in vars(states[0])}
    )


def _some(b: Batch) -> SteadyState:
    xp = b.namespace
    streamed = b.lag >= 0
    period, exchange, wait, settled = _boundary(b)
    reason = b.reason.copy()
    if streamed.any():
        rows = np.flatnonzero(streamed)
        *found, queue = _streaming(b.take(rows))
        whole = (period, exchange, wait, settled)
        period, exchange, wait, settled = (_put(w, rows, f) for w, f in zip(whole, found, strict=True))
        reason[rows] = np.where((reason[rows] == 0) & queue, Reason.CONTENTION, reason[rows])
    flat = ~np.isnan(b.flat_s)
    reason = np.where((reason == 0) & ~settled & ~flat, Reason.UNSETTLED, reason)
    if xp is np and reason.any():
        rows = np.flatnonzero(np.isin(reason, WALKED))
        walked = walk([b.walks[i] for i in b.walk[rows]], b.interval[rows])
        reason[rows] = np.where(walked.settled, Reason.APPLIES, Reason.UNSETTLED)
        reason[rows[walked.overtakes]] = Reason.SHARED
        for column, value in zip((period, exchange, wait), walked.seconds, strict=True):
            column[rows[walked.settled]] = value[walked.settled]
    step = xp.where(flat, b.flat_s, period / b.interval)
    exposed = xp.where(flat, b.flat_exposed_s, wait / b.interval)
    sent = xp.where(flat, b.flat_bytes, b.size_bytes.sum(axis=1) * b.link_payloads / b.interval)
    ddp = xp.where(b.ddp_wan_bytes > 0, b.ddp_wan_bytes, np.inf)
    return SteadyState(
        step_s=step,
        exposed_s=exposed,
        exchange_s=xp.where(flat, b.flat_exchange_s, exchange),
        link_bytes=sent,
        compute_utilization=b.compute_s / step,
        tokens_per_s=b.tokens_per_step / step,
        relative_to_colocated=b.colocated_step_s / step,
        wan_bytes_vs_ddp=sent * b.links / ddp,
        applies=reason == 0,
        reason=reason,
    )


def _put(whole: Any, rows: np.ndarray, part: Any) -> Any:
    """`whole` with its `rows` replaced; JAX arrays are immutable."""
    if not isinstance(whole, np.ndarray):
        return whole.at[rows].set(part)
    whole[rows] = part
    return whole


def _wire(b: Batch, f: int, window: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Fragment f's exchange from a given window, its receivers ready.

    Returns:
        seconds from entering the exchange to the last receipt; to the last byte's leaving; and the window
        then.
    """
    xp = b.namespace
    size, limit = b.size_bytes[:, f], b.window_limit[:, f]
    used = size > 0
    safe = xp.where(used, size, 1.0)
    flight, stream = b.rtt_s / 2, b.stream[:, f]
    left = arrived = free = first = part = xp.zeros(len(b))
    hops = int(b.hops.max(initial=0))
    for hop in range(hops):
        now = used & (hop < b.hops)
        gone = end = send_time(safe, b.rate, b.rtt_s, window, limit, stream)
        begin = first
        if hop:
            # The first slice is there, and the link has sent the payload before; the last slice comes last.
            begin = xp.maximum(free, first)
            gone = begin + gone
            end = xp.maximum(gone, arrived + part / xp.minimum(b.rate, stream))
        if hop + 1 < hops:
            part = xp.where(used, b.slice_bytes[:, f], 1.0)
            free = gone
            first = begin + send_time(part, b.rate, b.rtt_s, window, limit, stream) + flight
        left = xp.where(now, end, left)
        arrived = xp.where(now, end + flight, arrived)
        window = xp.where(now, window_after(xp.minimum(window, limit), safe, limit), window)
    idle = b.hops == 0
    return xp.where(idle | ~used, 0.0, arrived), left, window


def _restart(b: Batch, f: int, window: np.ndarray, idle: np.ndarray) -> np.ndarray:
    return b.namespace.asarray(window_restart(window, idle, b.window_first[:, f], b.rto_s, b.restarts))


def _boundary(b: Batch) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Blocking, delayed and eager with one fragment: (window, exchange, wait, whether TCP settled).

    A window takes the longest of three cycles: the site's own work; the worker, one exchange after another,
    each half a round trip after the last, since the receivers' notices leave only then; and an exchange
    between its sending and its use `delay` windows later.
    """
    xp = b.namespace
    work = b.interval * b.steady_s + b.encode_s[:, 0]
    own = work + b.after_s[:, 0]
    window = b.window_first[:, 0]
    settled = np.zeros(len(b), dtype=bool)
    period, exchange = own, xp.zeros(len(b))
    for _ in range(_ROUNDS):
        arrived, left, after = _wire(b, 0, window)
        wire = arrived + b.decode_s[:, 0]
        again = wire + xp.where(b.hops > 0, b.rtt_s / 2, 0.0)
        period = xp.maximum(xp.maximum(own, again), (own + wire) / (b.delay + 1))
        notice = xp.where(own < again, again - wire - xp.where(b.delay == 0, own, 0.0), 0.0)
        notice = xp.maximum(notice, 0.0)
        exchange = wire + notice
        last = xp.where(b.mutual, exchange, left + notice)
        following = _restart(b, 0, after, period - last)
        settled = following == window
        if settled.all():
            break
        window = following
    return period, exchange, period - own, settled


def _streaming(b: Batch) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Staggered fragments: (cycle, exchange, wait, whether TCP settled, whether exchanges may queue).

    Holds if every exchange is through before its result is due and before the next fragment leaves, or else
    if results are due before the next fragment leaves, so that one exchange at a time is on the way.
    """
    xp = b.namespace
    used = b.size_bytes > 0
    count = used.sum(axis=1)
    spacing = b.interval // count
    order = [*range(1, b.size_bytes.shape[1]), 0]
    free = b.lag * b.steady_s
    window = b.window_first[:, 0]
    wires = [b.decode_s[:, f] for f in range(len(order))]
    waits = list(wires)
    settled = np.zeros(len(b), dtype=bool)
    for _ in range(_ROUNDS):
        before = window
        for f in order:
            arrived, left, after = _wire(b, f, window)
            wires[f] = arrived + xp.where(used[:, f], b.decode_s[:, f], 0.0)
            waits[f] = xp.maximum(0.0, wires[f] - free) * used[:, f]
            gap = spacing * b.steady_s + b.encode_s[:, f] + b.after_s[:, f] + waits[f]
            last = xp.where(b.mutual, wires[f], left)
            window = xp.where(used[:, f], _restart(b, f, after, gap - last), window)
        settled = window == before
        if settled.all():
            break
    wire, wait = xp.stack(wires, axis=1), xp.stack(waits, axis=1)
    hidden = wire.max(axis=1) <= xp.minimum(b.lag, spacing) * b.steady_s
    alone = b.lag < spacing
    own = b.interval * b.steady_s + b.encode_s.sum(axis=1) + b.after_s.sum(axis=1)
    waited = wait.sum(axis=1)
    return own + waited, wire.sum(axis=1) / count, waited, settled, ~(hidden | alone)
