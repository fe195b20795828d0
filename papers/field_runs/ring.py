"""INTELLECT-1's exchange: an int8 ring all-reduce over nodes whose links fluctuate.

A ring goes at the pace of its slowest edge of the moment: what takes d seconds over the links of now is done
by dt / d in dt.
"""

from dataclasses import dataclass

import numpy as np

from geosim.cost.ring import NCCL_CHANNELS, Edge, gloo_times, nccl_times
from geosim.cost.transport import make_path, wire_bytes
from geosim.scenario import WanLink, models
from geosim.scenario.varying import Range
from geosim.units import BANDWIDTH, parse

LOW, HIGH = (parse(text, BANDWIDTH) for text in ("0.5 Gbit/s", "4 Gbit/s"))
COMPUTE_S = 2280.0
HOLDS_S = 60.0
_NEAR_S = 0.02  # round trip between nodes of one region
_ROUNDS = 41


@dataclass(frozen=True)
class Ring:
    """One case: nodes, the longest round trip of the ring, and whether gloo's law or NCCL's is taken."""

    nodes: int
    rtt_s: float
    gloo: bool = False

    def time(self, shares: np.ndarray) -> float:
        """Seconds of one all-reduce over links that stay as they are. shares: [nodes], of 4 Gbit/s."""
        # One edge of the ring is the long one; of those inside a region the slowest counts.
        flows = 1 if self.gloo else NCCL_CHANNELS
        edges = []
        for share, rtt in ((shares[0], self.rtt_s), (shares[1:].min(), _NEAR_S)):
            link = WanLink(between=("a", "b"), bandwidth_bytes_per_s=HIGH * float(share), rtt_s=rtt)
            edges.append(Edge(make_path(link, "a"), wire_bytes(1.0, link), flows))
        edges += edges[1:] * (self.nodes - 2)
        size = np.array([float(models()["intellect-1-10b"].param_table().numel)])
        law = gloo_times if self.gloo else nccl_times
        return float(law(size, self.nodes, tuple(edges))[0])

    def sync_s(self, seed: int = 0) -> float:
        """Median of the all-reduces after each 2280 s of computing."""
        kind = Range(low=LOW / HIGH, high=1.0, holds_s=HOLDS_S)
        streams = [kind.changes(np.random.default_rng([seed, i])) for i in range(self.nodes)]
        shares = np.ones(self.nodes)
        ahead = [next(stream) for stream in streams]
        now, took = 0.0, []
        for _ in range(_ROUNDS):
            now += COMPUTE_S
            began, left = now, 1.0
            while left > 0:
                for i, stream in enumerate(streams):
                    while ahead[i][0] <= now:
                        shares[i] = ahead[i][1].share
                        ahead[i] = next(stream)
                each, until = self.time(shares), min(at for at, _ in ahead)
                step = min(left * each, until - now)
                left -= step / each
                now += step
                if left < 1e-12:
                    break
            took.append(now - began)
        return float(np.median(took))


def slowest_for(nodes: int, sync_s: float) -> float:
    """Gbit/s of the slowest edge that an all-reduce implies: twice all but a node's part crosses it."""
    size = float(models()["intellect-1-10b"].param_table().numel)
    return 2 * (nodes - 1) / nodes * size / sync_s * 8e-9
