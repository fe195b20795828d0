"""What NCCL's tuner estimates for each algorithm and protocol, and which it so picks.

`ncclTopoTuneModel` and `ncclTopoGetAlgoTime` (NVIDIA/nccl at commit 5067397, src/graph/tuning.cc): latency
plus bytes over an algorithm's bandwidth, trees by a static correction factor; the least estimate wins. How
long the pick then takes is `geosim.cost.nccl`.
"""

from typing import Literal

import numpy as np

from geosim.cost import nccl_constants as c
from geosim.cost.nccl_cluster import Cluster
from geosim.errors import UsageError

Collective = Literal["all-reduce", "all-gather", "reduce-scatter"]
Pick = tuple[c.Algorithm, c.Protocol]


def steps(collective: Collective, ranks: int) -> int:
    """Hops of a ring."""
    return (2 if collective == "all-reduce" else 1) * (ranks - 1)


def options(cluster: Cluster, collective: Collective = "all-reduce") -> tuple[Pick, ...]:
    """Algorithms and protocols that a cluster can run and allows.

    Raises:
        UsageError: if none is left.
    """
    nvls = c.NVLS_EFFICIENCY[cluster.architecture] > 0 and cluster.per_node > 1 and cluster.heads > 1
    reduces = collective == "all-reduce"
    can = {
        "ring": True,
        "tree": reduces,
        "nvls": nvls and cluster.nodes == 1,
        "nvls-tree": nvls and cluster.nodes > 1 and reduces,
        "pat": not reduces and cluster.per_node == 1,
    }
    left = tuple(
        (a, p)
        for a in cluster.algorithms
        if can[a]
        for p in cluster.protocols
        if a in ("ring", "tree") or p == "Simple"
    )
    if not left:
        raise UsageError(
            f"algorithms: {', '.join(cluster.algorithms)} with {', '.join(cluster.protocols)}: none can run"
            f" an {collective} here: add 'ring'"
        )
    return left


def latency(cluster: Cluster, pick: Pick, collective: Collective = "all-reduce") -> float:
    """Seconds of a collective of no bytes, without the plateau of `ring_plateau`."""
    algorithm, protocol = pick
    at = c.PROTOCOLS.index(protocol)
    inside = max(c.NVLINK_US[algorithm][at] * c.US, cluster.node_latency_s)
    across = c.NET_US["tree" if cluster.per_node == 1 else algorithm][at] * c.US
    # A flush follows what Simple receives from the network.
    across += cluster.net_latency_s * (2 if protocol == "Simple" else 1)
    depth = int(np.log2(cluster.nodes))
    base = c.BASE_US[algorithm][at] * c.US
    if algorithm == "ring":
        hops = steps(collective, cluster.ranks)
        net_hops = 0 if cluster.nodes == 1 else steps(collective, cluster.nodes)
        if cluster.nodes > 1:
            post = c.NET_OVERHEAD_US[cluster.cpu] * (c.SIMPLE_OVERHEAD if protocol == "Simple" else 1)
            inside = max(inside, post * c.US)
        return base + (hops - net_hops) * inside + net_hops * across
    if algorithm == "tree":
        return base + 2 * ((cluster.per_node - 1) * inside + depth * across)
    if algorithm == "pat":
        return base + depth * across * c.PAT_NET_SHARE + cluster.ranks * c.PAT_RANK_US * c.US
    return base + inside + 2 * depth * across


def ring_plateau(
    size_bytes: np.ndarray, cluster: Cluster, pick: Pick, collective: Collective
) -> np.ndarray | float:
    """Factor on a ring's latency across nodes, once every channel has something to do."""
    if pick != ("ring", "Simple") or cluster.nodes == 1 or collective != "all-reduce":
        return 1.0
    full = size_bytes / (cluster.channels * cluster.ranks) >= c.PLATEAU_BYTES
    return np.where(full, c.PLATEAU[cluster.architecture], 1.0)


def ring_rate(cluster: Cluster, protocol: c.Protocol) -> float:
    """Bytes per second over each edge of the rings together."""
    rate = cluster.nvlink if cluster.per_node > 1 else float("inf")
    if cluster.nodes > 1:
        rate = min(rate, cluster.net_rate(protocol))
    return ring_share(rate, cluster, protocol)


def ring_share(rate: float, cluster: Cluster, protocol: c.Protocol) -> float:
    """What a protocol leaves of a ring's bandwidth."""
    if protocol == "LL":
        return min(ll_max(cluster), rate * c.RING_LL_SHARE)
    if protocol == "LL128":
        most = c.RING_LL128_MAX[cluster.architecture] * c.GB
        return min(rate * c.LL128_SHARE, cluster.graph_channels * most)
    return rate


def ll_max(cluster: Cluster) -> float:
    """The most that LL carries, bytes per second."""
    row = cluster.architecture if cluster.nodes == 1 else c.LL_MAX_ROW[cluster.cpu]
    return c.LL_MAX[row][cluster.column] * c.GB


def nvls_channel(cluster: Cluster) -> float:
    """Bytes per second of one head's pass through the switch, one way."""
    heads = cluster.heads
    fastest = cluster.speed(cluster.nvlink / heads)
    return fastest * c.NVLS_EFFICIENCY[cluster.architecture] * (heads - 1) / heads


def nvls_rate(cluster: Cluster, collective: Collective) -> float:
    """Bus bandwidth through the switch, bytes per second; an all-reduce pipelines two passes."""
    channel = nvls_channel(cluster)
    if collective == "all-reduce":
        channel *= 2
    else:
        channel *= (cluster.per_node - 1) / cluster.per_node
    if cluster.nodes > 1:
        across = cluster.net_rate("Simple") / cluster.heads * (2 if cluster.nodes == 2 else 1)
        most = c.NVLS_TREE_MAX[cluster.architecture][cluster.column] * c.GB
        channel = min(channel, across, most)
    return cluster.heads * channel


def tree_share(rate: float, cluster: Cluster, protocol: c.Protocol) -> float:
    """What a protocol leaves of a tree's bandwidth."""
    if protocol == "LL":
        return min(rate * c.TREE_LL_SHARE, ll_max(cluster))
    if protocol == "LL128":
        most = c.TREE_LL128_MAX[cluster.architecture][cluster.column] * c.GB
        return min(rate * c.TREE_LL128_SHARE[cluster.nodes > 1], cluster.graph_channels * most)
    return rate


def _tree_rate(cluster: Cluster, protocol: c.Protocol) -> float:
    """Bus bandwidth that the tuner gives a tree; on two nodes it looks at the links inside the node."""
    channels = cluster.graph_channels
    if cluster.nodes == 1:
        channel = cluster.speed(cluster.nvlink / channels)
    else:
        channel = across = cluster.net_rate(protocol) / channels
        if cluster.nodes == 2 and cluster.per_node > 1:
            channel = max(across, cluster.speed(min(cluster.nvlink / channels, 2 * across)))
    most = c.TREE_MAX[cluster.architecture][cluster.column] * c.GB
    rate = min(channels * channel * c.TREE_SHARE, channels * most)
    return tree_share(rate, cluster, protocol)


def bandwidth(cluster: Cluster, pick: Pick, collective: Collective = "all-reduce") -> float:
    """Bytes of the collective per second, latency apart, as the tuner has it."""
    algorithm, protocol = pick
    n = cluster.ranks
    if algorithm == "ring":
        return ring_rate(cluster, protocol) * n / steps(collective, n)
    if algorithm == "tree":
        return _tree_rate(cluster, protocol) / 2
    if algorithm == "pat":
        return cluster.net_rate(protocol) * c.PAT_SHARE
    rate = nvls_rate(cluster, collective)
    return rate * n / steps(collective, n) if collective == "all-reduce" else rate


def estimate(
    size_bytes: np.ndarray, cluster: Cluster, pick: Pick, collective: Collective = "all-reduce"
) -> np.ndarray:
    """Seconds that the tuner expects of collectives of `size_bytes` (any shape)."""
    size = np.asarray(size_bytes, float)
    rate = np.full_like(size, bandwidth(cluster, pick, collective))
    if pick[0] == "tree":
        table = c.TREE_CORRECTION[pick[1]]
        at = np.floor(np.log2(np.maximum(size, 64.0) / 64.0)).astype(int)
        rate = rate * np.where(at < len(table) - 1, table[np.minimum(at, len(table) - 1)], 1.0)
    lat = latency(cluster, pick, collective)
    return np.asarray(lat * ring_plateau(size, cluster, pick, collective) + size / rate)


def choose(
    size_bytes: np.ndarray, cluster: Cluster, collective: Collective = "all-reduce"
) -> tuple[tuple[Pick, ...], np.ndarray]:
    """What NCCL picks.

    Args:
        size_bytes: of the collectives, any shape.

    Returns:
        the options, and for each size the index of the one with the least estimate.
    """
    known = options(cluster, collective)
    return known, np.argmin([estimate(size_bytes, cluster, pick, collective) for pick in known], axis=0)
