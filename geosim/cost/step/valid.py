"""Rules that degrees have to obey, said once: as masks over a grid, and as the first fault of one choice."""

from collections.abc import Iterator

import numpy as np

from geosim.cost.step.describe import site_batch, split_of
from geosim.cost.step.numbers import Number, Split
from geosim.scenario import Model, Parallel, Workload


def _rules(model: Model, split: Split, ranks: int, batch: float) -> Iterator[tuple[str, Number, str]]:
    """Field, where it is kept (a mask), and the complaint; `batch`: sequences a site and step."""
    t, p, d, e = split.tensor, split.pipeline, split.data, split.expert
    yield "data", t * p * d == ranks, f"tensor x pipeline x data must be the {ranks} accelerators"
    yield "tensor", model.heads % t == 0, f"must divide the {model.heads} heads of {model.name}"
    yield "tensor", model.ffn % t == 0, f"must divide the inner width {model.ffn} of {model.name}"
    parts = p * split.chunks
    even = (model.layers % parts == 0) | ((np.asarray(p) > 1) & ((model.layers + 2) % parts == 0))
    yield (
        "pipeline",
        even,
        f"pipeline x chunks must divide the {model.layers} layers of {model.name}, or {model.layers + 2}"
        " with embedding and head as layers",
    )
    yield "expert", model.experts % e == 0, f"must divide the {model.experts} experts of {model.name}"
    yield "expert", d % e == 0, "must divide the data degree"
    passes = d * split.micro_batch
    yield (
        "micro_batch",
        (batch % passes == 0) & (passes <= batch),
        f"data x micro_batch must divide the {batch:g} sequences of a step",
    )
    whole = (np.asarray(split.chunks) == 1) | (split.micro_batches % p == 0)
    yield "chunks", whole, "an interleaved schedule needs micro-batches in multiples of the pipeline degree"


def first_fault(workload: Workload, parallel: Parallel, ranks: int) -> str | None:
    """The first rule that a parallelism on `ranks` accelerators breaks, as "field: rule"; None: none."""
    split = split_of(parallel, workload, ranks)
    for field, kept, complaint in _rules(workload.model, split, ranks, site_batch(workload, ranks)):
        if not np.all(kept):
            return f"{field}: {complaint} (got {_values(field, split)})"
    return None


def valid(workload: Workload, split: Split, ranks: int) -> np.ndarray:
    """A mask over arrays of degrees."""
    rules = _rules(workload.model, split, ranks, site_batch(workload, ranks))
    return np.asarray(np.all(np.broadcast_arrays(*(kept for _, kept, _ in rules)), axis=0))


def _values(field: str, split: Split) -> str:
    if field == "data":
        return f"{split.tensor} x {split.pipeline} x {split.data}"
    if field == "pipeline":
        return f"{split.pipeline} x {split.chunks}"
    if field == "micro_batch":
        return f"{split.data} x {split.micro_batch}"
    if field == "chunks":
        return f"{split.micro_batches:g} and {split.pipeline}"
    return str(getattr(split, field))
