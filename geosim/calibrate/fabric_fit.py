"""Bandwidth and latency of one tier of a fabric with which geosim's collectives take as long as measured.

Both are found by bisection: more bandwidth and less latency are never slower. Bandwidth is held against the
largest sizes, latency against the smallest.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from geosim.cost.collective import site_all_gather, site_all_reduce, site_cluster
from geosim.scenario import Accelerator, Fabric, Hop, Site

SMALL_BYTES = 16 * 1024
LARGE_BYTES = 64 * 1024 * 1024
_LOW, _HIGH = 1e6, 1e13
_UNLIMITED = Hop(bandwidth_bytes_per_s=1e15, latency_s=0.0)
_FLAT = 0.01  # within this of the fastest, more bandwidth makes no difference
_ROUNDS, _HALVINGS = 3, 36
# Nominal, a direction (data sheets); H800 and A800 have 8 links of 25 GB/s.
_NVLINK = {"V100": 150e9, "A800": 200e9, "A100": 300e9, "H800": 200e9, "B200": 900e9}
_OTHER_NVLINK = 450e9


@dataclass(frozen=True)
class Measured:
    """Seconds of one collective by size, and where it ran."""

    collective: str
    nodes: int
    per_node: int
    device: str
    times: tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class Fit:
    """A tier.

    Attributes:
        law: "nccl" or "ring".
        bandwidth_bytes_per_s, latency_s: None where no size was large, or small, enough.
        at_least: more bandwidth would not show: something else limits.
        inside_bytes_per_s: what was assumed inside a node, of several.
        error, worst: mean and largest |log(predicted / measured)|, over all sizes.
    """

    law: str
    bandwidth_bytes_per_s: float | None
    at_least: bool
    latency_s: float | None
    inside_bytes_per_s: float
    error: float
    worst: float


def short_name(device: str) -> str:
    """A device as the catalog names it: "A100-SXM4-40GB" for "NVIDIA A100-SXM4-40GB"."""
    return device.removeprefix("NVIDIA ").removeprefix("Tesla ")


def fit(measured: Measured) -> Fit:
    """The tier that a run measured: inside a node, or between nodes."""
    name = short_name(measured.device)
    nvlink = next((rate for start, rate in _NVLINK.items() if name.startswith(start)), _OTHER_NVLINK)
    size = np.array([s for s, _ in measured.times])
    time = np.array([t for _, t in measured.times])
    small, large = size <= SMALL_BYTES, size >= LARGE_BYTES

    def off(bandwidth: float, latency: float) -> np.ndarray:
        site = _site(measured, name, bandwidth, latency, nvlink)
        return np.log(np.maximum(_seconds(measured.collective, size, site), 1e-12) / time)

    def mean_off(part: np.ndarray, bandwidth: float, latency: float) -> float:
        return float(off(bandwidth, latency)[part].mean())

    bandwidth = nvlink if measured.nodes == 1 else 50e9
    latency, at_least = 0.0, False
    for _ in range(_ROUNDS):
        if large.any():
            bandwidth, at_least = _bandwidth(partial(mean_off, large, latency=latency))
        if small.any():
            latency = _bisect(partial(mean_off, small, bandwidth), 1e-9, 1.0)
            latency = latency if latency > 2e-9 else 0.0
    errors = np.abs(off(bandwidth, latency))
    law = "ring" if site_cluster(_site(measured, name, bandwidth, latency, nvlink)) is None else "nccl"
    return Fit(
        law,
        bandwidth if large.any() else None,
        at_least,
        latency if small.any() else None,
        nvlink,
        float(errors.mean()),
        float(errors.max()),
    )


def _bandwidth(off: Callable[[float], float]) -> tuple[float, bool]:
    """Where the error, which falls with bandwidth, crosses zero; if it never does, where it stops falling."""
    floor = off(_HIGH)
    found = _bisect(lambda b: -(off(b) - max(0.0, floor + _FLAT)), _LOW, _HIGH)
    return found, floor + _FLAT > 0


def _bisect(rising: Callable[[float], float], low: float, high: float) -> float:
    """Where a rising function of a positive number crosses zero; an end of the range if it does not."""
    for _ in range(_HALVINGS):
        middle = math.sqrt(low * high)
        if rising(middle) < 0:
            low = middle
        else:
            high = middle
    return high


def _site(measured: Measured, name: str, bandwidth: float, latency: float, nvlink: float) -> Site:
    tier = Hop(bandwidth_bytes_per_s=bandwidth, latency_s=latency)
    # Only the name counts: it says whether NCCL runs over NVLink.
    device = Accelerator(
        name=name, fp32_flops=1e12, memory_bytes=1e9, memory_bandwidth_bytes_per_s=1e9, source=""
    )
    inside = Hop(bandwidth_bytes_per_s=nvlink, latency_s=0.0)
    site = Site(
        name="measured",
        accelerator=device,
        nodes=measured.nodes,
        accelerators_per_node=measured.per_node,
        fabric=Fabric(intra_node=tier) if measured.nodes == 1 else Fabric(intra_node=inside, inter_node=tier),
    )
    if measured.nodes > 1 and site_cluster(site) is None:
        return site.model_copy(update={"fabric": Fabric(intra_node=_UNLIMITED, inter_node=tier)})
    return site


def _seconds(collective: str, size: np.ndarray, site: Site) -> np.ndarray:
    if collective == "all_reduce":
        return site_all_reduce(size, site)
    return site_all_gather(size, site, site.ranks)  # a reduce-scatter is one backwards
