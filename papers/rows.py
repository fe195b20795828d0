"""Published rows of measured steps, as arrays that the step model takes."""

import csv
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from geosim.cost.step.numbers import Machine, Shape, Split
from geosim.scenario import accelerators


@dataclass(frozen=True)
class Rows:
    """Measured steps of a table: what ran, on what, in which time, and labels by which rows are split."""

    shape: Shape
    split: Split
    machine: Machine
    seconds: np.ndarray
    model: np.ndarray
    cluster: np.ndarray


def read(path: Path) -> list[dict[str, str]]:
    """A CSV file's rows. Lines that begin with '#' are comments, but for heads that begin with '# GPUs'."""
    with path.open(encoding="utf-8") as file:
        lines = [line for line in file if line.startswith("# GPUs,") or not line.startswith("#")]
    return list(csv.DictReader(lines))


def column(rows: Iterable[dict[str, str]], name: str) -> np.ndarray:
    """One column as floats."""
    return np.array([float(row[name]) for row in rows])


def gpt(
    layers: np.ndarray,
    hidden: np.ndarray,
    heads: np.ndarray,
    sequence: np.ndarray,
    vocabulary: int,
    dropout: bool,
) -> Shape:
    """GPT: four times as wide inside, two matrices, learned positions, head tied to the embedding."""
    return Shape(
        layers=layers,
        hidden=hidden,
        heads=heads,
        head_width=hidden / heads,
        kv_width=hidden,
        ffn=4 * hidden,
        matrices=2.0,
        vocabulary=vocabulary,
        sequence=sequence,
        dense_parameters=12 * layers * hidden**2 + (vocabulary + sequence) * hidden,
        dropout=dropout,
    )


def machine(names: Iterable[str], precision: Iterable[str], intra: np.ndarray, inter: np.ndarray) -> Machine:
    """Accelerators of the catalog in nodes of eight. Bytes a second of one accelerator in a direction."""
    known = [accelerators()[name] for name in names]
    return Machine(
        peak_flops=np.array([a.peak_flops(p) for a, p in zip(known, precision, strict=True)]),
        attention_flops=np.array([a.peak_flops("bf16") for a in known]),
        memory_bytes_per_s=np.array([a.memory_bandwidth_bytes_per_s for a in known]),
        per_node=8,
        intra_bytes_per_s=intra,
        intra_latency_s=2e-6,
        inter_bytes_per_s=inter,
        inter_latency_s=5e-6,
    )
