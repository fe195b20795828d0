"""One all-reduce ring over the ranks of all sites, as plain data parallelism runs it, in seconds a bucket.

A ring of R ranks laid out site by site crosses from each site to the next once. All its bytes, 2 (R - 1) / R
of a bucket, pass over each of these edges.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from geosim.cost.transport import Path, send_time, window_restart

GLOO_SEGMENT_BYTES = 1 << 20
NCCL_BUFFER_BYTES = 4 << 20
NCCL_CHANNELS = 2


@dataclass(frozen=True)
class Edge:
    """One crossing of the ring: its path, wire bytes for a byte of payload, and TCP flows that share it."""

    path: Path
    wire_per_payload: float
    flows: int = 1


@dataclass(frozen=True)
class Ring:
    """The all-reduce of a step: bytes of its buckets, ranks, who carries it, and the silence before it."""

    buckets: np.ndarray
    ranks: int
    gloo: bool
    silence_s: float

    def times(self, crossings: Iterable[tuple[Path, float]]) -> np.ndarray:
        """Seconds of each bucket, over paths and what a byte of payload takes on each of them."""
        flows, law = (1, gloo_times) if self.gloo else (NCCL_CHANNELS, nccl_times)
        edges = tuple(Edge(path, wire, flows) for path, wire in crossings)
        each = law(self.buckets, self.ranks, edges)
        payload = crossing_bytes(float(self.buckets.sum()), self.ranks)
        each[0] += ramp_time(payload, edges, self.silence_s)
        return each


def crossing_bytes(bucket_bytes: float, ranks: int) -> float:
    """Payload that passes over each edge of the ring for one bucket."""
    return 2 * (ranks - 1) / ranks * bucket_bytes


def _stream_rate(edge: Edge, in_flight_bytes: float = float("inf")) -> float:
    path = edge.path
    rate = path.stream_rate(edge.flows)
    return min(rate, in_flight_bytes / path.rtt_s) if path.rtt_s > 0 else rate


def gloo_times(buckets: np.ndarray, ranks: int, edges: tuple[Edge, ...]) -> np.ndarray:
    """Seconds of each bucket's all-reduce under gloo (gloo/allreduce.cc, the ring).

    A bucket is cut into segments of at most 1 MiB, at least two for each rank. Each of the two stages
    passes on (R - 1) / R of them with two in flight: a segment is asked for when the one before the last
    has come, the request crosses, then the data. Two segments so take a round trip and one sending, or
    two sendings if that is more; the slowest edge holds up all. What fits the path goes at the link's
    rate, what does not at TCP's.
    """
    segments = np.maximum(np.ceil(buckets / GLOO_SEGMENT_BYTES), 2.0 * ranks)
    segments = np.ceil(segments / ranks) * ranks
    pairs = np.maximum(segments / ranks * (ranks - 1) / 2, 1.0)
    worst = np.zeros_like(buckets)
    for edge in edges:
        size = buckets / segments * edge.wire_per_payload
        path = edge.path
        fits = 2 * size <= min(path.rate_bytes_per_s * path.rtt_s, path.window_limit(edge.flows))
        sending = size / np.where(fits, path.rate_bytes_per_s, _stream_rate(edge))
        pair = np.maximum(2 * sending, path.rtt_s + sending)
        worst = np.maximum(worst, 2 * (path.rtt_s + 2 * sending + (pairs - 1) * pair))
    return worst


def nccl_times(buckets: np.ndarray, ranks: int, edges: tuple[Edge, ...]) -> np.ndarray:
    """Seconds of each bucket's all-reduce under NCCL's ring over sockets.

    Slices follow each other without a request for each, but a channel has at most its buffer in flight
    (NCCL_BUFFSIZE, 4 MiB, two channels); a slice crosses every edge twice in the 2 (R - 1) hops.
    """
    flight = NCCL_CHANNELS * NCCL_BUFFER_BYTES
    moved = crossing_bytes(1.0, ranks) * buckets
    slowest = max(edge.wire_per_payload / _stream_rate(edge, flight) for edge in edges)
    delay = sum(edge.path.rtt_s / 2 for edge in edges) * 2 * (ranks - 1) / ranks
    return moved * slowest + delay


def ramp_time(size_bytes: float, edges: tuple[Edge, ...], idle_s: float) -> float:
    """Seconds that slow start adds to `size_bytes` of payload after `idle_s` of silence."""
    worst = 0.0
    for edge in edges:
        path = edge.path
        limit = path.window_limit(edge.flows)
        window = window_restart(limit, idle_s, path.initial_window(edge.flows), path.rto_s, path.restarts)
        size = size_bytes * edge.wire_per_payload
        stream = path.stream_rate(edge.flows)
        cold = send_time(size, path.rate_bytes_per_s, path.rtt_s, window, limit, stream)
        worst = max(worst, float(cold) - size / stream)
    return worst
