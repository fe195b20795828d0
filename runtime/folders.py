"""Folders that a run will write to, checked before it starts."""

from __future__ import annotations

import tempfile
from pathlib import Path

from geosim.errors import UsageError


def make_writable(option: str, folder: Path) -> None:
    """Make a folder and write a file there that does not stay.

    Raises:
        UsageError: naming the option and what is wrong.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise UsageError(
            f"{option} {folder}: cannot write there ({error.strerror or error}): name another folder"
        ) from None
