"""Plain data parallelism over all ranks of all sites: its links' paths, by TCP or RDMA, and its plan."""

from geosim.cost import collective, roce
from geosim.cost.all_reduce import AllReduce, Wan, channel_bytes
from geosim.cost.buckets import make_buckets
from geosim.cost.calibration import Calibration
from geosim.cost.problem import FlatPlan, LinkPlan, SitePlan
from geosim.cost.transport import Path, make_path, payload_share
from geosim.errors import UsageError
from geosim.params import ParamTable
from geosim.policy import SyncPolicy
from geosim.scenario import Scenario, Site, WanLink


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
    """Every bucket's all-reduce, for each rate that a link takes on.

    Raises:
        UsageError: RDMA over a link that varies.
    """
    buckets = make_buckets(table, policy.codec.quantize.kind)
    share = calibration.backward_share
    if not links:
        inside = collective.site_all_reduce(buckets.sizes, scenario.sites[0], scenario.nccl)
        return FlatPlan(share, buckets.ready, ((0.0, inside),), ())
    if wan.rdma and any(link.varying is not None for link in links):
        raise UsageError("nccl.net: RDMA over a link that varies is not modelled: use 'socket'")
    silence = max(site.step_s for site in sites) * (1 - share)
    made = AllReduce(buckets.sizes, scenario.ranks, wan, scenario.nccl, silence, _stall(scenario, wan))
    changes = sorted({0.0} | {at for link in links for at, _ in link.trace})
    limits = shared_limits(links, sites, trunk_rates(scenario))
    durations = tuple(
        (
            at,
            made.times(
                (_path_at(scenario, wan, link, at), limit, link.wire_per_payload)
                for link, limit in zip(links, limits, strict=True)
            ),
        )
        for at in changes
    )
    return FlatPlan(share, buckets.ready, durations, made.payload_bytes, made)


def _path_at(scenario: Scenario, wan: Wan, plan: LinkPlan, at_s: float) -> Path:
    """A way's path at a time; queue pairs' share depends on the rate."""
    path = plan.path_at(at_s)
    link = scenario.link(*(scenario.sites[m].name for m in (plan.source, plan.target)))
    if not plan.trace or link is None or not wan.rdma:
        return path
    nccl, sender = scenario.nccl, sender_rate(scenario.sites[plan.source])
    flows = wan.flows(plan.source, plan.target, nccl)
    return roce.make_path(link, path.rate_bytes_per_s, nccl, flows, channel_bytes(nccl), sender)


def _stall(scenario: Scenario, wan: Wan) -> float:
    """Mean wait of a bucket for timeouts of queue pairs."""
    if not wan.rdma:
        return 0.0
    names = [site.name for site in scenario.sites]
    links = [scenario.link(names[a], names[b]) for a, b in wan.ways]
    return max(roce.tail_stall(link, scenario.nccl, wan.channels) for link in links if link is not None)


def shared_limits(
    links: tuple[LinkPlan, ...], sites: tuple[SitePlan, ...], trunks: tuple[float, ...]
) -> tuple[float, ...]:
    """Bytes per second that each way gets of what it shares.

    A ring and a tree keep all their ways equally busy, so a trunk is shared evenly.
    """
    return tuple(
        min(
            sites[link.source].uplink_bytes_per_s,
            sites[link.target].downlink_bytes_per_s,
            *(trunks[trunk] / sum(trunk in each.trunks for each in links) for trunk in link.trunks),
        )
        for link in links
    )


def trunk_rates(scenario: Scenario) -> tuple[float, ...]:
    """Bytes per second of each trunk, from its near end to its far one, then back."""
    return tuple(
        rate
        for trunk in scenario.trunks
        for rate in (trunk.carries(*trunk.links[0]), trunk.carries(*trunk.links[0][::-1]))
        if rate is not None
    )
