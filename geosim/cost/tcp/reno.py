"""Reno (RFC 5681) as Linux has it: no HyStart, half of the window after a loss."""

from typing import TYPE_CHECKING

from geosim.cost.tcp.control import Control, Sample, slow_start

if TYPE_CHECKING:
    from geosim.cost.tcp.flow import Flow


class Reno(Control):
    """Additive increase by a segment a round trip, multiplicative decrease by half."""

    def __init__(self) -> None:
        self._count = 0

    def grow(self, flow: "Flow", sample: Sample) -> None:
        """Slow start, then a segment a window."""
        acked = sample.acked
        if flow.is_slow_start:
            acked = slow_start(flow, acked)
            if not acked:
                return
        if self._count >= flow.cwnd:
            self._count = 0
            flow.cwnd += 1
        self._count += acked
        if self._count >= flow.cwnd:
            more = self._count // flow.cwnd
            self._count -= more * flow.cwnd
            flow.cwnd += more

    def threshold(self, flow: "Flow", now: float) -> int:
        """Half."""
        return max(flow.cwnd // 2, 2)
