"""What congestion controls have in common, and what an acknowledgement tells them."""

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from geosim.cost.tcp.flow import Flow


class Sample(NamedTuple):
    """What one acknowledgement says. Segments and seconds.

    Attributes:
        now: when it came.
        acked, lost: segments newly delivered, and newly known as lost.
        rtt_s: of the last one sent among them; below 0 where it was sent twice.
        delivered, interval_s: delivered while it was under way, and how long that was.
        prior_delivered: what had been delivered when it was sent.
        app_limited: whether the application had nothing more to send then.
        prior_in_flight: before this acknowledgement.
    """

    now: float
    acked: int
    lost: int
    rtt_s: float
    delivered: int
    interval_s: float
    prior_delivered: int
    app_limited: bool
    prior_in_flight: int


class Listener:
    """What happens to a flow; whoever does not care is told in vain."""

    def start(self, flow: "Flow") -> None:
        """The connection is open."""

    def resume(self, flow: "Flow", now: float, idle_s: float) -> None:
        """Data leave after nothing was in flight for a while."""

    def sample(self, flow: "Flow", sample: Sample) -> None:
        """An acknowledgement came."""

    def grow(self, flow: "Flow", sample: Sample) -> None:
        """One came outside of recovery while the window was in use."""

    def lose_all(self, flow: "Flow") -> None:
        """A timeout."""


class Control(Listener, ABC):
    """One flow's congestion control. It sets `flow.cwnd` and `flow.ssthresh`.

    Attributes:
        pacing_rate: segments per second; None: bursts as acknowledgements allow.
        restarts: whether silence shrinks the window.
        own_recovery: whether it sets the window in recovery, too.
    """

    pacing_rate: float | None = None
    restarts: bool = True
    own_recovery: bool = False

    @abstractmethod
    def threshold(self, flow: "Flow", now: float) -> int:
        """Something was lost: the window to come down to."""


def slow_start(flow: "Flow", acked: int) -> int:
    """Grow by what was acknowledged, up to the threshold; what is left of it (RFC 5681)."""
    grown = min(flow.cwnd + acked, flow.ssthresh)
    left = acked - (grown - flow.cwnd)
    flow.cwnd = grown
    return left
