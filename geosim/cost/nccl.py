"""How long NCCL's collectives take: ring, tree and NVLS, inside a node and between nodes, in seconds.

Latency and bandwidth are those of NCCL's tuner (`nccl_tuner`). Where the tuner corrects trees by a static
factor, here a pipeline fills: a collective runs in chunks that pass one hop after another, so the first one
takes every hop in turn and the rest follows at the slowest hop's rate (Hu et al., arXiv 2507.04786, describe
the pipelines; chunk sizes as in `calcCollChunking`, src/enqueue.cc). Between nodes a channel has at most its
buffer in flight (`Cluster.net_rate`).

For a given algorithm and protocol more bytes never take less, and more bandwidth is never slower. NCCL's own
pick keeps neither law: its estimate is not the time that it then takes. `best` keeps both.
"""

import numpy as np

from geosim.cost import nccl_constants as c
from geosim.cost import nccl_tuner as tuner
from geosim.cost.nccl_cluster import Cluster
from geosim.cost.nccl_tuner import Collective, Pick

__all__ = ["Cluster", "Collective", "Pick", "best", "bus_factor", "picked", "time_of"]


def bus_factor(collective: Collective, ranks: int) -> float:
    """Bus bandwidth over bytes per second (nccl-tests, doc/PERFORMANCE.md)."""
    return tuner.steps(collective, ranks) / ranks


def time_of(
    size_bytes: np.ndarray, cluster: Cluster, pick: Pick, collective: Collective = "all-reduce"
) -> np.ndarray:
    """Seconds of collectives under one algorithm and protocol.

    Args:
        size_bytes: what each rank reduces, or what it holds after a gather or before a scatter; any shape.
    """
    size = np.asarray(size_bytes, float)
    if cluster.ranks == 1:
        return np.zeros_like(size)
    algorithm, protocol = pick
    delay = tuner.latency(cluster, pick, collective) * tuner.ring_plateau(size, cluster, pick, collective)
    if algorithm == "tree":
        return np.asarray(delay + _tree(size, cluster, protocol))
    rate = tuner.bandwidth(cluster, pick, collective)
    if algorithm in ("nvls", "nvls-tree"):
        return np.asarray(delay + _nvls(size, cluster, collective, rate))
    return np.asarray(delay + size / rate)


def picked(size_bytes: np.ndarray, cluster: Cluster, collective: Collective = "all-reduce") -> np.ndarray:
    """Seconds under what NCCL's tuner picks for each size."""
    size = np.asarray(size_bytes, float)
    if cluster.ranks == 1:
        return np.zeros_like(size)
    known, which = tuner.choose(size, cluster, collective)
    each = np.stack([time_of(size, cluster, pick, collective) for pick in known])
    return np.take_along_axis(each, which[None], axis=0)[0]


def best(size_bytes: np.ndarray, cluster: Cluster, collective: Collective = "all-reduce") -> np.ndarray:
    """Seconds under the fastest algorithm and protocol for each size: NCCL tuned for the room."""
    size = np.asarray(size_bytes, float)
    if cluster.ranks == 1:
        return np.zeros_like(size)
    return np.min(
        [time_of(size, cluster, pick, collective) for pick in tuner.options(cluster, collective)], axis=0
    )


def _pipeline(size: np.ndarray, chunk: np.ndarray | float, hops_s: float, rate: float) -> np.ndarray:
    """A first chunk through all hops (`hops_s` seconds a byte), the rest behind it at `rate`."""
    first = np.minimum(size, chunk)
    return np.asarray(first * max(hops_s, 1 / rate) + (size - first) / rate)


def _tree(size: np.ndarray, cluster: Cluster, protocol: c.Protocol) -> np.ndarray:
    """Two binary trees over nodes, a chain inside each; each carries half, up and down at once.

    On two nodes a node sends half up one tree and half down the other; with more, an inner node of one tree
    has two children and is a leaf of the other: twice the bytes. A chain passes all bytes up and down.
    """
    link, net = cluster.nvlink * c.TREE_SHARE, cluster.net_rate(protocol) * c.TREE_SHARE
    rate = float("inf")
    hops_s = 0.0
    if cluster.per_node > 1:
        rate = link / 2
        hops_s = 2 * (cluster.per_node - 1) / link
    if cluster.nodes > 1:
        rate = min(rate, net if cluster.nodes == 2 else net / 2)
        hops_s += int(np.log2(cluster.nodes)) / net  # 2 log2(nodes) hops of half the bytes
    most = cluster.graph_channels * c.TREE_MAX[cluster.architecture][cluster.column] * c.GB
    rate = tuner.tree_share(min(2 * rate, most), cluster, protocol) / 2
    if protocol == "Simple":
        return _pipeline(size, cluster.channels * cluster.step_bytes(protocol), hops_s, rate)
    table = c.TREE_CORRECTION[protocol]
    at = np.log2(np.maximum(size, 64.0) / 64.0)
    return np.asarray(size / rate / np.interp(at, np.arange(len(table)), table))


def _nvls(size: np.ndarray, cluster: Cluster, collective: Collective, rate: float) -> np.ndarray:
    """A pass through the switch that reduces and one that spreads; between nodes a tree of the heads."""
    n = cluster.per_node
    one_pass = cluster.heads * tuner.nvls_channel(cluster) * n / (n - 1)
    hops_s = (2 if collective == "all-reduce" else 1) / one_pass
    chunk, limits = float(c.NVLS_CHUNK_BYTES), c.NVLS_CHUNKS
    if cluster.nodes > 1:
        net = cluster.net_rate("Simple")
        hops_s += int(np.log2(cluster.nodes)) / net
        rate = min(rate, net if cluster.nodes == 2 else net / 2)
        limits = c.NVLS_TREE_CHUNKS
        if cluster.nodes >= 4:
            chunk = float(c.NVLS_TREE_CHUNK_BYTES)
    at_once = c.NVLS_CHANNELS * cluster.heads
    each = np.full_like(size, chunk)
    for rounds, most in limits:
        each = np.where(size < rounds * at_once * each, np.minimum(each, most), each)
    return _pipeline(size, at_once * each, hops_s, rate)
