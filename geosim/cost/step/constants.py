"""The global constants of the step model, and where they come from."""

import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

FITTED_FILE = Path(__file__).parent / "fitted.toml"


@dataclass(frozen=True)
class Constants:
    """Ten numbers for all models, accelerators and clusters. `python -m experiments.fit_compute` fits them.

    Attributes:
        matmul_share: of peak FLOP/s that a large matrix product reaches at 312 TFLOP/s (A100) and below.
        matmul_decay: that share falls with peak to this power: libraries, power and on-chip bandwidth lag
            peaks.
        attention_share, attention_decay: the same for fused attention, counted without its causal half.
        memory_traffic: bytes that kernels bound by memory move, over those they must.
        launch_s: what a layer's forward pass takes where launching kernels limits it, seconds.
        smoothness: p of the p-norm that joins launching and computing (infinite: the larger of the two).
        network_share: of a fabric's bandwidth that a collective of NCCL reaches.
        hop_s: what a message of a collective takes beyond its tier's latency, seconds.
        interference: share of the shorter of a collective and the compute it overlaps that shows
            nevertheless.
    """

    matmul_share: float
    matmul_decay: float
    attention_share: float
    attention_decay: float
    memory_traffic: float
    launch_s: float
    smoothness: float
    network_share: float
    hop_s: float
    interference: float


@cache
def fitted() -> Constants:
    """The constants that were fitted to published rows (`fitted.toml` says to which, when and how well)."""
    return Constants(**tomllib.loads(FITTED_FILE.read_text(encoding="utf-8"))["constants"])
