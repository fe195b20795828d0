"""NCCL's own latencies and bandwidths, as its tuner has them, in seconds and bytes per second.

Source: NVIDIA/nccl at commit 5067397 (Apache-2.0), src/graph/tuning.cc (latencies, caps, correction factors),
src/graph/topo.h (what a link or a NIC carries), src/graph/search.cc (channel speeds),
src/transport/nvls.cc and src/enqueue.cc (channels, buffers and chunks). Protocols are in the order LL, LL128,
Simple; columns for one, two, and more than two nodes.
"""

from typing import Literal

import numpy as np

Architecture = Literal["volta", "ampere", "hopper", "blackwell"]
Algorithm = Literal["tree", "ring", "nvls", "nvls-tree", "pat"]
Protocol = Literal["LL", "LL128", "Simple"]

PROTOCOLS: tuple[Protocol, ...] = ("LL", "LL128", "Simple")
ALGORITHMS: tuple[Algorithm, ...] = ("tree", "ring", "nvls", "nvls-tree", "pat")
US = 1e-6
GB = 1e9

# Microseconds; NVLS exists for Simple only.
BASE_US: dict[Algorithm, tuple[float, float, float]] = {
    "tree": (6.8, 14.0, 8.4),
    "ring": (6.6, 14.0, 8.4),
    "nvls": (0.0, 0.0, 0.0),
    "nvls-tree": (0.0, 0.0, 0.0),
    "pat": (8.0, 8.0, 8.0),
}
NVLINK_US: dict[Algorithm, tuple[float, float, float]] = {
    "tree": (0.6, 1.25, 4.0),
    "ring": (0.6, 1.9, 3.4),
    "nvls": (0.0, 0.0, 25.0),
    "nvls-tree": (0.0, 0.0, 25.0),
    "pat": (0.0, 0.0, 4.0),
}
NET_US: dict[Algorithm, tuple[float, float, float]] = {
    "tree": (5.0, 8.5, 14.0),
    "ring": (2.7, 4.0, 14.0),
    "nvls": (0.0, 0.0, 18.0),
    "nvls-tree": (0.0, 0.0, 20.9),
    "pat": (0.0, 0.0, 14.0),
}
NET_OVERHEAD_US = {"intel": 1.0, "amd": 2.0, "other": 1.0}
SIMPLE_OVERHEAD = 3.0
PLATEAU = {"volta": 1.9, "ampere": 1.4, "hopper": 1.4, "blackwell": 1.4}
PLATEAU_BYTES = 64
PAT_NET_SHARE = 1 / 3.5
PAT_RANK_US = 2.8

# GB/s. On one node LL depends on the accelerator, across nodes on the processor (first two rows).
LL_MAX: dict[str, tuple[float, float, float]] = {
    "volta": (39.0, 39.0, 20.4),
    "ampere": (87.7, 22.5, 19.0),
    "hopper": (141.0, 45.0, 35.0),
    "blackwell": (282.0, 90.0, 70.0),
}
LL_MAX_ROW = {"intel": "volta", "other": "volta", "amd": "ampere"}
RING_LL128_MAX = {"volta": 20.0, "ampere": 20.0, "hopper": 36.7, "blackwell": 40.0}  # whatever the nodes
TREE_LL128_MAX = {
    "volta": (20.0, 20.0, 20.0),
    "ampere": (20.0, 20.0, 20.0),
    "hopper": (36.7, 36.7, 29.0),
    "blackwell": (55.6, 31.67, 20.0),
}
TREE_MAX = {
    "volta": (26.5, 18.5, 10.0),
    "ampere": (24.0, 23.6, 17.8),
    "hopper": (38.7, 41.4, 36.0),
    "blackwell": (70.0, 42.8, 24.0),
}
NVLS_TREE_MAX = {
    "volta": (26.5, 18.5, 10.0),
    "ampere": (24.0, 23.6, 17.8),
    "hopper": (0.0, 57.7, 45.5),
    "blackwell": (0.0, 96.0, 80.0),
}
NVLS_EFFICIENCY = {"volta": 0.0, "ampere": 0.0, "hopper": 0.85, "blackwell": 0.74}

RING_LL_SHARE = 0.5
LL128_SHARE = 0.92
TREE_SHARE = 0.92
TREE_LL_SHARE = 1 / 3.8
TREE_LL128_SHARE = (7 / 9, 120 / 128)  # on one node, across nodes
PAT_SHARE = 0.75

# How trees fall short of latency and bandwidth alone: powers of two from 64 B on.
TREE_CORRECTION: dict[Protocol, np.ndarray] = {
    "LL": np.array(
        [1, 1, 1, 1, 0.9, 0.8, 0.7, 0.7, 0.7, 0.7, 0.6, 0.5, 0.4, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1, 1, 1, 1, 1]
    ),
    "LL128": np.array([1, 1, 1, 1, 1, 0.9, 0.8, 0.8, 0.8, 0.7, *[0.6] * 6, 0.8, 0.9, 0.9, 0.9, 0.9, 1, 1, 1]),
    "Simple": np.array(
        [*[0.9] * 7, 0.8, 0.7, 0.6, 0.6, 0.5, 0.5, 0.5, 0.5, 0.6, 0.7, 0.8, 0.7, 0.7, 0.8, 0.9, 0.9, 0.9]
    ),
}

# What NCCL counts of a nominal rate: 20 of NVLink's 25 GB/s (20.6 from Hopper on, 40.1 of 50 on Blackwell),
# 12 of the 12.5 GB/s of a 100 Gbit/s NIC; and GB/s of an accelerator's PCIe (generations 3 to 6, 16 lanes).
NVLINK_SHARE = {"volta": 0.8, "ampere": 0.8, "hopper": 20.6 / 25, "blackwell": 40.1 / 50}
NET_SHARE = 0.96
PCIE_GB_PER_S = {"volta": 12.0, "ampere": 24.0, "hopper": 48.0, "blackwell": 96.0}
SPEEDS_INTRA = {
    "volta": (40.0, 30.0, 20.0, 18.0, 15.0, 12.0, 10.0, 9.0, 7.0, 6.0, 5.0, 4.0, 3.0),
    "ampere": (40.0, 30.0, 20.0, 18.0, 15.0, 12.0, 10.0, 9.0, 7.0, 6.0, 5.0, 4.0, 3.0),
    "hopper": (60.0, 50.0, 40.0, 30.0, 24.0, 20.0, 15.0, 12.0, 11.0, 6.0, 3.0),
    "blackwell": (90.0, 80.0, 70.0, 60.0, 50.0, 45.0, 40.0, 30.0, 24.0, 20.0, 19.0, 18.0),
}
SPEEDS_INTER = {
    "volta": (48.0, 30.0, 28.0, 24.0, 20.0, 18.0, 15.0, 12.0, 10.0, 9.0, 7.0, 6.0, 5.0, 4.0, 3.0),
    "ampere": (48.0, 30.0, 28.0, 24.0, 20.0, 18.0, 15.0, 12.0, 10.0, 9.0, 7.0, 6.0, 5.0, 4.0, 3.0),
    "hopper": (48.0, 45.0, 42.0, 40.0, 30.0, 24.0, 22.0, 20.0, 17.5, 15.0, 12.0, 6.0, 3.0),
    "blackwell": (96.0, 86.0, 80.0, 48.0, 45.1, 42.0, 40.0, 30.0, 24.0, 22.0, 20.0, 17.5, 15.0, 12.0, 6.0),
}

# Bytes that a channel keeps in flight to one peer, in eight steps; half of LL and 15/16 of LL128 are data.
STEPS = 8
SIMPLE_BUFFER_BYTES = 4 << 20
LL_DATA_BYTES = 512 * 8 * 16 * STEPS / 2
LL128_DATA_BYTES = 640 * 120 * 8 * STEPS * 15 / 16
NVLS_CHANNELS = 16
NVLS_CHUNK_BYTES = 128 << 10
NVLS_TREE_CHUNK_BYTES = 64 << 10  # from four nodes on
# (collectives of less than this many rounds of chunks, take chunks of at most) in order
NVLS_CHUNKS = ((64, 64 << 10), (8, 32 << 10), (2, 16 << 10))
NVLS_TREE_CHUNKS = ((16, 128 << 10), (4, 64 << 10), (1, 32 << 10))
