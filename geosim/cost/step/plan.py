"""The best ways to divide a step over a site."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from geosim.cost.compute import flops_per_token, tokens_per_accelerator
from geosim.cost.step.check import describe, fits
from geosim.cost.step.describe import machine_of, shape_of
from geosim.cost.step.grid import make_grid, parallel_at
from geosim.cost.step.memory import memory
from geosim.cost.step.step import step_time
from geosim.errors import UsageError
from geosim.scenario import Parallel, Site, Workload


@dataclass(frozen=True)
class Choice:
    """One way to divide a step.

    Attributes:
        parallel: as a scenario states it; `words`: the same in words, with the data degree.
        step_s: seconds of a step inside the site.
        mfu: model FLOPs over peak.
        memory_bytes: on the accelerator that needs most.
        bubble_share: of the step, idle while the pipeline fills and drains.
    """

    parallel: Parallel
    words: str
    step_s: float
    mfu: float
    memory_bytes: float
    bubble_share: float


@dataclass(frozen=True)
class Plan:
    """The best choices for one site, and how many were looked at and fit its memory."""

    site: str
    considered: int
    fitting: int
    best: tuple[Choice, ...]


def plan(
    workload: Workload, site: Site, exchange: float = 0.0, count: int = 5, fixed: Iterable[str] = ()
) -> Plan:
    """The `count` fastest ways to divide a step over a site that its memory holds; equals by less memory.

    Args:
        workload: what it states under `parallel` about attention, overlap and GPipe stays; all else is
            varied.
        site: where.
        exchange: bytes that a sync policy keeps on an accelerator.
        count: how many.
        fixed: fields of `parallel` that stay as stated too.

    Raises:
        UsageError: if nothing fits, or has what is fixed.
    """
    stated = workload.parallel or Parallel()
    grid = make_grid(workload, site.ranks).having(stated, fixed)
    chosen = np.flatnonzero(fits(grid, workload, site, exchange))
    if not len(chosen):
        raise UsageError(
            f"workload: none of {len(grid)} parallelisms fits {site.ranks} {site.accelerator.name}"
            f" at site {site.name}: shorten the sequence, change the batch, or take more accelerators"
        )
    kept = grid.take(chosen)
    shape, machine = (
        shape_of(workload.model, workload.sequence),
        machine_of(site.accelerator, site, workload.precision),
    )
    time = step_time(shape, kept.split, machine)
    need = np.broadcast_to(memory(shape, kept.split, machine, exchange).total, time.total_s.shape)
    order = np.lexsort((need, time.total_s))[:count]
    flops = flops_per_token(workload.model_copy(update={"recompute": False}))
    ideal = flops * tokens_per_accelerator(workload) / machine.peak_flops
    best = []
    for i in order.tolist():
        parallel = parallel_at(kept, i, stated)
        total = float(time.total_s[i])
        best.append(
            Choice(
                parallel,
                describe(parallel, site.ranks),
                total,
                ideal / total,
                float(need[i]),
                float(time.bubble_s[i]) / total,
            )
        )
    return Plan(site.name, len(grid), len(kept), tuple(best))
