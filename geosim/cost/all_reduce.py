"""The all-reduce that plain data parallelism runs between sites: its links, and what each bucket takes."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from geosim.cost import ring, tree
from geosim.cost.calibration import Calibration
from geosim.cost.nccl_constants import LL128_DATA_BYTES, LL_DATA_BYTES
from geosim.cost.transport import Path
from geosim.scenario import Nccl, Scenario


def backend(scenario: Scenario, calibration: Calibration) -> str:
    """Whose collective runs: given, or gloo where all ranks are processors."""
    processors = all(site.accelerator.is_processor for site in scenario.sites)
    return calibration.backend or ("gloo" if processors else "nccl")


def channel_bytes(nccl: Nccl) -> float:
    """Data that a channel has in flight to a peer; NCCL picks Simple for buckets, so `auto` is that."""
    return {"LL": LL_DATA_BYTES, "LL128": LL128_DATA_BYTES}.get(nccl.protocol, nccl.buffer_size_bytes)


@dataclass(frozen=True)
class Wan:
    """The collective between sites.

    Attributes:
        ways: directed pairs of sites that data crosses.
        kind: "gloo", "nccl" (its ring) or "tree".
        rdma: whether queue pairs carry it, or TCP.
        channels: of NCCL.
        plan: of the tree.
    """

    ways: tuple[tuple[int, int], ...]
    kind: str
    rdma: bool
    channels: int
    plan: tree.TreePlan | None

    def flows(self, source: int, target: int, nccl: Nccl) -> int:
        """Connections of a way: queue pairs' windows are their channel's, TCP's are each socket's own."""
        if self.kind == "gloo":
            return 1
        own = self.channels if self.plan is None else self.plan.flows(source, target, self.channels)
        return own if self.rdma else own * nccl.sockets

    def payload(self, source: int, target: int, total_bytes: float, ranks: int) -> float:
        """Bytes that cross a way for `total_bytes` of gradients."""
        if self.plan is None:
            return ring.crossing_bytes(total_bytes, ranks)
        return self.plan.payload_share(source, target) * total_bytes


def make_wan(scenario: Scenario, calibration: Calibration) -> Wan:
    """How the flat collective lies over the sites."""
    sites = len(scenario.sites)
    nccl, runs = scenario.nccl, backend(scenario, calibration)
    channels, rdma = max(ring.NCCL_CHANNELS, nccl.min_channels), runs == "nccl" and nccl.routed_rdma
    if sites == 1:
        return Wan((), runs, rdma, channels, None)
    if runs == "nccl" and nccl.algorithm == "tree":
        plan = tree.make_tree(tuple(site.nodes for site in scenario.sites))
        return Wan(plan.ways, "tree", rdma, channels, plan)
    ways = tuple((a, (a + 1) % sites) for a in range(sites))
    # Gloo's ranks pass what they have reduced to the one before them.
    return Wan(tuple((b, a) for a, b in ways) if runs == "gloo" else ways, runs, rdma, channels, None)


@dataclass(frozen=True)
class AllReduce:
    """The all-reduce of a step.

    Attributes:
        buckets: bytes of each, in the order in which they leave.
        ranks: of all sites.
        wan: how it lies over the sites. nccl: how NCCL is set.
        silence_s: before the first bucket.
        stall_s: what each bucket waits for queue pairs' timeouts, mean.
    """

    buckets: np.ndarray
    ranks: int
    wan: Wan
    nccl: Nccl
    silence_s: float
    stall_s: float

    @property
    def payload_bytes(self) -> tuple[float, ...]:
        """What a step sends over each way."""
        return self.crossing(float(self.buckets.sum()))

    def crossing(self, total_bytes: float) -> tuple[float, ...]:
        """What goes over each way for `total_bytes` of gradients."""
        return tuple(self.wan.payload(*way, total_bytes, self.ranks) for way in self.wan.ways)

    def times(self, crossings: Iterable[tuple[Path, float, float]]) -> np.ndarray:
        """Seconds of each bucket, over each way's path, what the way gets of what it shares in bytes per
        second, and what a byte of payload takes on it, in order.

        Buckets follow each other without silence, so that on the wire a step's are one long exchange.
        """
        edges = {}
        for way, payload, (path, limit, wire) in zip(
            self.wan.ways, self.payload_bytes, crossings, strict=True
        ):
            flows = self.wan.flows(*way, self.nccl)
            edges[way] = ring.Edge(path.for_exchange(payload * wire, flows).limited(limit), wire, flows)
        each = self._warm(edges) + self.stall_s
        each[0] += ring.ramp_time(
            max(self.payload_bytes), tuple(edges.values()), self.silence_s, self._flight_bytes()
        )
        return each

    def _warm(self, edges: dict[tuple[int, int], ring.Edge]) -> np.ndarray:
        """Without slow start."""
        sizes, flight = self.buckets, channel_bytes(self.nccl)
        if self.wan.plan is not None:
            return tree.nccl_times(sizes, self.wan.plan, edges, self.wan.channels, flight)
        if self.wan.kind == "gloo":
            return ring.gloo_times(sizes, self.ranks, tuple(edges.values()))
        return ring.nccl_times(sizes, self.ranks, tuple(edges.values()), self.wan.channels * flight)

    def _flight_bytes(self) -> float:
        """The most that is in flight over a way: gloo's two segments, NCCL's buffers."""
        if self.wan.kind == "gloo":
            return 2 * float(ring.gloo_segment(self.buckets, self.ranks).max())
        return self.wan.channels * channel_bytes(self.nccl)
