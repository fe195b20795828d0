"""What one policy in one scenario costs, as plain numbers: all that engine and closed form need.

Times in seconds, sizes in bytes on the wire unless they say payload.
"""

from dataclasses import dataclass, replace

import numpy as np

from geosim.cost.all_reduce import AllReduce
from geosim.cost.transport import Path
from geosim.policy import SyncPolicy
from geosim.policy.routes import Transfer
from geosim.policy.schedule import Plan
from geosim.scenario import WanLink


@dataclass(frozen=True)
class SitePlan:
    """One site: mean compute of a step and its coefficient of variation, and what else every step takes."""

    name: str
    ranks: int
    step_s: float
    step_cv: float
    collective_s: float
    update_s: float
    uplink_bytes_per_s: float
    downlink_bytes_per_s: float

    @property
    def steady_s(self) -> float:
        """Mean time of a step without any WAN."""
        return self.step_s + self.collective_s + self.update_s


@dataclass(frozen=True)
class LinkPlan:
    """One direction between two sites.

    Attributes:
        name: "from->to"; source, target: numbers of the sites.
        two_way: whether as much goes the other way at the same time.
        trace: (from second, bytes per second) of this direction.
        number: in the scenario. varying: the link there if it varies; `path` is then that of its averages.
        trunks: numbers, in `Problem.trunks`, of what it shares with other links.
    """

    name: str
    source: int
    target: int
    path: Path
    two_way: bool
    jitter_s: float
    wire_per_payload: float
    trace: tuple[tuple[float, float], ...]
    number: int = 0
    varying: WanLink | None = None
    trunks: tuple[int, ...] = ()

    @property
    def is_random(self) -> bool:
        """Whether runs differ by seed."""
        varies = self.varying.varies if self.varying is not None else ()
        return self.jitter_s > 0 or any(v.is_random for v in varies)

    @property
    def is_steady(self) -> bool:
        """Whether bandwidth, round trip and loss stay as they are in `path`."""
        varies = self.varying.varies if self.varying is not None else ()
        return not self.trace and all(v.is_constant for v in varies)

    def payloads_buffered(self, fragment: "FragmentPlan") -> float:
        """How many of a fragment's payloads the kernel takes before any byte has been acknowledged."""
        return self.path.send_buffer(fragment.flows) / max(
            fragment.payload_bytes * self.wire_per_payload, 1.0
        )

    def path_of(self, fragment: "FragmentPlan") -> Path:
        """The path as a fragment's payloads meet it."""
        return self.path.for_exchange(fragment.payload_bytes * self.wire_per_payload, fragment.flows)

    def path_at(self, at_s: float) -> Path:
        """The path with the bandwidth that the trace gives at a time."""
        rates = [rate for start, rate in self.trace if start <= at_s]
        return replace(self.path, rate_bytes_per_s=rates[-1]) if rates else self.path


@dataclass(frozen=True)
class FragmentPlan:
    """One fragment: payload of a site over all shards, flows a link, and each site's boundary costs.

    `slice_share`: of a payload, what has to come before a site can begin to pass it on.
    """

    payload_bytes: float
    flows: int
    encode_s: tuple[float, ...]
    decode_s: tuple[float, ...]
    gather_s: tuple[float, ...]
    apply_s: tuple[float, ...]
    slice_share: float = 1.0


@dataclass(frozen=True)
class FlatPlan:
    """Plain data parallelism.

    Attributes:
        backward_share: of a step's compute.
        ready: share of the backward pass done when each bucket leaves.
        durations: (from second, each bucket's all-reduce in seconds), one entry for each change of a link's
        trace. payload_bytes: over each link, a step. made: what makes durations of links.
    """

    backward_share: float
    ready: np.ndarray
    durations: tuple[tuple[float, np.ndarray], ...]
    payload_bytes: tuple[float, ...]
    made: AllReduce | None = None


@dataclass(frozen=True)
class Problem:
    """A policy in a scenario. `flat` is set for plain data parallelism, `fragments` otherwise.

    `trunks`: bytes per second that the links through one direction of each trunk share.
    """

    scenario: str
    policy: SyncPolicy
    sites: tuple[SitePlan, ...]
    links: tuple[LinkPlan, ...]
    routes: tuple[Transfer, ...]
    fragments: tuple[FragmentPlan, ...]
    plan: Plan | None
    flat: FlatPlan | None
    overhead_s: float
    tokens_per_step: int
    colocated_step_s: float
    ddp_wan_bytes: float
    trunks: tuple[float, ...] = ()
