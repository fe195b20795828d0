"""`build`: a scenario and a policy in, a `Problem` out."""

import math
from dataclasses import replace
from functools import lru_cache, partial

from geosim.cost import codec as codec_cost
from geosim.cost import collective, flat, ring
from geosim.cost.all_reduce import Wan, make_wan
from geosim.cost.buckets import Buckets, exposed, make_buckets
from geosim.cost.calibration import Calibration
from geosim.cost.compute import held_elements, replica_group, site_step, tokens_per_accelerator
from geosim.cost.problem import FragmentPlan, LinkPlan, Problem, SitePlan
from geosim.cost.room import check_room
from geosim.cost.transport import make_path, payload_share
from geosim.errors import UsageError
from geosim.params import ParamTable
from geosim.policy import (
    Accumulate,
    Blocking,
    Codec,
    Group,
    Layout,
    Local,
    Streaming,
    SyncPolicy,
    make_layout,
)
from geosim.policy.routes import Transfer, make_routes, pairs
from geosim.policy.schedule import make_plan
from geosim.policy.slices import slice_share
from geosim.scenario import Scenario, Site, Workload, site_batches, site_tokens


@lru_cache(maxsize=16)
def _table(workload: Workload) -> ParamTable:
    return workload.model.param_table()


@lru_cache(maxsize=16)
def _buckets(workload: Workload) -> Buckets:
    return make_buckets(_table(workload), workload.gradient_dtype)


@lru_cache(maxsize=64)
def base_sites(scenario: Scenario, local: bool, calibration: Calibration) -> tuple[SitePlan, ...]:
    """What the sites do in a step, whatever travels between them.

    `local`: each step ends with the optimizer's, else with adding to the accumulator.
    """
    work = scenario.workload
    out = []
    for site, batch in zip(scenario.sites, site_batches(scenario), strict=True):
        made = site_step(work, site)
        step = made.compute_s if site.step_time_s is None else site.step_time_s
        step *= batch / work.batch_per_accelerator
        shown = calibration.site_collective_s
        if shown is None:
            shown = made.data_s
        if shown is None:
            durations = collective.site_all_reduce(_buckets(work).sizes, site, scenario.nccl)
            shown = (
                exposed(_buckets(work), durations, calibration.backward_share * step)
                if site.ranks > 1
                else 0.0
            )
        rate = codec_cost.rates(SyncPolicy().codec, site.accelerator, calibration)
        per_element = rate.optimizer_s_per_element if local else rate.accumulate_s_per_element
        update = calibration.optimizer_s if local else calibration.accumulate_s
        if update is None and local:
            update = made.optimizer_s
        if update is None:
            update = held_elements(work, site) * per_element
        out.append(
            SitePlan(
                name=site.name,
                ranks=site.ranks,
                step_s=step,
                step_cv=work.step_jitter,
                collective_s=shown,
                update_s=update + calibration.step_overhead_s,
                uplink_bytes_per_s=site.uplink_bytes_per_s or float("inf"),
                downlink_bytes_per_s=site.downlink_bytes_per_s or float("inf"),
            )
        )
    return tuple(out)


@lru_cache(maxsize=64)
def colocated_step(scenario: Scenario, calibration: Calibration) -> float:
    """Seconds of a step of the same ranks in one room: plain data parallelism on the best site's fabric."""
    work = scenario.workload
    sites = base_sites(scenario, True, calibration)
    room = max(scenario.sites, key=_between_nodes)
    per_node = room.accelerators_per_node
    nodes = -(-scenario.ranks // per_node)
    if work.parallel is not None:
        together = room.model_copy(update={"nodes": nodes, "accelerators_per_node": per_node})
        each = [site_step(work, together, site.accelerator) for site in scenario.sites]
        return max(s.compute_s + (s.data_s or 0.0) + (s.optimizer_s or 0.0) for s in each)
    step = max(site.step_s for site in sites)
    shown = calibration.site_collective_s
    if shown is None:
        buckets = _buckets(work)
        together = room.model_copy(update={"nodes": nodes})
        durations = collective.site_all_reduce(buckets.sizes, together, scenario.nccl)
        shown = exposed(buckets, durations, calibration.backward_share * step) if scenario.ranks > 1 else 0.0
    return step + shown + max(site.update_s for site in sites)


def _between_nodes(site: Site) -> float:
    return site.fabric.inter_node.bandwidth_bytes_per_s if site.fabric.inter_node else 0.0


@lru_cache(maxsize=64)
def ddp_wan_bytes(scenario: Scenario) -> float:
    """Bytes a step on all WAN links that plain fp32 data parallelism over all ranks would send."""
    sites = scenario.sites
    if len(sites) == 1:
        return 0.0
    payload = ring.crossing_bytes(4.0 * _table(scenario.workload).numel, scenario.ranks)
    total = 0.0
    for a, site in enumerate(sites):
        link = scenario.link(site.name, sites[(a + 1) % len(sites)].name)
        total += payload / (payload_share(link.mtu_bytes) if link else payload_share(1500))
    return total


@lru_cache(maxsize=4096)
def _payload_bytes(
    workload: Workload, codec: Codec, groups: tuple[Group, ...], streamed: int, order: str, shards: int
) -> tuple[float, ...]:
    """A site's payload for each fragment, by all it depends on: a sweep over the rest counts bytes once."""
    overlap = Streaming(fragments=streamed, steps=0) if streamed else Blocking()
    update = Local() if streamed else Accumulate()
    policy = SyncPolicy(
        codec=codec, groups=groups, overlap=overlap, update=update, order=order, shards=shards
    )
    layout = make_layout(_table(workload), policy, shards)
    return tuple(float(layout.fragment_bytes(i)) for i in range(len(layout.fragments)))


def build(scenario: Scenario, policy: SyncPolicy, calibration: Calibration | None = None) -> Problem:
    """Everything that one policy costs in one scenario.

    Raises:
        UsageError: if two sites that have to talk have no link, the policy does not fit the model, or a
            stated parallelism does not divide or does not fit the memory beside what the policy keeps.
    """
    known = calibration or Calibration()
    check_room(scenario, policy)
    sites = base_sites(scenario, policy.is_flat or isinstance(policy.update, Local), known)
    routes = make_routes(policy.topology, tuple(site.name for site in scenario.sites))
    wan = make_wan(scenario, known) if policy.is_flat else None
    links = _links(scenario, policy, routes, wan)
    problem = partial(
        Problem,
        scenario=scenario.name,
        policy=policy,
        links=links,
        routes=routes,
        overhead_s=known.exchange_overhead_s,
        tokens_per_step=_tokens(scenario),
        colocated_step_s=colocated_step(scenario, known),
        ddp_wan_bytes=ddp_wan_bytes(scenario),
        trunks=flat.trunk_rates(scenario),
    )
    if wan is not None:
        made = flat.make_flat(scenario, policy, _table(scenario.workload), wan, links, sites, known)
        plain = tuple(replace(site, collective_s=0.0) for site in sites)
        return problem(sites=plain, fragments=(), plan=None, flat=made)
    layout = make_layout(_table(scenario.workload), policy, min(site.ranks for site in scenario.sites))
    least = min(scenario.sites, key=lambda site: site.ranks)
    if least.ranks < layout.shards:
        raise UsageError(f"shards: {layout.shards} is more than the {least.ranks} ranks of site {least.name}")
    streamed = policy.overlap.fragments if isinstance(policy.overlap, Streaming) else 0
    sizes = _payload_bytes(
        scenario.workload, policy.codec, policy.groups, streamed, policy.order, layout.shards
    )
    fragments = tuple(_fragment(scenario, layout, i, size, known) for i, size in enumerate(sizes))
    return problem(sites=sites, fragments=fragments, plan=make_plan(layout), flat=None)


def _tokens(scenario: Scenario) -> int:
    """Tokens of a step of all sites."""
    if scenario.workload.parallel is not None:
        return round(tokens_per_accelerator(scenario.workload) * scenario.ranks)
    return sum(site_tokens(scenario))


def _links(
    scenario: Scenario, policy: SyncPolicy, routes: tuple[Transfer, ...], wan: Wan | None
) -> tuple[LinkPlan, ...]:
    names = [site.name for site in scenario.sites]
    out = []
    ways = pairs(policy.topology, routes, len(names)) if wan is None else wan.ways
    joined, used = {frozenset(link.between): link for link in scenario.wan}, set(ways)
    numbers = {between: i for i, between in enumerate(joined)}
    for a, b in ways:
        stated = joined.get(frozenset((names[a], names[b])))
        if stated is None:
            what = f"topology '{policy.topology.kind}'"
            if wan is not None and wan.plan is not None:
                what = "nccl.algorithm 'tree'"
            raise UsageError(
                f"wan: no link joins {names[a]} and {names[b]}: {what} needs one; add it or choose another"
                f" {what.split()[0].removeprefix('nccl.')}"
            )
        link = stated.average()
        ratio = link.bandwidth(names[a]) / link.bandwidth_bytes_per_s
        two_way = (b, a) in used
        if wan is None:
            path = make_path(link, names[a], two_way)
            wire = 1 / payload_share(link.mtu_bytes) / (1 - link.loss)
        else:
            path, wire = flat.flat_path(wan, scenario, link, (a, b), two_way)
        out.append(
            LinkPlan(
                name=f"{names[a]}->{names[b]}",
                source=a,
                target=b,
                path=path,
                two_way=two_way,
                jitter_s=link.jitter_s,
                wire_per_payload=wire,
                trace=tuple((p.at_s, p.bandwidth_bytes_per_s * ratio) for p in link.trace),
                number=numbers[frozenset(stated.between)],
                varying=stated if stated.varies else None,
                trunks=tuple(
                    2 * i + ((names[a], names[b]) not in trunk.links)
                    for i, trunk in enumerate(scenario.trunks)
                    if trunk.carries(names[a], names[b]) is not None
                ),
            )
        )
    return tuple(out)


def _fragment(
    scenario: Scenario, layout: Layout, index: int, payload_bytes: float, calibration: Calibration
) -> FragmentPlan:
    policy = layout.policy
    numel = layout.fragment_numel(index)
    total = _table(scenario.workload).numel
    share = -(-numel // layout.shards)
    rows: list[tuple[float, float, float, float]] = []
    for site in scenario.sites:
        rate = codec_cost.rates(policy.codec, site.accelerator, calibration)
        flag = (
            calibration.flag_s
            if calibration.flag_s is not None
            else collective.site_flag(site, scenario.nccl)
        )
        mine_bytes = payload_bytes / layout.shards
        encode = codec_cost.encode_time(share, mine_bytes, rate) + flag
        decode = codec_cost.decode_time(share, mine_bytes, policy.codec, len(scenario.sites), rate)
        if calibration.gather_s_per_byte is not None:
            gather = 4.0 * numel * calibration.gather_s_per_byte
        else:
            # One WAN rank has to send all parts of the model.
            group, part = replica_group(scenario.workload, site) if layout.shards > 1 else (site, 1.0)
            gather = float(
                collective.site_all_gather(4.0 * numel * part, group, layout.shards, scenario.nccl)
            )
        accumulate = isinstance(policy.update, Accumulate)
        whole = calibration.optimizer_s if accumulate else calibration.outer_s
        if whole is None:
            apply = (
                held_elements(scenario.workload, site)
                * numel
                / total
                * (rate.optimizer_s_per_element if accumulate else rate.outer_s_per_element)
            )
        else:
            apply = whole * numel / total
        rows.append((encode, decode, gather, apply))
    encode_s, decode_s, gather_s, apply_s = zip(*rows, strict=True)
    streams = _streams_used(policy, payload_bytes / layout.shards)
    first = slice_share(payload_bytes / layout.shards, streams, policy.chunk_bytes)
    flows = layout.shards * streams
    return FragmentPlan(payload_bytes, flows, encode_s, decode_s, gather_s, apply_s, first)


def _streams_used(policy: SyncPolicy, payload_bytes: float) -> int:
    """Streams that carry a payload: all where it is split evenly, else no more than it has slices."""
    if policy.chunk_bytes is None:
        return policy.streams
    return max(1, min(policy.streams, math.ceil(payload_bytes / policy.chunk_bytes)))
