"""How the helper processes start, and how everything inside a set of namespaces is ended."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Collection
from pathlib import Path

_ROOT = str(Path(__file__).resolve().parents[2])
_SWEEPS = 50


def helper(module: str, *arguments: object) -> list[str]:
    """The command line of a helper; without site packages and settings it starts quickly."""
    start = f"import sys; sys.path.append({_ROOT!r}); from runtime.emulate.{module} import main; main()"
    return [sys.executable, "-I", "-S", "-c", start, *map(str, arguments)]


def inside(namespaces: Collection[int]) -> list[int]:
    """Processes whose network namespace is one of these inode numbers."""
    found = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            space = os.stat(f"/proc/{entry}/ns/net").st_ino
        except OSError:  # ended meanwhile, or another user's
            continue
        if space in namespaces:
            found.append(int(entry))
    return found


def kill_inside(namespaces: Collection[int]) -> None:
    """Kill every process in these namespaces, whatever its parent, until none is left."""
    for _ in range(_SWEEPS):
        found = inside(namespaces)
        if not found:
            return
        for process in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        time.sleep(0.01)
