"""All-reduces over equal sites: one flat ring, NCCL's trees, or in two tiers. Bytes in, seconds out.

Inside a site every rank has `inside`; between two sites there is `across`, whose latency is one way and whose
bandwidth all ranks of a site share. A ring or tree has at most `flight_bytes` in flight over a crossing, so
distance takes bandwidth from it: flight / RTT. In two tiers all ranks of a site send at once, each its share,
with as much in flight each.

In two tiers (reduce-scatter in the site, all-reduce of the shares across, all-gather in the site) chunks
follow each other through the tiers, as buckets do. Where the WAN is the slowest tier, that is never slower
than the flat ring: it sends 2 (M - 1) / M of the bytes across and not 2 (R - 1) / R, waits for M - 1 round
trips and not for M (R - 1) / R, and what the first chunk takes inside is at most the difference
(`tests/cost/test_across_laws.py`).
"""

from geosim.cost.ring import crossing_bytes
from geosim.cost.tree import make_tree
from geosim.scenario import Hop

SLICE_BYTES = 512 * 1024  # an eighth of NCCL's buffer


def crossing_rate(across: Hop, flight_bytes: float) -> float:
    """Bytes per second over a crossing with `flight_bytes` in flight."""
    trip = 2 * across.latency_s
    return (
        min(across.bandwidth_bytes_per_s, flight_bytes / trip) if trip > 0 else across.bandwidth_bytes_per_s
    )


def flat_ring(
    size_bytes: float, sites: int, per_site: int, inside: Hop, across: Hop, flight_bytes: float = float("inf")
) -> float:
    """Seconds of one ring over all ranks, laid out site by site: each hop carries 2 (R - 1) / R of all."""
    ranks = sites * per_site
    if ranks == 1:
        return 0.0
    rate = crossing_rate(across, flight_bytes) if sites > 1 else inside.bandwidth_bytes_per_s
    if per_site > 1:
        rate = min(rate, inside.bandwidth_bytes_per_s)
    crossings = sites if sites > 1 else 0
    once_round = crossings * across.latency_s + (ranks - crossings) * inside.latency_s
    return crossing_bytes(size_bytes, ranks) / rate + 2 * (ranks - 1) / ranks * once_round


def tree(
    size_bytes: float, sites: int, per_site: int, inside: Hop, across: Hop, flight_bytes: float = float("inf")
) -> float:
    """Seconds of NCCL's two trees over sites of one node each, with a chain inside."""
    if sites * per_site == 1:
        return 0.0
    took = 2 * (per_site - 1) * inside.latency_s
    slowest = 2 / inside.bandwidth_bytes_per_s if per_site > 1 else 0.0
    if sites > 1:
        plan = make_tree((1,) * sites)
        most = max(plan.edges.values()) / 2
        slowest = max(slowest, most / across.bandwidth_bytes_per_s, 2 * across.latency_s / flight_bytes)
        took += 2 * plan.hops * across.latency_s
    return size_bytes * slowest + took


def hierarchical(
    size_bytes: float, sites: int, per_site: int, inside: Hop, across: Hop, flight_bytes: float = float("inf")
) -> float:
    """Seconds in two tiers; a chunk is a slice, and no more than each rank's part of all."""
    chunk = min(SLICE_BYTES, size_bytes / (sites * per_site))
    near = 2 * (per_site - 1) / per_site / inside.bandwidth_bytes_per_s
    far = 2 * (sites - 1) / sites / crossing_rate(across, per_site * flight_bytes)
    latency = 2 * (per_site - 1) * inside.latency_s + 2 * (sites - 1) * across.latency_s
    return size_bytes * max(near, far) + chunk * min(near, far) + latency
