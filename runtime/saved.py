"""Where checkpoints lie: a file a rank and step, and which step all ranks have."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from geosim.errors import UsageError


def path_of(folder: Path, site: str, rank: int, step: int) -> Path:
    """Where one rank's file of one step lies."""
    return folder / f"{site}.rank-{rank}.step-{step}.pt"


def steps_of(folder: Path, site: str, rank: int) -> list[int]:
    """The steps that one rank has files of, ascending."""
    pattern = re.compile(re.escape(f"{site}.rank-{rank}.step-") + r"(\d+)\.pt")
    with contextlib.suppress(OSError):
        return sorted(int(found[1]) for name in os.listdir(folder) if (found := pattern.fullmatch(name)))
    return []


def partials_of(folder: Path, site: str, rank: int) -> list[Path]:
    """What one rank has begun to write; only a run that was killed leaves such files."""
    pattern = re.compile(re.escape(f"{site}.rank-{rank}.step-") + r"\d+\.partial")
    with contextlib.suppress(OSError):
        return [folder / name for name in os.listdir(folder) if pattern.fullmatch(name)]
    return []


def common_step(folder: Path, held: Mapping[tuple[str, int], Sequence[int]]) -> int:
    """The newest step that all have files of; `held`: those of each (site, rank).

    Raises:
        UsageError: if there is none, saying what each has.
    """
    common = set.intersection(*(set(steps) for steps in held.values()))
    if not common:
        raise UsageError(f"{folder}: no step that all ranks have saved: {_shown(held)}")
    return max(common)


@contextlib.contextmanager
def only_writer(folder: Path) -> Iterator[None]:
    """Hold a folder, so that no other run saves there meanwhile; without effect where files cannot be locked.

    Raises:
        UsageError: if another run holds it.
    """
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        raise UsageError(f"--save {folder}: another run saves there now: name another folder") from None
    except OSError:
        pass
    try:
        yield
    finally:
        os.close(handle)


def _shown(held: Mapping[tuple[str, int], Sequence[int]]) -> str:
    rows = [  # who lacks most first
        f"site '{site}' rank {rank} has {', '.join(map(str, steps)) or 'none'}"
        for (site, rank), steps in sorted(held.items(), key=lambda item: len(item[1]))
    ]
    return "; ".join(rows[:4]) + ("; ..." if len(rows) > 4 else "")
