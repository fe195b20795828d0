"""Published all-reduces against `geosim.cost.nccl`: bus bandwidths in GB/s, and a sweep over sizes.

Algorithm and protocol are those that NCCL's tuner picks, or the one that a row names. Bar: 15 % in the mean
and 30 % at worst from 1 MiB up. Rows whose source says that something was wrong with the machine stay in the
table; what they imply for the NICs is a counter-run.
"""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from geosim.cost.nccl import bus_factor, picked
from geosim.cost.nccl_cluster import Cluster
from geosim.cost.nccl_constants import BASE_US
from geosim.cost.nccl_tuner import latency
from papers.nccl.systems import A3_MEGA, GB, GBIT, GIB, MEASURED, MIB, Measured
from papers.tables import rows

_CURVE = Path(__file__).parent / "allreduce_2x8_h100.csv"
_LEAST_BYTES = MIB


@dataclass(frozen=True)
class Entry:
    """One published value and ours."""

    name: str
    published: float
    ours: float

    @property
    def error(self) -> float:
        """Relative."""
        return self.ours / self.published - 1


def bus_bandwidth(cluster: Cluster, size_bytes: float, call_s: float = 0.0) -> float:
    """GB/s as nccl-tests prints it."""
    seconds = float(picked(np.array([size_bytes]), cluster)[0]) + call_s
    return size_bytes / seconds * bus_factor("all-reduce", cluster.ranks) / GB


def measured() -> list[tuple[Measured, Entry]]:
    """The published bus bandwidths."""
    return [(m, Entry(m.id, m.published, bus_bandwidth(m.cluster, m.size_bytes, m.call_s))) for m in MEASURED]


def sweep() -> list[Entry]:
    """The sweep over sizes, microseconds."""
    table = rows(_CURVE)
    sizes = np.array([float(row["bytes"]) for row in table])
    times = picked(sizes, A3_MEGA) / 1e-6
    return [
        Entry(row["bytes"], float(row["time_us"]), float(ours))
        for row, ours in zip(table, times, strict=True)
    ]


def implied_gbit(row: Measured) -> float:
    """The rate of a NIC with which our bandwidth is the published one, Gbit/s."""
    low, high = 1.0, row.cluster.nic_bytes_per_s / GBIT
    for _ in range(50):
        middle = (low + high) / 2
        cluster = replace(row.cluster, nic_bytes_per_s=middle * GBIT)
        if bus_bandwidth(cluster, row.size_bytes, row.call_s) < row.published:
            low = middle
        else:
            high = middle
    return high


def reproduce() -> dict[str, float]:
    """Our value of every claim."""
    table = measured()
    by_id = {m.id: m for m, _ in table}
    sound = [abs(entry.error) for m, entry in table if not m.fault]
    every = [abs(entry.error) for _, entry in table]
    curve = [e for e in sweep() if float(e.name) >= _LEAST_BYTES]
    slow = implied_gbit(by_id["NC-H100-RoCE-8G"])
    roce = replace(by_id["NC-H100-RoCE-1G"].cluster, nic_bytes_per_s=slow * GBIT)
    script = [replace(m, call_s=0.0) for m, _ in table if m.call_s]
    bare = [bus_bandwidth(m.cluster, m.size_bytes) / m.published - 1 for m in script]
    pair = replace(MEASURED[0].cluster, per_node=2, algorithms=("tree", "ring"))
    h20 = replace(A3_MEGA, nics=16, nic_bytes_per_s=400 * GBIT, net_latency_s=0.0)
    return {entry.name: entry.ours for _, entry in table} | {
        "NC-mean": 100 * float(np.mean(sound)),
        "NC-worst": 100 * max(sound),
        "NC-all": 100 * max(every),
        "NC-sweep-mean": 100 * float(np.mean([abs(e.error) for e in curve])),
        "NC-sweep-worst": 100 * max(abs(e.error) for e in curve),
        "NC-pair": float(picked(np.array([8.0]), pair)[0]) / 1e-6,
        "pair_hops": latency(pair, ("ring", "LL")) / 1e-6 - BASE_US["ring"][0],
        "NC-H20": latency(h20, ("nvls-tree", "Simple")) / 1e-6,
        "h20_tree": latency(h20, ("tree", "LL")) / 1e-6,
        "low_gbit": implied_gbit(by_id["NC-A100-8x100"]),
        "hdr_gbit": implied_gbit(by_id["NC-A100-4xHDR"]),
        "roce_gbit": slow,
        "roce_1g": bus_bandwidth(roce, GIB),
        "bare_1m": 100 * bare[-1],
        "bare_10m": 100 * bare[-2],
        "sound": len(sound),
    }
