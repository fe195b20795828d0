"""How kernels are compiled: without the interpreter's lock, and kept on disk while their source is as it was.

To tell whether what it has kept is still good, numba looks only at a kernel's own file, although a kernel
holds the code of those it calls. So the folder is named after the source of all of them.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from hashlib import blake2b
from pathlib import Path
from typing import Any

from numba import config as _config
from numba import njit

from geosim.policy.maths import quantize

_HERE = Path(__file__).resolve().parent
_NAME = "kernels-"
settings: Any = _config


def kernel(function: Callable[..., Any]) -> Any:
    """Decorator: `function` in machine code."""
    before = settings.CACHE_DIR
    if not before:
        settings.CACHE_DIR = str(_FOLDER)
    try:
        return njit(cache=True, nogil=True)(function)
    finally:
        settings.CACHE_DIR = before


def _folder() -> Path:
    """Beside the source if one may write there, else with the user's other caches; older ones go."""
    digest = blake2b(digest_size=8)
    for path in (*sorted(_HERE.glob("*.py")), Path(quantize.__file__)):
        digest.update(path.read_bytes())
    base = _HERE / "__pycache__"
    if not os.access(base if base.exists() else _HERE, os.W_OK):
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "geosim"
    folder = base / f"{_NAME}{digest.hexdigest()}"
    for old in base.glob(f"{_NAME}*"):
        if old != folder:
            shutil.rmtree(old, ignore_errors=True)
    return folder


_FOLDER = _folder()
