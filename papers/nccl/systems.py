"""The machines behind the published bus bandwidths, as NCCL sees them: nominal rates, nothing fitted.

`measured_busbw.csv` has what was published. A row without a size is read as 8 GiB, where bandwidth is all.
"""

from dataclasses import dataclass, replace

from geosim.cost.nccl_cluster import Cluster
from geosim.cost.nccl_constants import Algorithm

GB, GBIT, US, MIB, GIB = 1e9, 1e9 / 8, 1e-6, 1 << 20, 1 << 30
_LARGE = 8 * GIB
# A call from Python that the script times, beyond the kernel: assumed.
PYTORCH_CALL_S = 15 * US


@dataclass(frozen=True)
class Measured:
    """A published bus bandwidth in GB/s.

    `fault`: what the source itself says is wrong with the run, so that no nominal rate can meet it.
    """

    id: str
    published: float
    cluster: Cluster
    size_bytes: float = _LARGE
    call_s: float = 0.0
    fault: str = ""


def a100(nodes: int, nics: int = 0, gbit: float = 0) -> Cluster:
    """Eight a node, 12 NVLinks."""
    return Cluster("ampere", nodes, 8, 300 * GB, nics, gbit * GBIT, cpu="amd")


def h100(nodes: int, nics: int = 0, gbit: float = 0, links: int = 18) -> Cluster:
    """Eight a node; H800 is one with 8 NVLinks instead of 18."""
    return Cluster("hopper", nodes, 8, links * 25 * GB, nics, gbit * GBIT)


def only(cluster: Cluster, algorithm: Algorithm) -> Cluster:
    """The same under NCCL_ALGO."""
    return replace(cluster, algorithms=(algorithm,))


_NEBIUS = h100(2, 8, 400)

MEASURED = (
    Measured("NC-H100-ring", 370, only(h100(1), "ring")),
    Measured("NC-H100-nvls", 480, only(h100(1), "nvls")),
    Measured("NC-H800-nvls", 215, only(h100(1, links=8), "nvls")),
    Measured("NC-A100", 232.54, a100(1)),
    Measured("NC-A100-8x200", 192, a100(2, 8, 200)),
    Measured("NC-A100-4x200", 86, a100(2, 4, 200)),
    Measured("NC-A100-1x200", 24, a100(2, 1, 200)),
    Measured("NC-A100-8x100", 60, only(a100(2, 8, 100), "ring"), fault="low"),
    Measured("NC-A100-4xHDR", 30, a100(2, 4, 200), fault="host"),
    Measured("NC-H800-8x100", 161, only(h100(2, 8, 100, links=8), "nvls-tree")),
    Measured("NC-H100-RoCE-1G", 216.5, h100(2, 8, 400), GIB, fault="half"),
    Measured("NC-H100-RoCE-8G", 231, h100(2, 8, 400), fault="half"),
    Measured("NC-H200-248", 350, h100(248, 8, 400), 512 * MIB),
    Measured("NC-IB-1000M", 434.99, _NEBIUS, 1000 * MIB, PYTORCH_CALL_S),
    Measured("NC-IB-100M", 304.03, _NEBIUS, 100 * MIB, PYTORCH_CALL_S),
    Measured("NC-IB-10M", 124.92, _NEBIUS, 10 * MIB, PYTORCH_CALL_S),
    Measured("NC-IB-1M", 22.30, _NEBIUS, MIB, PYTORCH_CALL_S),
    Measured("NC-1GPU-4NIC", 50, only(Cluster("hopper", 2, 1, 450 * GB, 4, 400 * GBIT), "tree")),
)

# Google's A3 Mega: 8 x 200 Gbit/s by GPUDirect-TCPXO, under the settings of its documentation: ring and tree,
# Simple, 8 MiB buffers, NVLS off. The latency is fitted to the sweep's 8-byte entry, below the bar's sizes.
A3_MEGA = Cluster(
    "hopper",
    2,
    8,
    450 * GB,
    8,
    200 * GBIT,
    net_latency_s=10.85 * US,
    algorithms=("tree", "ring"),
    protocols=("Simple",),
    buffer_bytes=8 * MIB,
)
