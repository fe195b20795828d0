"""NCCL's double binary tree over the nodes of all sites: what crosses the WAN, in seconds a bucket.

Half of a bucket is reduced up and sent down one tree, half the other (NVIDIA/nccl, src/graph/trees.cc,
`ncclGetDtree`): channels alternate between them. Inside a node a chain follows, which NVLink makes free
beside a WAN. NCCL numbers nodes site by site and knows nothing of the WAN: several edges of a tree may cross.
"""

from collections import Counter
from dataclasses import dataclass

import numpy as np

from geosim.cost.ring import Edge

TREES = 2


@dataclass(frozen=True)
class TreePlan:
    """Crossings of both trees.

    Attributes:
        edges: how many edges of the two trees cross between two sites, by (lower, higher) site.
        hops: crossings from the farthest node to the root of its tree.
    """

    edges: dict[tuple[int, int], int]
    hops: int

    @property
    def ways(self) -> tuple[tuple[int, int], ...]:
        """Directed pairs of sites; each edge carries its half up, and down the other way."""
        return tuple(way for a, b in sorted(self.edges) for way in ((a, b), (b, a)))

    def payload_share(self, a: int, b: int) -> float:
        """Bytes from a to b over bytes of the bucket."""
        return self.edges[min(a, b), max(a, b)] / TREES

    def flows(self, a: int, b: int, channels: int) -> int:
        """Connections from a to b: each channel has its tree's."""
        return max(1, self.edges[min(a, b), max(a, b)] * channels // TREES)


def binary_tree(nodes: int) -> tuple[int, ...]:
    """Each node's parent, -1 for the root, node 0 (`ncclGetBtree`)."""
    parents = [-1]
    for node in range(1, nodes):
        bit = node & -node
        up = (node ^ bit) | (bit << 1)
        parents.append(up if up < nodes else node ^ bit)
    return tuple(parents)


def double_tree(nodes: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Parents in the two trees: the second mirrors the first, or for odd numbers is shifted by one."""
    first = binary_tree(nodes)
    second = [-1] * nodes
    for node in range(nodes):
        up = first[node]
        if nodes % 2:
            second[(node + 1) % nodes] = -1 if up < 0 else (up + 1) % nodes
        else:
            second[nodes - 1 - node] = -1 if up < 0 else nodes - 1 - up
    return first, tuple(second)


def make_tree(nodes_per_site: tuple[int, ...]) -> TreePlan:
    """The trees over the nodes of sites, numbered site by site."""
    site = [m for m, count in enumerate(nodes_per_site) for _ in range(count)]
    edges: Counter[tuple[int, int]] = Counter()
    hops = 0
    for parents in double_tree(len(site)):
        for node, up in enumerate(parents):
            if up >= 0 and site[up] != site[node]:
                edges[min(site[up], site[node]), max(site[up], site[node])] += 1
        for start in range(len(site)):
            node, crossed = start, 0
            while parents[node] >= 0:
                crossed += site[parents[node]] != site[node]
                node = parents[node]
            hops = max(hops, crossed)
    return TreePlan(dict(edges), hops)


def nccl_times(
    buckets: np.ndarray,
    plan: TreePlan,
    edges: dict[tuple[int, int], Edge],
    channels: int,
    channel_bytes: float,
) -> np.ndarray:
    """Seconds of each bucket's all-reduce.

    A channel's connection carries its part of a bucket with at most `channel_bytes` in flight; all
    connections of a link share it. The first byte goes up and down the deepest tree.

    Args:
        edges: by directed pair of sites.
    """
    slowest, trip = 0.0, 0.0
    for (a, b), edge in edges.items():
        path, wire = edge.path, edge.wire_per_payload
        together = plan.payload_share(a, b) * wire / path.stream_rate(edge.flows)
        alone = path.rtt_s / (channels * channel_bytes)
        slowest, trip = max(slowest, together, alone), max(trip, path.rtt_s)
    return buckets * slowest + 2 * plan.hops * trip / 2
