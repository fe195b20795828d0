"""Plain data parallelism over all ranks of all sites: the links it uses, and what each bucket takes there."""

from dataclasses import dataclass

import numpy as np

from geosim.cost import collective, ring, roce, tree
from geosim.cost.buckets import make_buckets
from geosim.cost.calibration import Calibration
from geosim.cost.nccl_constants import LL128_DATA_BYTES, LL_DATA_BYTES
from geosim.cost.problem import FlatPlan, LinkPlan, SitePlan
from geosim.cost.transport import Path, make_path, payload_share
from geosim.params import ParamTable
from geosim.policy import SyncPolicy
from geosim.scenario import Nccl, Scenario, Site, WanLink


def backend(scenario: Scenario, calibration: Calibration) -> str:
    """Whose collective runs: given, or gloo where all ranks are processors."""
    processors = all(site.accelerator.bf16_flops is None for site in scenario.sites)
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


def sender_rate(site: Site) -> float:
    """Bytes per second that come to the WAN: one node's NICs, or the site's uplink where that is less."""
    hop = site.fabric.inter_node
    nics = float("inf") if hop is None else site.accelerators_per_node * hop.bandwidth_bytes_per_s
    return min(nics, site.uplink_bytes_per_s or float("inf"))


def flat_path(
    wan: Wan, scenario: Scenario, link: WanLink, way: tuple[int, int], two_way: bool
) -> tuple[Path, float]:
    """A way's path and its wire bytes for a byte of payload, by TCP or by RDMA."""
    nccl, site = scenario.nccl, scenario.sites[way[0]]
    if not wan.rdma:
        return make_path(link, site.name, two_way), 1 / payload_share(link.mtu_bytes) / (1 - link.loss)
    pairs, rate = wan.flows(*way, nccl), link.bandwidth(site.name)
    path = roce.make_path(link, rate, nccl, pairs, channel_bytes(nccl), sender_rate(site))
    return path, 1 / roce.payload_share(link.mtu_bytes)


def make_flat(
    scenario: Scenario,
    policy: SyncPolicy,
    table: ParamTable,
    wan: Wan,
    links: tuple[LinkPlan, ...],
    sites: tuple[SitePlan, ...],
    calibration: Calibration,
) -> FlatPlan:
    """Every bucket's all-reduce, for each rate that a link takes on."""
    buckets = make_buckets(table, policy.codec.quantize.kind)
    nccl, ranks, share = scenario.nccl, scenario.ranks, calibration.backward_share
    if not links:
        inside = collective.site_all_reduce(buckets.sizes, scenario.sites[0], nccl)
        return FlatPlan(share, buckets.ready, ((0.0, inside),), ())
    payloads = tuple(wan.payload(link.source, link.target, buckets.total_bytes, ranks) for link in links)
    silence = max(site.step_s for site in sites) * (1 - share)
    changes = sorted({0.0} | {at for link in links for at, _ in link.trace})
    durations = []
    for at in changes:
        edges = {(link.source, link.target): _edge(scenario, wan, link, at) for link in links}
        each = _times(buckets.sizes, ranks, wan, nccl, edges) + _stall(scenario, wan)
        each[0] += ring.ramp_time(
            max(payloads), tuple(edges.values()), silence, _flight(buckets.sizes, ranks, wan, nccl)
        )
        durations.append((at, each))
    return FlatPlan(share, buckets.ready, tuple(durations), payloads)


def _edge(scenario: Scenario, wan: Wan, plan: LinkPlan, at_s: float) -> ring.Edge:
    """A way as it is at a time: queue pairs' share depends on the rate."""
    nccl, flows = scenario.nccl, wan.flows(plan.source, plan.target, scenario.nccl)
    path = plan.path_at(at_s)
    link = scenario.link(*(scenario.sites[m].name for m in (plan.source, plan.target)))
    if plan.trace and link is not None and wan.rdma:
        sender = sender_rate(scenario.sites[plan.source])
        path = roce.make_path(link, path.rate_bytes_per_s, nccl, flows, channel_bytes(nccl), sender)
    return ring.Edge(path, plan.wire_per_payload, flows)


def _times(
    sizes: np.ndarray, ranks: int, wan: Wan, nccl: Nccl, edges: dict[tuple[int, int], ring.Edge]
) -> np.ndarray:
    if wan.plan is not None:
        return tree.nccl_times(sizes, wan.plan, edges, wan.channels, channel_bytes(nccl))
    if wan.kind == "gloo":
        return ring.gloo_times(sizes, ranks, tuple(edges.values()))
    return ring.nccl_times(sizes, ranks, tuple(edges.values()), wan.channels * channel_bytes(nccl))


def _flight(sizes: np.ndarray, ranks: int, wan: Wan, nccl: Nccl) -> float:
    """The most that a collective keeps in flight: gloo two segments, NCCL its channels' buffers."""
    if wan.kind == "gloo":
        return 2 * float(ring.gloo_segment(sizes, ranks).max())
    return wan.channels * channel_bytes(nccl)


def _stall(scenario: Scenario, wan: Wan) -> float:
    """Mean wait of a bucket for timeouts of queue pairs."""
    if not wan.rdma:
        return 0.0
    names = [site.name for site in scenario.sites]
    links = [scenario.link(names[a], names[b]) for a, b in wan.ways]
    return max(roce.tail_stall(link, scenario.nccl, wan.channels) for link in links if link is not None)
