"""`sim.cycles` in machine code, row by row: the same lines and the same laws, compiled for plain numbers.

Importing it loads numba.
"""

from inspect import isfunction
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from numba import njit
from numba.extending import overload, register_jitable

from geosim.cost import sending
from geosim.machine_code import compiler
from geosim.sim import cycles
from geosim.sim.batch import Batch
from geosim.sim.cycles import FORMS, Cycle, Row, boundary, rows_of, streaming

_SOURCES = [Path(__file__), Path(cycles.__file__), Path(sending.__file__)]
# Nothing here makes an array, so it need not count references, which would take most of its time.
_OPTIONS: dict[str, Any] = {"error_model": "numpy", "_nrt": False}
_njit: Any = njit(**_OPTIONS)

# Laws ask `namespace` for the functions that they use; compiled ones get those for plain numbers.
_numbers: Any = ModuleType("numbers")
for _name, _law in vars(sending.Numbers).items():
    if isinstance(_law, staticmethod):
        _plain: Any = _law.__func__
        setattr(_numbers, _name, _njit(_plain) if isfunction(_plain) else _plain)
# A whole power of two is its exponent's bits; the C library takes ten times as long.
_numbers.exp2 = _njit(lambda value: np.int64((int(value) + 1023) << 52).view(np.float64))
overload(sending.namespace)(lambda *values: lambda *values: _numbers)
for _law in (*sending.LAWS, *FORMS):
    register_jitable(**_OPTIONS)(_law)


@compiler(Path(__file__).resolve().parent, _SOURCES, **_OPTIONS)
def _fill(rows: Row, out: Cycle) -> None:
    for i in range(len(rows.interval)):
        row = Row(
            rows.interval[i],
            rows.delay[i],
            rows.lag[i],
            rows.steady_s[i],
            rows.encode_s[:, i],
            rows.after_s[:, i],
            rows.decode_s[:, i],
            rows.size_bytes[:, i],
            rows.slice_bytes[:, i],
            rows.window_limit[:, i],
            rows.window_first[:, i],
            rows.stream[:, i],
            rows.hops[i],
            rows.mutual[i],
            rows.rate[i],
            rows.rtt_s[i],
            rows.rto_s[i],
            rows.restarts[i],
            rows.paced[i],
        )
        found = streaming(row) if row.lag >= 0 else boundary(row)
        out.period_s[i] = found.period_s
        out.exchange_s[i] = found.exchange_s
        out.wait_s[i] = found.wait_s
        out.settled[i] = found.settled
        out.queues[i] = found.queues


def by_rows(batch: Batch) -> Cycle:
    """The cycle of each row."""
    out = Cycle(*(np.empty(len(batch), dtype=kind) for kind in (float, float, float, bool, bool)))
    _fill(rows_of(batch), out)
    return out
