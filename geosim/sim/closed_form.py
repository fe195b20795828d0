"""The steady state of the same model as the engine's, for millions of policies at once, on arrays.

It holds where sites and links are alike and nothing is random; every entry says whether it does, and if not,
why. Agreement with the engine: to rounding without slow start, within 1 % with it.

Written over array namespaces: a batch whose times, sizes or rates are JAX arrays gives JAX arrays, and
derivatives under `jax.jvp`. Not under `jax.jit`: the walk ends once TCP's windows have settled.
"""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import numpy as np

from geosim.sim.batch import TEXT, WALKED, Batch, Reason, batch_from
from geosim.sim.cycles import Cycle, boundary, rows_of, streaming
from geosim.sim.walk import walk

__all__ = ["TEXT", "Batch", "Reason", "SteadyState", "batch_from", "steady_state"]

_CHUNK = 16384  # rows at once: what they need fits a processor's cache
_MANY = 500_000  # rows that take arrays about as long as loading machine code
_THREADS = os.cpu_count() or 1  # numpy and machine code run outside the interpreter's lock
_KINDS = (*(float,) * 8, bool, np.int64)  # of the columns of a `SteadyState`


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
    if batch.namespace is not np or len(batch) <= _CHUNK:
        return _finished(batch, by_arrays(batch))
    cycles = _in_machine_code() if len(batch) >= _MANY and find_spec("numba") is not None else by_arrays
    out = SteadyState(*(np.empty(len(batch), dtype=kind) for kind in _KINDS))

    def work(at: int) -> None:
        rows = slice(at, at + _CHUNK)
        part = batch.take(rows)
        found = _finished(part, cycles(part))
        for whole, values in zip(vars(out).values(), vars(found).values(), strict=True):
            whole[rows] = values

    with ThreadPoolExecutor(_THREADS) as pool:
        list(pool.map(work, range(0, len(batch), _CHUNK)))
    return out


def _in_machine_code() -> Callable[[Batch], Cycle]:
    from geosim.sim.compiled_cycles import by_rows

    return by_rows


def by_arrays(b: Batch) -> Cycle:
    """The cycle of every row, by arrays."""
    row = rows_of(b)
    found = boundary(row)
    rows = np.flatnonzero(b.lag >= 0)
    if len(rows):
        parts = streaming(rows_of(b.take(rows)))
        found = Cycle(*(_put(whole, rows, part) for whole, part in zip(found, parts, strict=True)))
    return found


def _finished(b: Batch, cycle: Cycle) -> SteadyState:
    """What follows from the cycles, and from the walk where the closed form leaves it to that."""
    xp = b.namespace
    period, exchange, wait, settled, queues = cycle
    flat = ~np.isnan(b.flat_s)
    reason = np.where((b.reason == 0) & queues, Reason.CONTENTION, b.reason)
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
