"""What a resumed run may change of the run that was saved, and what it may not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from geosim.errors import UsageError
from runtime.job import Job

Facts = dict[str, Any]


def facts_of(job: Job, data: str) -> Facts:
    """What a checkpoint says of its run: plain data. `data`: a fingerprint of what is trained on."""
    workload, policy = job.scenario.workload, job.policy.to_dict()
    model = {name: value for name, value in workload.model.to_dict().items() if name != "name"}
    return {
        "fixed": {
            "sites": list(job.sites),
            "ranks": job.all_ranks[0] if len(set(job.all_ranks)) == 1 else list(job.all_ranks),
            "workload": {
                "model": model,
                "sequence": workload.sequence,
                "batch_per_accelerator": workload.batch_per_accelerator,
                **({"batches": list(job.batches)} if len(set(job.batches)) > 1 else {}),
            },
            "policy": {name: value for name, value in policy.items() if name not in ("name", "about")},
        },
        "steps": job.steps,
        "lr": job.lr,
        "seed": job.seed,
        "data": data,
    }


def check_same(saved: Any, job: Job) -> None:
    """Refuse to go on from another model, batch, policy or other sites.

    Args:
        saved: what `facts_of` said of the run that is resumed; None if its checkpoint says nothing.
        job: the run that resumes.

    Raises:
        UsageError: naming the first field that differs, both values and the remedy.
    """
    if saved is None:
        raise UsageError("no run of `georun` has saved it: load it in the loop that did")
    was, now = (dict(_leaves(facts["fixed"])) for facts in (saved, facts_of(job, "")))
    for name in [*now, *(name for name in was if name not in now)]:
        if was.get(name) != now.get(name):
            raise UsageError(
                f"its run had {name} {_shown(was.get(name))} and this one has {_shown(now.get(name))}: "
                "give the same, or start anew without --resume"
            )


def changes(saved: Facts, job: Job, data: str, step: int) -> list[str]:
    """One line on each thing that a resumed run does otherwise, from `step` on, than the saved one."""
    now = facts_of(job, data)
    after = f"from step {step + 1} on"
    lines = {
        "steps": f"the learning rate follows the schedule of {job.steps} steps {after}",
        "lr": f"the learning rate's peak is {job.lr:g} {after}",
        "seed": f"the data come in another order {after}",
        "data": f"it trains on other text {after}",
    }
    return [
        f"--{name}: the resumed run had {saved[name]} and this one has {now[name]}: {line}"
        for name, line in lines.items()
        if saved[name] != now[name]
    ]


def _leaves(facts: Facts, prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in facts.items():
        if isinstance(value, dict):
            yield from _leaves(value, f"{prefix}{name}.")
        else:
            yield prefix + name, list(value) if isinstance(value, tuple) else value


def _shown(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)
