"""Everything that a resume needs, one file a rank, readable with `weights_only`.

A resumed run is the same run bit for bit. One thing lies outside: torch's DDP regroups its buckets after
its first step, and with three ranks or more in a site the order of its sums follows the buckets.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from geosim.errors import UsageError

FORMAT = 1


def path_of(folder: Path, site: str, rank: int) -> Path:
    """Where one rank's file lies."""
    return folder / f"{site}.rank-{rank}.pt"


def save(
    folder: Path,
    site: str,
    rank: int,
    *,
    model: nn.Module,
    optimizer: Optimizer,
    scheduler: LRScheduler,
    step: int,
) -> Path:
    """Write this rank's file; every rank of every site does it at the same step.

    The optimizer completes its rounds in flight first. The file appears whole or not at all.

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
    target = path_of(folder, site, rank)
    partial = target.with_suffix(".partial")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        torch.save(state, partial)
        os.replace(partial, target)
    except OSError as error:
        raise UsageError(f"{target}: cannot write: {error.strerror or error}") from None
    return target


def load(
    folder: Path, site: str, rank: int, *, model: nn.Module, optimizer: Optimizer, scheduler: LRScheduler
) -> int:
    """Read this rank's file into model, optimizer and scheduler.

    Returns:
        The step to go on from.

    Raises:
        UsageError: if there is no such file, or it belongs to another model, policy, site or rank.
        RunError: if the sites' files are of different steps.
    """
    source = path_of(folder, site, rank)
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
