"""What NCCL sees of a machine room: accelerators, NVLink, NICs, and the channels that it lays over them."""

from dataclasses import dataclass

from geosim.cost import nccl_constants as c
from geosim.errors import UsageError


@dataclass(frozen=True)
class Cluster:
    """Equal nodes of NVLink-joined accelerators.

    Attributes:
        architecture: of the accelerators.
        nodes, per_node: how many nodes, and accelerators in each.
        nvlink_bytes_per_s: nominal, an accelerator and direction (A100 300 GB/s, H100 450 GB/s).
        nics, nic_bytes_per_s: NICs of a node, and what each carries a direction (nominal).
        node_latency_s: of a message inside a node, where it is more than NCCL's constants.
        net_latency_s: one way between nodes, beyond what NCCL's constants hold for InfiniBand.
        cpu: "intel", "amd" or "other": what posting to a NIC takes.
        algorithms, protocols: those allowed (NCCL_ALGO, NCCL_PROTO, NCCL_NVLS_ENABLE).
        buffer_bytes: of a channel for the Simple protocol (NCCL_BUFFSIZE).
        min_channels: where NCCL would lay fewer (NCCL_MIN_NCHANNELS).
        gpu_direct: NICs read accelerators' memory (NCCL_NET_GDR_LEVEL). Else data stops in host memory, and
            what is sent and what is received share the PCIe link above accelerator and NIC each way.
    """

    architecture: c.Architecture
    nodes: int
    per_node: int
    nvlink_bytes_per_s: float
    nics: int = 0
    nic_bytes_per_s: float = 0.0
    node_latency_s: float = 0.0
    net_latency_s: float = 0.0
    cpu: str = "intel"
    algorithms: tuple[c.Algorithm, ...] = c.ALGORITHMS
    protocols: tuple[c.Protocol, ...] = c.PROTOCOLS
    buffer_bytes: float = c.SIMPLE_BUFFER_BYTES
    min_channels: int = 1
    gpu_direct: bool = True

    def __post_init__(self) -> None:
        for field, known in (("architecture", tuple(c.NVLINK_SHARE)), ("cpu", tuple(c.NET_OVERHEAD_US))):
            given = getattr(self, field)
            if given not in known:
                raise UsageError(f"{field}: '{given}' is unknown: use one of {', '.join(known)}")
        for field in ("nodes", "per_node", "min_channels"):
            if getattr(self, field) < 1:
                raise UsageError(f"{field}: {getattr(self, field)} must be 1 or more")
        for field in ("node_latency_s", "net_latency_s"):
            if not getattr(self, field) >= 0:
                raise UsageError(f"{field}: {getattr(self, field)} must be 0 or more")
        if not self.buffer_bytes > 0:
            raise UsageError(f"buffer_bytes: {self.buffer_bytes} must be above 0")
        if self.per_node > 1 and not self.nvlink_bytes_per_s > 0:
            raise UsageError(f"nvlink_bytes_per_s: {self.nvlink_bytes_per_s} must be above 0")
        if self.nodes > 1 and not (self.nics >= 1 and self.nic_bytes_per_s > 0):
            raise UsageError(f"nics: {self.nodes} nodes need at least one NIC each, and its bandwidth")
        for field, names, choices in (
            ("algorithms", self.algorithms, c.ALGORITHMS),
            ("protocols", self.protocols, c.PROTOCOLS),
        ):
            wrong = [name for name in names if name not in choices]
            if wrong or not names:
                raise UsageError(f"{field}: {', '.join(wrong) or 'none'}: use some of {', '.join(choices)}")

    @property
    def ranks(self) -> int:
        """Accelerators in all."""
        return self.nodes * self.per_node

    @property
    def column(self) -> int:
        """Of the tuner's tables: one, two, or more nodes."""
        return min(self.nodes, 3) - 1

    @property
    def nvlink(self) -> float:
        """Bytes per second of NVLink out of one accelerator, as NCCL counts them."""
        return self.nvlink_bytes_per_s * c.NVLINK_SHARE[self.architecture]

    @property
    def net(self) -> float:
        """Bytes per second out of one node: its NICs, or its accelerators' PCIe where that is less."""
        pcie = self.per_node * c.PCIE_GB_PER_S[self.architecture] * c.GB / (1 if self.gpu_direct else 2)
        return min(self.nics * self.nic_bytes_per_s * c.NET_SHARE, pcie)

    @property
    def graph_channels(self) -> int:
        """Channels of the graph that NCCL searches: one a NIC, and in one node an accelerator's NVLinks.

        The tuner's caps are per channel of the graph; a collective then runs on twice as many.
        """
        if self.nodes > 1:
            return self.nics
        return 8 if self.architecture == "volta" else 12

    @property
    def channels(self) -> int:
        """Channels that a ring or a tree runs on."""
        return max(2 * self.graph_channels, self.min_channels)

    @property
    def heads(self) -> int:
        """Accelerators of a node that each reduce a part in the switch: all, or those with a NIC."""
        return self.per_node if self.nodes == 1 else min(self.per_node, self.nics)

    def step_bytes(self, protocol: c.Protocol) -> float:
        """Data that a channel sends as one step."""
        return self.flight_bytes(protocol) / c.STEPS

    def flight_bytes(self, protocol: c.Protocol) -> float:
        """Data that a channel has in flight to one peer at most."""
        if protocol == "Simple":
            return self.buffer_bytes
        return c.LL_DATA_BYTES if protocol == "LL" else c.LL128_DATA_BYTES

    def net_rate(self, protocol: c.Protocol) -> float:
        """Bytes per second out of a node: `net`, or what is in flight over a round trip."""
        if self.nodes == 1 or self.net_latency_s <= 0:
            return self.net
        return min(self.net, self.channels * self.flight_bytes(protocol) / (2 * self.net_latency_s))

    def speed(self, limit_bytes_per_s: float) -> float:
        """The fastest channel that NCCL's search tries within a limit, bytes per second."""
        speeds = c.SPEEDS_INTRA if self.nodes == 1 else c.SPEEDS_INTER
        fit = [s * c.GB for s in speeds[self.architecture] if s * c.GB <= limit_bytes_per_s * (1 + 1e-9)]
        return max(fit, default=limit_bytes_per_s)
