"""How this folder's kernel is compiled. Nothing in it makes an array, so it need not count references, which
would take more than half of its time."""

from pathlib import Path
from typing import Any

import numpy as np
from numba import njit

from geosim.machine_code import compiler

_HERE = Path(__file__).resolve().parent
_OPTIONS: dict[str, Any] = {"error_model": "numpy", "no_cfunc_wrapper": True, "_nrt": False}

Array = np.ndarray
_njit: Any = njit
compiled: Any = compiler(_HERE, sorted(_HERE.glob("*.py")), **_OPTIONS)
inner: Any = _njit(
    nogil=True, no_cpython_wrapper=True, forceinline=True, **_OPTIONS
)  # kept with what calls it
