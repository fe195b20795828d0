"""A WAN on one machine: a network namespace a site, real kernel TCP, links that behave as told."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from runtime.emulate.namespaces import missing as missing
    from runtime.emulate.spec import LinkSpec as LinkSpec
    from runtime.emulate.wan import EmulatedWan as EmulatedWan

_HOMES = {
    "EmulatedWan": "runtime.emulate.wan",
    "LinkSpec": "runtime.emulate.spec",
    "missing": "runtime.emulate.namespaces",
}
__all__ = ["EmulatedWan", "LinkSpec", "missing"]


def __getattr__(name: str) -> Any:
    # Lazy, so that the helper processes start in milliseconds.
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
