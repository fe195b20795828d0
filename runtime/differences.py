"""In which fields two documents differ, where only their hashes have to be equal."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

DOCUMENT = "_document"  # after a fact's name: the plain data (JSON) whose hash the fact is
_SHOWN = 3


def differences(mine: Any, theirs: Any) -> str:
    """The fields in which two plain documents differ, with both values; the first few of many."""
    here, there = dict(_leaves(mine)), dict(_leaves(theirs))
    names = [name for name in {**here, **there} if here.get(name) != there.get(name)]
    shown = [f"{name} {here.get(name, 'unset')} and {there.get(name, 'unset')}" for name in names[:_SHOWN]]
    more = [f"and {len(names) - _SHOWN} more"] if len(names) > _SHOWN else []
    return ", ".join([*shown, *more])


def _leaves(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted names and values; what a document is called is none of what it says."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        if name or key not in ("name", "about"):
            yield from _leaves(item, f"{name}.{key}" if name else str(key))
    if not isinstance(value, dict | list):
        yield name, value
