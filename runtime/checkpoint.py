"""Everything that a resume needs, one file a rank and step, readable with `weights_only`.

A save never touches the files of the one before: whenever a run ends, also between two ranks' saves, there
is a step of which every rank has its file, and a resume goes on from the newest such step.

A resumed run is the same run bit for bit. One thing lies outside: torch's DDP regroups its buckets after
its first step, and with three ranks or more in a site the order of its sums follows the buckets.
"""

from __future__ import annotations

import contextlib
import errno
import os
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from geosim.errors import GeosimError, RunError, UsageError
from runtime.saved import common_step, partials_of, path_of, steps_of
from runtime.sites import Sites

FORMAT = 2
_PARTS = {"format", "step", "run", "model", "optimizer", "scheduler", "rng"}
_REMEDY = "remove it, and all ranks go on from an older step, if they have one"
KEPT = 2  # files of a rank; more while another rank lags behind


def save(
    folder: Path,
    sites: Sites,
    *,
    model: nn.Module,
    optimizer: Optimizer,
    scheduler: LRScheduler,
    step: int,
    run: Mapping[str, Any] | None = None,
) -> Path:
    """Write this rank's file; every rank of every site does it at the same step.

    `run` is kept with it for whoever loads it: plain data on what it belongs to.

    The optimizer completes its rounds in flight first. The file appears whole or not at all. Older files go,
    but for the last ones and for those that some rank has not got beyond.

    Raises:
        RunError: if a round in flight fails.
        UsageError: if the folder cannot be written.
    """
    state = {
        "format": FORMAT,
        "step": step,
        "run": None if run is None else dict(run),
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
        with partial.open("rb") as written:
            os.fsync(written.fileno())  # or after a loss of power there may be an empty file of this name
        os.replace(partial, target)
    except (OSError, RuntimeError) as error:
        reason = _why(error, partial)
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)
        raise UsageError(f"{target}: cannot write: {reason}") from None
    tidy(folder, sites, step)
    return target


def tidy(folder: Path, sites: Sites, step: int) -> None:
    """Remove this rank's older files, but for the last ones and for those that some rank has not got beyond.

    Also what an earlier run was writing when it was killed. `step`: which this rank has saved.
    """
    common = sites.post("saved", step)
    held = [held for held in steps_of(folder, sites.name, sites.rank) if held <= step]
    gone = [path_of(folder, sites.name, sites.rank, old) for old in held[:-KEPT] if old < common]
    for path in [*gone, *partials_of(folder, sites.name, sites.rank)]:
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)


def load(
    folder: Path,
    sites: Sites,
    *,
    model: nn.Module,
    optimizer: Optimizer,
    scheduler: LRScheduler,
    accept: Callable[[Any], None] | None = None,
    note: Callable[[str], None] | None = None,
) -> int:
    """Read this rank's file of the newest step that all ranks have, into model, optimizer and scheduler.

    Every rank of every site calls it, and looks only at its own files. `accept` sees what was saved as `run`
    before anything changes, and may refuse it by raising a UsageError. `note` is told, in a line, if some
    ranks have newer files than the others.

    Returns:
        The step to go on from.

    Raises:
        UsageError: if there is no such step, or the file belongs to another model, policy, site or rank.
        RunError: if the sites' files disagree, or a site does not come.
    """
    held = sites.gather("resume", steps_of(folder, sites.name, sites.rank))
    step = common_step(folder, held)
    source = path_of(folder, sites.name, sites.rank, step)
    state = read(source)
    newest = max(max(steps) for steps in held.values())
    if newest > step and note is not None:
        site, rank = next(who for who, steps in held.items() if newest not in steps)
        note(
            f"--resume: from step {step}, the newest that all ranks have: site '{site}' rank {rank} has none "
            f"of step {newest}"
        )
    if state["step"] != step:
        raise RunError(f"{source}: holds step {state['step']}: rename it, or save again")
    if accept is not None:
        accept(state["run"])
    _restore(source, state, model, optimizer, scheduler)
    return step


def read(source: Path, *, mapped: bool = False) -> dict[str, Any]:
    """A file's content; `mapped`: its tensors are read only where they are looked at, and not checked.

    Raises:
        UsageError: if it cannot be read, is damaged, or is no checkpoint of this version.
    """
    try:
        if not mapped:
            _check_sums(source)
        state: dict[str, Any] = torch.load(source, map_location="cpu", weights_only=True, mmap=mapped)
    except Exception as error:
        if isinstance(error, OSError) and error.errno != errno.EINVAL:  # zipfile's, of a file that is cut off
            raise UsageError(f"{source}: cannot read: {error.strerror or error}") from None
        why = "is empty" if source.stat().st_size == 0 else "is cut off, or no checkpoint at all"
        if zipfile.is_zipfile(source):
            why = f"is damaged ({(str(error).strip() or type(error).__name__).splitlines()[0][:120]})"
        raise UsageError(f"{source}: {why}: {_REMEDY}") from None
    if not isinstance(state, dict) or state.get("format") != FORMAT or not state.keys() >= _PARTS:
        raise UsageError(f"{source}: no checkpoint of this version: start anew without it")
    return state


def _check_sums(source: Path) -> None:
    """Hold the file against the checksums in it, which torch writes and does not look at."""
    with zipfile.ZipFile(source) as parts:
        damaged = parts.testzip()
    if damaged is not None:
        raise ValueError(f"checksum of {damaged} does not match")


def _restore(
    source: Path, state: dict[str, Any], model: nn.Module, optimizer: Optimizer, scheduler: LRScheduler
) -> None:
    try:
        model.load_state_dict(state["model"])
    except RuntimeError as error:
        raise UsageError(f"{source}: another model ({' '.join(str(error).split())[:160]})") from None
    try:
        optimizer.load_state_dict(state["optimizer"])
    except GeosimError:
        raise
    except (KeyError, ValueError) as error:
        raise UsageError(f"{source}: another optimizer ({type(error).__name__}: {error})") from None
    scheduler.load_state_dict(state["scheduler"])
    torch.set_rng_state(state["rng"])


def _why(error: Exception, file: Path) -> str:
    """Why a file could not be written: torch's writer does not tell of a full disk."""
    try:
        if isinstance(error, RuntimeError):
            with file.open("ab") as more:
                more.write(bytes(1 << 16))
    except OSError as cause:
        error = cause
    return getattr(error, "strerror", None) or str(error).strip().split("\n")[0]
