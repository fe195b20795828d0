"""What a run is given, looked at before anything starts or is written."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from geosim.errors import UsageError
from runtime import data
from runtime.job import Job
from runtime.resume import check_same
from runtime.saved import common_step, path_of, steps_of


def check_inputs(job: Job, places: Sequence[tuple[str, int]]) -> None:
    """Refuse data and folders that the ranks would stumble over.

    Args:
        job: what is to run.
        places: (site, rank) of those whose checkpoints lie on this machine.

    Raises:
        UsageError: one line that names the option, what is wrong and the remedy.
    """
    if job.data is not None:
        data.check(job.data, job.scenario.workload.sequence)
    if job.resume is not None:
        _check_resume(job, Path(job.resume), places)
    if job.save is not None:
        _check_save(job, Path(job.save), places)


def _check_resume(job: Job, folder: Path, places: Sequence[tuple[str, int]]) -> None:
    if not folder.is_dir():
        what = "a file" if folder.exists() else "no such folder"
        raise UsageError(f"--resume {folder}: {what}: name the folder that --save has filled")
    try:
        step = common_step(folder, {place: steps_of(folder, *place) for place in places})
        # One rank alone cannot tell: others may lag behind its newest file.
        done = step >= job.steps and len(places) == sum(job.all_ranks)
        if not done:
            from runtime import checkpoint  # only now: it loads torch

            for place in places:
                state = checkpoint.read(path_of(folder, *place, step), mapped=True)
                if place == places[0]:
                    check_same(state["run"], job)
    except UsageError as error:
        named = str(error).startswith(str(folder))
        raise UsageError(f"--resume {error}" if named else f"--resume {folder}: {error}") from None
    if done:
        raise UsageError(f"--steps {job.steps}: the checkpoint stands at step {step}: give more steps")


def _check_save(job: Job, folder: Path, places: Sequence[tuple[str, int]]) -> None:
    """What another run has saved would be taken for this one's."""
    if job.resume is not None and Path(job.resume).resolve() == folder.resolve():
        return
    if any(steps_of(folder, *place) for place in places):
        raise UsageError(
            f"--save {folder}: holds another run's checkpoints: name another folder, or --resume from it"
        )
