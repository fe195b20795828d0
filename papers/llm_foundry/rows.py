"""llm-foundry's throughput tables: MPT under FSDP (full sharding)."""

from pathlib import Path

import numpy as np

from geosim.cost.step.numbers import Split
from papers.rows import Rows, column, gpt, machine, read

_FOLDER = Path(__file__).parent
_VOCABULARY = 50368
_SIZES = {  # layers, d_model, heads: scripts/train/yamls/pretrain/mpt-*.yaml of the same repository
    "125m": (12, 768, 12),
    "350m": (24, 1024, 16),
    "760m": (24, 1536, 12),
    "1b": (24, 2048, 16),
    "3b": (32, 2560, 20),
    "7b": (32, 4096, 32),
    "13b": (40, 5120, 40),
    "30b": (48, 7168, 56),
    "70b": (80, 8192, 64),
}
_ACCELERATOR = {"h100_80gb": "H100", "a100_80gb": "A100-80", "a100_40gb": "A100-40"}
_INTER = {
    "h100_80gb": 50e9,
    "a100_80gb": 25e9,
    "a100_40gb": 25e9,
}  # H100: not stated, 400 Gbit/s an accelerator assumed
_INTRA = {"h100_80gb": 450e9, "a100_80gb": 300e9, "a100_40gb": 300e9}


def load(file: Path = _FOLDER / "throughput.csv") -> Rows:
    """All rows of the table, or of another file with its columns."""
    rows = read(file)
    layers, hidden, heads = np.array([_SIZES[row["model"]] for row in rows], float).T
    gpu = [row["gpu"] for row in rows]
    pure = np.array([row["mp_mode"] == "PURE" for row in rows])
    return Rows(
        gpt(layers, hidden, heads, column(rows, "seq_len"), _VOCABULARY, False),
        Split(
            tensor=np.ones(len(rows)),
            pipeline=np.ones(len(rows)),
            data=column(rows, "gpus"),
            micro_batch=column(rows, "micro_bs"),
            micro_batches=column(rows, "grad_accum"),
            full=np.array([row["act_ckpt"] == "True" for row in rows]),
            zero=3,
            gradient_bytes=np.where(pure, 2.0, 4.0),
        ),
        machine(
            [_ACCELERATOR[g] for g in gpu],
            [row["precision"].replace("amp_", "") for row in rows],
            np.array([_INTRA[g] for g in gpu]),
            np.array([_INTER[g] for g in gpu]),
        ),
        column(rows, "global_bs_tokens") / column(rows, "tok_per_s"),
        np.array([row["model"] for row in rows]),
        np.array([row["section"] for row in rows]),
    )
