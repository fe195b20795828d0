"""Everything that a resume needs, one file a rank and step, readable with `weights_only`.

A save never touches the files of the one before: whenever a run ends, also between two ranks' saves, there
is a step of which every rank has its file, and a resume goes on from the newest such step.

A resumed run is the same run bit for bit. One thing lies outside: torch's DDP regroups its buckets after
its first step, and with three ranks or more in a site the order of its sums follows the buckets.
"""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from geosim.errors import RunError, UsageError
from runtime.sites import Sites

FORMAT = 1
KEPT = 2  # files of a rank; more while another rank lags behind


def path_of(folder: Path, site: str, rank: int, step: int) -> Path:
    """Where one rank's file of one step lies."""
    return folder / f"{site}.rank-{rank}.step-{step}.pt"


def steps_of(folder: Path, site: str, rank: int) -> list[int]:
    """The steps that one rank has files of, ascending."""
    pattern = re.compile(re.escape(f"{site}.rank-{rank}.step-") + r"(\d+)\.pt")
    with contextlib.suppress(OSError):
        return sorted(int(found[1]) for name in os.listdir(folder) if (found := pattern.fullmatch(name)))
    return []


def save(
    folder: Path, sites: Sites, *, model: nn.Module, optimizer: Optimizer, scheduler: LRScheduler, step: int
) -> Path:
    """Write this rank's file; every rank of every site does it at the same step.

    The optimizer completes its rounds in flight first. The file appears whole or not at all. Older files go,
    but for the last ones and for those that some rank has not got beyond.

    Raises:
        RunError: if a round in flight fails.
        UsageError: if the folder cannot be written.
    """
    state = {
        "format": FORMAT,
        "step": step,
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "scheduler": scheduler.state_dict(),
        "rng": torch.get_rng_state(),
    }
    target = path_of(folder, sites.name, sites.rank, step)
    partial = target.with_suffix(".partial")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        torch.save(state, partial)
        os.replace(partial, target)
    except (OSError, RuntimeError) as error:  # torch's writer raises the latter, on a full disk
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)
        reason = getattr(error, "strerror", None) or str(error).strip().split("\n")[0]
        raise UsageError(f"{target}: cannot write: {reason}") from None
    common = sites.post("saved", step)
    held = [held for held in steps_of(folder, sites.name, sites.rank) if held <= step]
    for old in held[:-KEPT]:
        if old < common:
            with contextlib.suppress(OSError):
                path_of(folder, sites.name, sites.rank, old).unlink(missing_ok=True)
    return target


def load(
    folder: Path,
    sites: Sites,
    *,
    model: nn.Module,
    optimizer: Optimizer,
    scheduler: LRScheduler,
) -> int:
    """Read this rank's file of the newest step that all ranks have, into model, optimizer and scheduler.

    Every rank of every site calls it, and looks only at its own files.

    Returns:
        The step to go on from.

    Raises:
        UsageError: if there is no such step, or the file belongs to another model, policy, site or rank.
        RunError: if the sites' files disagree, or a site does not come.
    """
    held = sites.gather("resume", steps_of(folder, sites.name, sites.rank))
    common = set.intersection(*(set(steps) for steps in held.values()))
    if not common:
        raise UsageError(f"{folder}: no step that all ranks have saved: {_shown(held)}")
    source = path_of(folder, sites.name, sites.rank, max(common))
    step = _read(source, model, optimizer, scheduler)
    if step != max(common):
        raise RunError(f"{source}: holds step {step}: rename it, or save again")
    return step


def _read(source: Path, model: nn.Module, optimizer: Optimizer, scheduler: LRScheduler) -> int:
    try:
        state: dict[str, Any] = torch.load(source, map_location="cpu", weights_only=True)
    except OSError as error:
        raise UsageError(f"{source}: cannot read: {error.strerror or error}") from None
    except Exception as error:
        raise UsageError(f"{source}: no checkpoint ({str(error).splitlines()[0]})") from None
    if not isinstance(state, dict) or state.get("format") != FORMAT:
        raise UsageError(f"{source}: no checkpoint of this version")
    try:
        model.load_state_dict(state["model"])
    except RuntimeError as error:
        raise UsageError(f"{source}: another model ({' '.join(str(error).split())[:160]})") from None
    optimizer.load_state_dict(state["optimizer"])
    scheduler.load_state_dict(state["scheduler"])
    torch.set_rng_state(state["rng"])
    return int(state["step"])


def _shown(held: dict[tuple[str, int], list[int]]) -> str:
    rows = [
        f"site '{site}' rank {rank} has {', '.join(map(str, steps)) or 'none'}"
        for (site, rank), steps in held.items()
    ]
    return "; ".join(rows[:4]) + ("; ..." if len(rows) > 4 else "")
