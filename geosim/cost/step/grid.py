"""All splits of a step over a site, as arrays."""

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace

import numpy as np

from geosim.cost.step.describe import site_batch, split_of
from geosim.cost.step.numbers import Split
from geosim.cost.step.valid import valid
from geosim.errors import UsageError
from geosim.scenario import Parallel, Workload

_RECOMPUTE = ("none", "selective", "full")
_MOST_TENSOR, _MOST_MICRO, _MOST_CHUNKS = 64, 64, 64
# How far a change of a choice that is no degree counts, beside a doubling of a degree.
_SMALL = 0.5
FREE = (
    "tensor",
    "pipeline",
    "data",
    "expert",
    "micro_batch",
    "chunks",
    "recompute",
    "zero",
    "sequence_parallel",
)  # what a grid varies


@dataclass(frozen=True)
class Grid:
    """Splits: fields are arrays of one length, or numbers that all share; `recompute` indexes its choices."""

    split: Split
    recompute: np.ndarray

    def __len__(self) -> int:
        return len(self.recompute)

    def take(self, chosen: np.ndarray) -> "Grid":
        """Those of the splits."""
        values = {
            field.name: value[chosen]
            for field in fields(Split)
            if isinstance(value := getattr(self.split, field.name), np.ndarray)
        }
        return Grid(replace(self.split, **values), self.recompute[chosen])

    def values(self, name: str) -> np.ndarray:
        """A field of `Parallel` in each split; `recompute` as the number of its choice."""
        value = self.recompute if name == "recompute" else getattr(self.split, name)
        return np.broadcast_to(value, (len(self),))

    def having(self, stated: Parallel, names: Iterable[str]) -> "Grid":
        """Those of the splits that have these fields as stated.

        Raises:
            UsageError: where none is left, with the values of the first field that none has as stated.
        """
        left = self
        for name in names:
            value = getattr(stated, name)
            number = _RECOMPUTE.index(value) if name == "recompute" else value
            chosen = np.flatnonzero(left.values(name) == number)
            if not len(chosen):
                numbers = np.unique(left.values(name)).tolist()
                known = ", ".join(_RECOMPUTE[n] if name == "recompute" else str(n).lower() for n in numbers)
                said = f"workload.parallel.{name}: {str(value).lower()}"
                raise UsageError(f"{said} is no choice here: use {known}")
            left = left.take(chosen)
        return left

    def distance(self, stated: Parallel) -> np.ndarray:
        """How much each split changes: doublings of degrees, and steps of other choices at half of one."""
        far = np.zeros(len(self))
        for name in ("tensor", "pipeline", "expert", "micro_batch", "chunks"):
            far += np.abs(np.log2(getattr(self.split, name) / getattr(stated, name)))
        far += _SMALL * np.abs(self.recompute - _RECOMPUTE.index(stated.recompute))
        far += _SMALL * np.abs(self.split.zero - stated.zero)
        return far + _SMALL * (self.split.sequence_parallel != stated.sequence_parallel)


def make_grid(workload: Workload, ranks: int) -> Grid:
    """Every valid split of a step over `ranks` accelerators, whatever memory it needs.

    Attention, overlap and a GPipe schedule stay as the workload says; all else is varied.
    """
    stated = workload.parallel or Parallel()
    base = split_of(stated, workload, ranks)
    model = workload.model
    batch = max(1, round(site_batch(workload, ranks)))
    gpipe = stated.schedule == "gpipe"
    stages = sorted({*_divisors(model.layers), *_divisors(model.layers + 2)})
    axes = (
        [t for t in _divisors(model.heads) if t <= _MOST_TENSOR],
        stages,
        _divisors(model.experts),
        [b for b in _divisors(batch) if b <= _MOST_MICRO],
        [1] if gpipe else list(range(1, _MOST_CHUNKS + 1)),
        range(len(_RECOMPUTE)),
        range(4),
        (False, True),
    )
    flat = [a.ravel() for a in np.meshgrid(*(np.array(list(axis)) for axis in axes), indexing="ij")]
    tensor, pipeline, expert, micro, chunks, recompute, zero, sequence = flat
    grid = tensor * pipeline
    sensible = (ranks % grid == 0) & (sequence <= (tensor > 1)) & ((zero < 2) | (pipeline == 1))
    sensible &= (pipeline > 1) | (chunks == 1)
    if stated.attention == "fused":
        sensible &= recompute != _RECOMPUTE.index("selective")
    data = np.maximum(ranks // grid, 1)
    split = replace(
        base,
        tensor=tensor,
        pipeline=pipeline,
        data=data,
        micro_batch=micro,
        micro_batches=batch / (data * micro),
        expert=expert,
        chunks=chunks,
        full=recompute == _RECOMPUTE.index("full"),
        selective=recompute == _RECOMPUTE.index("selective"),
        sequence_parallel=sequence,
        zero=zero,
    )
    return Grid(split, recompute).take(np.flatnonzero(sensible & valid(workload, split, ranks)))


def parallel_at(grid: Grid, index: int, stated: Parallel) -> Parallel:
    """One split of a grid as it is written in a scenario."""
    split = grid.split
    chunks = int(split.chunks[index])
    schedule = "interleaved" if chunks > 1 else ("gpipe" if stated.schedule == "gpipe" else "1f1b")
    return Parallel(
        tensor=int(split.tensor[index]),
        pipeline=int(split.pipeline[index]),
        expert=int(split.expert[index]),
        micro_batch=int(split.micro_batch[index]),
        micro_batches=None if stated.micro_batches is None else int(split.micro_batches[index]),
        schedule=schedule,
        chunks=chunks,
        recompute=_RECOMPUTE[int(grid.recompute[index])],
        sequence_parallel=bool(split.sequence_parallel[index]),
        zero=int(split.zero[index]),
        attention=stated.attention,
        overlap=stated.overlap,
    )


def _divisors(value: int) -> list[int]:
    small = [n for n in range(1, int(value**0.5) + 1) if value % n == 0]
    return sorted({*small, *(value // n for n in small)})
