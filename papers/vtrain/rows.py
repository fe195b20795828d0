"""vTrain's measured iterations: Megatron-LM, fp16, A100-80, nodes of 8, 800 Gbit/s a node."""

from pathlib import Path

import numpy as np

from geosim.cost.step.numbers import Split
from papers.rows import Rows, column, gpt, machine, read

_FOLDER = Path(__file__).parent
_VOCABULARY = 51200


def load(table: str | Path) -> Rows:
    """`table`: "single_node", "multi_node", or another file with their columns."""
    rows = read(table if isinstance(table, Path) else _FOLDER / f"{table}.csv")
    rows = [{key.removeprefix("# "): value for key, value in row.items()} for row in rows]
    data, micro = column(rows, "data parallelism"), column(rows, "micro batch")
    layers, hidden = column(rows, "layers"), column(rows, "hidden size")
    count = len(rows)
    return Rows(
        gpt(
            layers,
            hidden,
            column(rows, "attention heads"),
            column(rows, "sequence length"),
            _VOCABULARY,
            True,
        ),
        Split(
            tensor=column(rows, "tensor parallelism"),
            pipeline=column(rows, "pipeline parallelism"),
            data=data,
            micro_batch=micro,
            micro_batches=column(rows, "global batch") / data / micro,
            full=True,
            fused_attention=False,
            overlap=False,
            gradient_bytes=2.0,
        ),
        machine(["A100-80"] * count, ["fp16"] * count, np.full(count, 300e9), np.full(count, 12.5e9)),
        column(rows, "iteration time (ms)") / 1e3,
        np.array([f"{int(h)}x{int(n)}" for h, n in zip(hidden, layers, strict=True)]),
        np.array([f"{int(g)} GPUs" for g in column(rows, "GPUs")]),
    )
