"""Which message and which bytes in flight explain the all-reduce times of B1, B2 and B4 together.

The report names neither. A message of S bytes goes over two directions of 180 ms, as a ring (B1), as NCCL's
tree (B2), and as a tree in fewer bits (B4), with F bytes in flight a hop. S and F are scanned, on the link at
its nominal 40 Gbit/s and at the 15 Gbit/s of RDMA that fell back to TCP, for 16- and 32-bit gradients that
become 8-bit ones, and with what is in flight for B4 doubled (B3's buffers of 8 MiB for NCCL's 4) or not. A
setting is as good as its worst relative error.
"""

from dataclasses import dataclass
from itertools import product

import numpy as np

from geosim.cost import ring, roce, tree
from geosim.scenario import Nccl, Scenario

TIMES_S = {"B1": 3.2, "B2": 1.9, "B4": 1.2}
NOMINAL, FALLEN_BACK = 40e9 / 8, 15e9 / 8
BITS = (16, 32)
BUFFER_BYTES = 4 << 20
MOST_CHANNELS = 64
_PER_DECADE = 400


@dataclass(frozen=True)
class Setting:
    """An explanation.

    Attributes:
        message_bytes: of the gradients before any quantization; bits: of each.
        flight_bytes: in flight a hop, in B1 and B2. grown: by which factor in B4.
        rate_bytes_per_s: of the link.
        times_s: of B1, B2 and B4 then. worst: the largest relative error of those asked for.
    """

    message_bytes: float
    bits: int
    flight_bytes: float
    grown: int
    rate_bytes_per_s: float
    times_s: dict[str, float]
    worst: float


class Wan:
    """The report's sites: two directions of a link, ranks and nodes."""

    def __init__(self, scenario: Scenario) -> None:
        self.link = scenario.wan[0]
        self.ranks = scenario.ranks
        self.plan = tree.make_tree(tuple(site.nodes for site in scenario.sites))

    def edge(self, rate: float, flows: int, each: float) -> ring.Edge:
        """A direction that carries `flows` queue pairs with `each` bytes in flight."""
        path = roce.make_path(self.link, rate, Nccl(net="ib", traffic_class=106), flows, each)
        return ring.Edge(path, 1 / roce.payload_share(self.link.mtu_bytes), flows)

    def ring_s(self, message: np.ndarray, rate: float, flight: float) -> np.ndarray:
        """Seconds of rings, by message."""
        one = self.edge(rate, 2, flight / 2)
        return ring.nccl_times(message, self.ranks, (one, one), flight)

    def tree_s(self, message: np.ndarray, rate: float, flight: float) -> np.ndarray:
        """Seconds of trees, by message; each channel has `flight` / 2 on every edge."""
        edges = {way: self.edge(rate, self.plan.flows(*way, 2), flight / 2) for way in self.plan.ways}
        return tree.nccl_times(message, self.plan, edges, 2, flight / 2)


def infer(
    scenario: Scenario, asked: tuple[str, ...] = tuple(TIMES_S), bits: tuple[int, ...] = BITS
) -> Setting:
    """The setting with the least worst error over the times that are asked for."""
    wan = Wan(scenario)
    message = 10 ** np.arange(6, 11, 1 / _PER_DECADE)
    found = []
    choices = product(bits, (1, 2), (NOMINAL, FALLEN_BACK), (2, 4, 8, 16, 32, MOST_CHANNELS))
    for width, grown, rate, channels in choices:
        flight = float(channels * BUFFER_BYTES)
        times = {
            "B1": wan.ring_s(message, rate, flight),
            "B2": wan.tree_s(message, rate, flight),
            "B4": wan.tree_s(message * 8 / width, rate, flight * grown),
        }
        worst = np.max([np.abs(times[name] / TIMES_S[name] - 1) for name in asked], axis=0)
        at = int(worst.argmin())
        here = {name: float(values[at]) for name, values in times.items()}
        found.append(Setting(float(message[at]), width, flight, grown, rate, here, float(worst[at])))
    return min(found, key=lambda setting: (round(setting.worst, 4), setting.grown))


def utilization(wan: Wan, setting: Setting, name: str) -> float:
    """Share of the nominal 40 Gbit/s, headers included, that one of the all-reduces makes use of."""
    share = ring.crossing_bytes(1.0, wan.ranks) if name == "B1" else wan.plan.payload_share(0, 1)
    size = setting.message_bytes * (8 / setting.bits if name == "B4" else 1)
    wire = share * size / roce.payload_share(wan.link.mtu_bytes)
    return wire / setting.times_s[name] / NOMINAL
