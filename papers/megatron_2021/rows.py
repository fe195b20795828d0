"""Weak scaling of Megatron-LM (April 2021): Selene, A100-80, 1600 Gbit/s a node, fp16, full recompute."""

from pathlib import Path

import numpy as np

from geosim.cost.step.numbers import Split
from papers.rows import Rows, column, gpt, machine, read

_FOLDER = Path(__file__).parent
_VOCABULARY, _SEQUENCE = 51200, 2048
_HEADS = {
    "1.7B": 24,
    "3.6B": 32,
    "7.5B": 32,
    "18B": 48,
    "39B": 64,
    "76B": 80,
    "145B": 96,
    "310B": 128,
    "530B": 128,
    "1T": 160,
}


def load(micro_batch: int, chunks: int) -> Rows:
    """All rows at a micro-batch and chunks a stage, which the table does not state."""
    rows = read(_FOLDER / "cases.csv")
    layers, hidden, batch, gpus = (column(rows, name) for name in ("layers", "hidden", "batch_seqs", "gpus"))
    parallel = column(rows, "model_parallel")
    tensor = np.minimum(parallel, 8)
    pipeline = parallel / tensor
    data = gpus / parallel
    sequence = np.full(len(rows), float(_SEQUENCE))
    flops = (
        96
        * batch
        * _SEQUENCE
        * layers
        * hidden**2
        * (1 + _SEQUENCE / (6 * hidden) + _VOCABULARY / (16 * layers * hidden))
    )
    micro = np.full(len(rows), float(micro_batch))
    parts = np.where((pipeline > 1) & (layers % (pipeline * chunks) == 0), chunks, 1)
    return Rows(
        gpt(
            layers,
            hidden,
            np.array([_HEADS[row["model"]] for row in rows], float),
            sequence,
            _VOCABULARY,
            True,
        ),
        Split(
            tensor=tensor,
            pipeline=pipeline,
            data=data,
            micro_batch=micro,
            micro_batches=batch / data / micro,
            chunks=parts,
            full=True,
            fused_attention=False,
            overlap=False,
            gradient_bytes=2.0,
        ),
        machine(
            ["A100-80"] * len(rows), ["fp16"] * len(rows), np.full(len(rows), 300e9), np.full(len(rows), 25e9)
        ),
        flops / (gpus * column(rows, "tflops_per_gpu") * 1e12),
        np.array([row["model"] for row in rows]),
        np.array(["Selene"] * len(rows)),
    )
