"""How kernels are compiled: without the interpreter's lock, and kept on disk while their source is as it was.

To tell whether what it has kept is still good, numba looks only at a kernel's own file, although a kernel
holds the code of those it calls. So the folder is named after the source of all of them.
"""

import os
import shutil
from collections.abc import Callable, Iterable
from hashlib import blake2b
from pathlib import Path
from typing import Any

_NAME = "kernels-"
Decorator = Callable[[Callable[..., Any]], Any]


def compiler(home: Path, sources: Iterable[Path], **options: object) -> Decorator:
    """A decorator: a function in machine code.

    Args:
        home: the folder of the kernels' source; what is kept lies there, in `__pycache__`.
        sources: files that any of the kernels has code of.
        options: more for `numba.njit`.
    """
    import numba

    settings: Any = numba.config
    njit: Any = numba.njit
    folder = str(_folder(home, sources))

    def kernel(function: Callable[..., Any]) -> Any:
        before = settings.CACHE_DIR
        if not before:
            settings.CACHE_DIR = folder
        try:
            return njit(cache=True, nogil=True, **options)(function)
        finally:
            settings.CACHE_DIR = before

    return kernel


def _folder(home: Path, sources: Iterable[Path]) -> Path:
    """Beside the source if one may write there, else with the user's other caches; older ones go."""
    digest = blake2b(digest_size=8)
    for path in sources:
        digest.update(path.read_bytes())
    base = home / "__pycache__"
    if not os.access(base if base.exists() else home, os.W_OK):
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "geosim" / home.name
    folder = base / f"{_NAME}{digest.hexdigest()}"
    for old in base.glob(f"{_NAME}*"):
        if old != folder:
            shutil.rmtree(old, ignore_errors=True)
    return folder
