"""Collectives inside a site. Bytes in, seconds out; every function takes bytes as a float or an array.

Sites of accelerators that NVLink joins run NCCL (`geosim.cost.nccl`), under whichever algorithm and protocol
is fastest. All others run plain rings over the tiers of their fabric: n ranks move (n - 1) / n of the bytes
in n - 1 phases (Patarasuk and Yuan, JPDC 2009); a phase costs the tier's latency.
"""

from dataclasses import replace
from typing import TypeVar

import numpy as np

from geosim.cost import nccl
from geosim.cost.nccl_constants import ALGORITHMS, PROTOCOLS, Algorithm, Architecture
from geosim.errors import UsageError
from geosim.scenario import Fabric, Hop, Nccl, Site

Number = TypeVar("Number", float, np.ndarray)

# Accelerators with NVLink, by how their names begin.
_NVLINK: dict[str, Architecture] = {
    "V100": "volta",
    "A100": "ampere",
    "A800": "ampere",
    "H100": "hopper",
    "H200": "hopper",
    "H800": "hopper",
    "H20": "hopper",
    "B200": "blackwell",
}


_PLAIN = Nccl()


def site_cluster(site: Site, settings: Nccl = _PLAIN) -> nccl.Cluster | None:
    """A site as NCCL sees it, a NIC an accelerator; None where it does not run over NVLink."""
    name = site.accelerator.name
    architecture = next((kind for start, kind in _NVLINK.items() if name.startswith(start)), None)
    if architecture is None:
        return None
    inside, across = site.fabric.intra_node, site.fabric.inter_node or site.fabric.intra_node
    return nccl.Cluster(
        architecture=architecture,
        nodes=site.nodes,
        per_node=site.accelerators_per_node,
        nvlink_bytes_per_s=inside.bandwidth_bytes_per_s,
        nics=site.accelerators_per_node,
        nic_bytes_per_s=across.bandwidth_bytes_per_s,
        node_latency_s=inside.latency_s,
        net_latency_s=across.latency_s,
        algorithms=ALGORITHMS if settings.algorithm == "auto" else (settings.algorithm,),
        protocols=PROTOCOLS if settings.protocol == "auto" else (settings.protocol,),
        buffer_bytes=settings.buffer_size_bytes,
        min_channels=settings.min_channels,
        gpu_direct=settings.gdr_level != "LOC",
    )


def _site_best(
    size_bytes: np.ndarray, site: Site, settings: Nccl, collective: nccl.Collective
) -> np.ndarray | None:
    """Seconds under NCCL, None where it does not run. Gathers have no tree: those run as rings."""
    cluster = site_cluster(site, settings)
    if cluster is None:
        return None
    if collective != "all-reduce" and "ring" not in cluster.algorithms:
        rings: tuple[Algorithm, ...] = (*cluster.algorithms, "ring")
        cluster = replace(cluster, algorithms=rings)
    try:
        return nccl.best(size_bytes, cluster, collective)
    except UsageError:
        raise UsageError(
            f"nccl.algorithm: '{settings.algorithm}' with protocol '{settings.protocol}' cannot run an"
            f" {collective} at site {site.name}: use auto, ring or tree"
        ) from None


def reduce_scatter(size_bytes: Number, ranks: int, hop: Hop) -> Number:
    """Seconds until each of `ranks` holds its reduced share of `size_bytes`."""
    return size_bytes * ((ranks - 1) / ranks / hop.bandwidth_bytes_per_s) + (ranks - 1) * hop.latency_s


def all_gather(size_bytes: Number, ranks: int, hop: Hop) -> Number:
    """Seconds until each of `ranks` holds all of `size_bytes`, of which it had its share."""
    return reduce_scatter(size_bytes, ranks, hop)


def ring_all_reduce(size_bytes: Number, ranks: int, hop: Hop) -> Number:
    """Seconds of a reduce-scatter and an all-gather."""
    return 2 * reduce_scatter(size_bytes, ranks, hop)


def all_to_all(size_bytes: Number, nodes: int, per_node: int, fabric: Fabric) -> Number:
    """Seconds until each rank has sent every other its n-th of `size_bytes`, first in the node, then across.

    Nothing is reduced on the way: across nodes every rank has n - `per_node` parts to send.
    """
    ranks = nodes * per_node
    inside, across = fabric.intra_node, fabric.inter_node or fabric.intra_node
    part = size_bytes / ranks
    near = part * ((per_node - 1) / inside.bandwidth_bytes_per_s) + (per_node - 1) * inside.latency_s
    if nodes == 1:
        return near
    far = ranks - per_node
    return near + part * (far / across.bandwidth_bytes_per_s) + far * across.latency_s


def hierarchical_all_reduce(size_bytes: Number, nodes: int, per_node: int, fabric: Fabric) -> Number:
    """Seconds of an all-reduce over all accelerators of a site.

    Reduce-scatter in the node, all-reduce across nodes with one NIC an accelerator (each carries its share),
    all-gather in the node.
    """
    inside = 2 * reduce_scatter(size_bytes, per_node, fabric.intra_node)
    if nodes == 1:
        return inside
    return inside + ring_all_reduce(size_bytes / per_node, nodes, fabric.inter_node or fabric.intra_node)


def hierarchical_all_gather(size_bytes: Number, nodes: int, per_node: int, fabric: Fabric) -> Number:
    """Seconds until every accelerator of a site holds all of `size_bytes`: across nodes, then in the node."""
    inside = all_gather(size_bytes, per_node, fabric.intra_node)
    if nodes == 1:
        return inside
    return inside + all_gather(size_bytes / per_node, nodes, fabric.inter_node or fabric.intra_node)


def site_all_reduce(size_bytes: Number, site: Site, settings: Nccl = _PLAIN) -> Number:
    """Seconds of an all-reduce over one site."""
    took = _site_best(np.asarray(size_bytes), site, settings, "all-reduce")
    if took is not None:
        return _like(size_bytes, took)
    return hierarchical_all_reduce(size_bytes, site.nodes, site.accelerators_per_node, site.fabric)


def site_all_gather(size_bytes: Number, site: Site, shards: int, settings: Nccl = _PLAIN) -> Number:
    """Seconds until the whole site has `size_bytes` that lie in equal parts on `shards` of its ranks.

    With fewer shards than ranks the others still have to receive everything, so the fabric moves as many
    bytes into each of them; only a site that is one rank has nothing to do.
    """
    if site.ranks == 1:
        return size_bytes * 0.0
    if shards == 1:
        slowest = (
            site.fabric.inter_node if site.nodes > 1 and site.fabric.inter_node else site.fabric.intra_node
        )
        return size_bytes / slowest.bandwidth_bytes_per_s + (site.ranks - 1) * slowest.latency_s
    took = _site_best(np.asarray(size_bytes), site, settings, "all-gather")
    if took is not None:
        return _like(size_bytes, took)
    return hierarchical_all_gather(size_bytes, site.nodes, site.accelerators_per_node, site.fabric)


def _like(size_bytes: Number, seconds: np.ndarray) -> Number:
    """Seconds as a float where the bytes were one."""
    return seconds if isinstance(size_bytes, np.ndarray) else float(seconds)


def site_flag(site: Site, settings: Nccl = _PLAIN) -> float:
    """Seconds of an all-reduce of a few bytes over one site: latency alone."""
    return float(site_all_reduce(8.0, site, settings))
