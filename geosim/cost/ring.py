"""One all-reduce ring over the ranks of all sites, as plain data parallelism runs it, in seconds a bucket.

A ring of R ranks laid out site by site crosses from each site to the next once. All its bytes, 2 (R - 1) / R
of a bucket, pass over each of these edges.
"""

from dataclasses import dataclass

import numpy as np

from geosim.cost.sending import send_time, window_restart
from geosim.cost.transport import Path

GLOO_SEGMENT_BYTES = 1 << 20
NCCL_BUFFER_BYTES = 4 << 20
NCCL_CHANNELS = 2  # of one NIC


@dataclass(frozen=True)
class Edge:
    """One crossing of the ring: its path, wire bytes for a byte of payload, and TCP flows that share it."""

    path: Path
    wire_per_payload: float
    flows: int = 1


def crossing_bytes(bucket_bytes: float, ranks: int) -> float:
    """Payload that passes over each edge of the ring for one bucket."""
    return 2 * (ranks - 1) / ranks * bucket_bytes


def _stream_rate(edge: Edge, in_flight_bytes: float = float("inf")) -> float:
    path = edge.path
    rate = path.stream_rate(edge.flows)
    return min(rate, in_flight_bytes / path.rtt_s) if path.rtt_s > 0 else rate


def gloo_segment(buckets: np.ndarray, ranks: int) -> np.ndarray:
    """Bytes of each bucket's segments: at most 1 MiB, at least two a rank (gloo/allreduce.cc, the ring)."""
    return buckets / _segments(buckets, ranks)


def _segments(buckets: np.ndarray, ranks: int) -> np.ndarray:
    segments = np.maximum(np.ceil(buckets / GLOO_SEGMENT_BYTES), 2.0 * ranks)
    return np.ceil(segments / ranks) * ranks


def gloo_times(buckets: np.ndarray, ranks: int, edges: tuple[Edge, ...]) -> np.ndarray:
    """Seconds of each bucket's all-reduce under gloo.

    Each of the two stages passes on (R - 1) / R of a bucket's segments with two in flight: a segment is
    asked for when the one before the last has come, the request crosses, then the data. Two segments so take
    a round trip and one sending at the link's rate, or as long as they stream if that is more; the first two
    may be half a round trip ahead of that (`cost.sending.slow_start`). The slowest edge holds up all.
    """
    segments = _segments(buckets, ranks)
    pairs = np.maximum(segments / ranks * (ranks - 1) / 2, 1.0)
    worst = np.zeros_like(buckets)
    for edge in edges:
        size = buckets / segments * edge.wire_per_payload
        path = edge.path
        burst, streamed = size / path.rate_bytes_per_s, size / _stream_rate(edge)
        first = np.maximum(2 * burst, 2 * streamed - path.rtt_s / 2)
        pair = np.maximum(2 * streamed, path.rtt_s + burst)
        worst = np.maximum(worst, 2 * (path.rtt_s + first + (pairs - 1) * pair))
    return worst


def nccl_times(
    buckets: np.ndarray,
    ranks: int,
    edges: tuple[Edge, ...],
    flight_bytes: float = NCCL_CHANNELS * NCCL_BUFFER_BYTES,
) -> np.ndarray:
    """Seconds of each bucket's all-reduce under NCCL's ring.

    Slices follow each other without a request for each, but the channels together have at most their buffers,
    `flight_bytes`, in flight; a slice crosses every edge twice in the 2 (R - 1) hops.
    """
    moved = crossing_bytes(1.0, ranks) * buckets
    slowest = max(edge.wire_per_payload / _stream_rate(edge, flight_bytes) for edge in edges)
    delay = sum(edge.path.rtt_s / 2 for edge in edges) * 2 * (ranks - 1) / ranks
    return moved * slowest + delay


def restoring_flight(edges: tuple[Edge, ...]) -> float:
    """Bytes in flight from which on distance costs a ring no bandwidth: the largest rate times RTT."""
    return max(edge.path.stream_rate(edge.flows) * edge.path.rtt_s for edge in edges)


def ramp_time(
    size_bytes: float, edges: tuple[Edge, ...], idle_s: float, flight_bytes: float = float("inf")
) -> float:
    """Seconds that slow start adds to `size_bytes` of payload after `idle_s` of silence.

    A collective that keeps at most `flight_bytes` in flight has done with slow start once windows hold that
    much. The slowest stream carries all in either case: this is what the slowest start takes beyond it.
    """
    cold, warm = 0.0, 0.0
    for edge in edges:
        path = edge.path
        limit = min(path.window_limit(edge.flows), flight_bytes)
        window = window_restart(limit, idle_s, path.initial_window(edge.flows), path.rto_s, path.restarts)
        size = size_bytes * edge.wire_per_payload
        stream = _stream_rate(edge, flight_bytes)
        # A collective's slices follow each other without end, so no last window leaves early.
        start = send_time(size, path.rate_bytes_per_s, path.rtt_s, window, limit, stream, paced=True)
        cold = max(cold, float(start))
        warm = max(warm, size / stream)
    return max(0.0, cold - warm)
