"""Which splits are possible: degrees that divide, and memory that suffices."""

import numpy as np

from geosim.cost.step.describe import machine_of, shape_of, split_of
from geosim.cost.step.grid import Grid, make_grid, parallel_at
from geosim.cost.step.memory import Memory, memory
from geosim.cost.step.step import step_time
from geosim.cost.step.valid import first_fault
from geosim.errors import UsageError
from geosim.scenario import Parallel, Site, Workload
from geosim.units import SIZE, show

TRAINING = ("weights", "gradients", "optimizer", "activations")  # what training alone holds


def check(workload: Workload, site: Site, exchange: float = 0.0) -> Memory:
    """Memory of the stated parallelism at a site.

    Args:
        workload: with `parallel`.
        site: where.
        exchange: bytes that a sync policy keeps on an accelerator.

    Raises:
        UsageError: where a degree does not divide, or memory does not suffice: one line with the figures
            and the nearest choice that works.
    """
    stated = workload.parallel or Parallel()
    fault = first_fault(workload, stated, site.ranks)
    if fault:
        raise UsageError(
            f"workload.parallel.{fault} at site {site.name}: {_nearest(workload, site, exchange)}"
        )
    split = split_of(stated, workload, site.ranks)
    machine = machine_of(site.accelerator, site, workload.precision)
    need = memory(shape_of(workload.model, workload.sequence), split, machine, exchange)
    capacity = site.accelerator.memory_bytes
    if need.total > capacity:
        parts = {name: float(getattr(need, name)) for name in TRAINING}
        parts["exchange"] = exchange
        said = ", ".join(f"{name} {_size(value)}" for name, value in parts.items() if value)
        raise UsageError(
            f"workload.parallel: needs {_size(float(need.total))} of the {_size(capacity)} of"
            f" {site.accelerator.name} at site {site.name} ({said}): {_nearest(workload, site, exchange)}"
        )
    return need


def fits(grid: Grid, workload: Workload, site: Site, exchange: float = 0.0) -> np.ndarray:
    """Which splits of a grid the accelerator's memory holds.

    Data sheets give decimal gigabytes where devices have binary ones: the 7 % between them are about what the
    driver, the buffers of collectives and the allocator's gaps take.
    """
    machine = machine_of(site.accelerator, site, workload.precision)
    need = memory(shape_of(workload.model, workload.sequence), grid.split, machine, exchange)
    return np.broadcast_to(need.total <= site.accelerator.memory_bytes, (len(grid),))


def _nearest(workload: Workload, site: Site, exchange: float) -> str:
    """The valid choice that changes least, and among equals the fastest, in words."""
    stated = workload.parallel or Parallel()
    grid = make_grid(workload, site.ranks)
    chosen = np.flatnonzero(fits(grid, workload, site, exchange)) if len(grid) else np.array([], int)
    if not len(chosen) and exchange and fits(grid, workload, site).any():
        return "no parallelism leaves room for what the policy keeps: raise policy.shards, or leave it out"
    if not len(chosen):
        return "no parallelism of these accelerators works: change the batch, the sequence or the site"
    near = grid.take(chosen)
    far = near.distance(stated)
    machine = machine_of(site.accelerator, site, workload.precision)
    time = step_time(shape_of(workload.model, workload.sequence), near.split, machine).total_s
    best = int(np.lexsort((np.broadcast_to(time, far.shape), np.round(far, 6)))[0])
    return f"nearest that works: {describe(parallel_at(near, best, stated), site.ranks)}"


def describe(parallel: Parallel, ranks: int) -> str:
    """A parallelism in words: degrees, and what differs from the defaults."""
    data = parallel.data or ranks // (parallel.tensor * parallel.pipeline)
    out = [f"tensor {parallel.tensor}", f"pipeline {parallel.pipeline}", f"data {data}"]
    if parallel.expert > 1:
        out.append(f"expert {parallel.expert}")
    out.append(f"micro_batch {parallel.micro_batch}")
    if parallel.micro_batches is not None:
        out.append(f"micro_batches {parallel.micro_batches}")
    if parallel.chunks > 1:
        out.append(f"chunks {parallel.chunks}")
    out += [f"recompute {parallel.recompute}", f"zero {parallel.zero}"]
    if parallel.sequence_parallel:
        out.append("sequence_parallel true")
    return ", ".join(out)


def _size(value: float) -> str:
    return show(value, SIZE)
