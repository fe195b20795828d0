"""Real training over several sites, as a policy says."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from runtime.optimizer import GeoOptimizer as GeoOptimizer
    from runtime.sites import Sites as Sites

_HOMES = {"GeoOptimizer": "runtime.optimizer", "Sites": "runtime.sites"}
__all__ = ["GeoOptimizer", "Sites"]


def __getattr__(name: str) -> Any:
    # Lazy: the emulated WAN lives in this package and starts without torch.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
