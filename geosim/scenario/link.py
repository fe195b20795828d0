"""What joins two sites."""

from collections.abc import Iterable
from itertools import pairwise
from typing import Annotated, Literal

from pydantic import Field, model_validator

from geosim.errors import UsageError
from geosim.scenario.ranges import Delay, Rate, RunTime, Storage
from geosim.scenario.varying import AnyVariation, Condition, Jitter, Trace
from geosim.spec import Bytes, Spec


class TracePoint(Spec):
    """From `at_s` on, the link has this bandwidth; the way back has it in proportion to its own."""

    at_s: RunTime
    bandwidth_bytes_per_s: Rate


class WanLink(Spec):
    """A duplex path between two sites.

    Attributes:
        between: the two site names.
        bandwidth_bytes_per_s: each way, or from the first to the second where `back_bandwidth` is given.
        back_bandwidth_bytes_per_s: from the second to the first; None: the same.
        rtt_s: round-trip time when idle.
        jitter_s: standard deviation of the one-way delay.
        loss: probability that a packet is lost.
        queue_bytes: what the bottleneck buffers before it drops; None: the bandwidth-delay product, at least
            256 KiB.
        trace: bandwidth over time, from the first step on; its last point holds.
        varies: what makes bandwidth, round trip and loss vary, or the link fail; several act together. A
            transfer goes at the bandwidth of each moment; round trip and loss are those of its start.
        congestion_control: of the TCP flows.
        window_bytes: the most bytes of data that one TCP flow has in flight. A socket buffer of W bytes holds
            some 0.69 W of data, as the kernel counts its own bookkeeping in it.
        initial_window_bytes: what a fresh or long idle flow may send at once (RFC 6928: 10 segments).
        mtu_bytes: of the path.
    """

    between: tuple[str, str]
    bandwidth_bytes_per_s: Rate
    back_bandwidth_bytes_per_s: Rate | None = None
    rtt_s: Delay
    jitter_s: Delay = 0.0
    loss: Annotated[float, Field(ge=0, lt=1)] = 0.0
    queue_bytes: Storage | None = None
    trace: tuple[TracePoint, ...] = ()
    varies: tuple[AnyVariation, ...] = ()
    congestion_control: Literal["cubic", "reno", "bbr"] = "cubic"
    window_bytes: Storage = 4.0 * 1024 * 1024
    initial_window_bytes: Storage = 14480.0
    mtu_bytes: Annotated[Bytes, Field(ge=576, le=65535)] = 1500.0

    @model_validator(mode="after")
    def _consistent(self) -> "WanLink":
        if self.between[0] == self.between[1]:
            raise UsageError(f"between: a link joins two different sites, not {self.between[0]} with itself")
        times = [point.at_s for point in self.trace]
        if times and (times[0] != 0 or any(b <= a for a, b in pairwise(times))):
            raise UsageError("trace: times must start at '0 s' and rise")
        if sum(isinstance(v, Trace) for v in self.varies) + bool(times) > 1:
            raise UsageError("varies: a link follows one trace: leave the others out")
        if sum(isinstance(v, Jitter) for v in self.varies) + (self.jitter_s > 0) > 1:
            raise UsageError("varies: a link has one jitter: leave the others out")
        return self

    @property
    def name(self) -> str:
        """For tables and JSON."""
        return f"{self.between[0]}-{self.between[1]}"

    def bandwidth(self, source: str) -> float:
        """Bytes per second out of `source`."""
        if source == self.between[1] and self.back_bandwidth_bytes_per_s is not None:
            return self.back_bandwidth_bytes_per_s
        return self.bandwidth_bytes_per_s

    @property
    def fitted_jitter(self) -> Jitter | None:
        """What its round trips are drawn from, if from samples."""
        return next((v for v in self.varies if isinstance(v, Jitter)), None)

    def under(self, conditions: Iterable[Condition]) -> "WanLink":
        """The link under the conditions of its variations: bandwidth, round trip, loss and jitter."""
        rate, rtt, share, kept, own = self.bandwidth_bytes_per_s, self.rtt_s, 1.0, 1.0, self.loss
        for now in conditions:
            share, kept = share * now.share, kept * (1 - now.loss)
            rate = rate if now.bandwidth_bytes_per_s is None else now.bandwidth_bytes_per_s
            rtt = rtt if now.rtt_s is None else now.rtt_s
            own = own if now.own_loss is None else now.own_loss
        factor = rate * share / self.bandwidth_bytes_per_s
        back = self.back_bandwidth_bytes_per_s
        jitter = self.fitted_jitter
        return self.model_copy(
            update={
                "bandwidth_bytes_per_s": rate * share,
                "back_bandwidth_bytes_per_s": None if back is None else back * factor,
                "rtt_s": rtt,
                "loss": 1 - (1 - own) * kept,
                "jitter_s": self.jitter_s if jitter is None else jitter.deviation_s,
            }
        )

    def average(self) -> "WanLink":
        """The link as it is on average over a long time; itself if nothing varies."""
        return self.under([v.mean() for v in self.varies]) if self.varies else self


class Trunk(Spec):
    """A cable, or a way, that several links share.

    Attributes:
        name: for tables and messages.
        links: pairs of sites whose links run through it; a pair's first site lies at its near end.
        bandwidth_bytes_per_s: from the near end to the far one, and back unless `back_bandwidth` is given;
            links that are busy at once share it max-min fairly.
        back_bandwidth_bytes_per_s: from the far end to the near one; None: the same.
    """

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$", max_length=40)]
    links: Annotated[tuple[tuple[str, str], ...], Field(min_length=1)]
    bandwidth_bytes_per_s: Rate
    back_bandwidth_bytes_per_s: Rate | None = None

    def carries(self, source: str, target: str) -> float | None:
        """Bytes per second that all links share on the way of source to target; None if it is not theirs."""
        if (source, target) in self.links:
            return self.bandwidth_bytes_per_s
        if (target, source) in self.links:
            back = self.back_bandwidth_bytes_per_s
            return self.bandwidth_bytes_per_s if back is None else back
        return None
