"""CUBIC (RFC 8312) with HyStart (Ha and Rhee 2011), with the constants and the order of Linux.

HyStart ends slow start where acknowledgements of one round trip keep coming for half of the least round trip
(a train: the pipe is full), or where round trips have grown by an eighth, 4 ms at least and 16 ms at most
(delay). It does so once in a connection's life. Where slow start ended so, and not by a loss, Linux lets the
window grow by a twentieth a round trip at least.
"""

from typing import TYPE_CHECKING

from geosim.cost.tcp.control import Control, Sample, slow_start

if TYPE_CHECKING:
    from geosim.cost.tcp.flow import Flow

_BETA = 717 / 1024
_FRIENDLY = 8 * (1024 + 717) // 3 // (1024 - 717) / 8  # cwnd per added segment of the friendly estimate
_LOW_WINDOW = 16
_TRAIN_GAP_S = 2e-3
_SAMPLES = 8
_LEAST_DELAY_S, _MOST_DELAY_S = 4e-3, 16e-3
_TICK_S = 4e-3  # of the kernel's clock, 250 Hz
_BURST_BYTES = 4 * 65536.0


class Cubic(Control):
    """One flow's state; the names are those of RFC 8312 where it has some."""

    def __init__(
        self, c: float = 0.4, hystart: bool = True, fast_convergence: bool = True, w_max: float = 0.0
    ) -> None:
        """A new connection's.

        Args:
            c: aggressiveness, segments per second cubed (RFC 8312, section 5).
            hystart: whether slow start ends early.
            fast_convergence: whether a window below the last maximum gives way to others (section 4.6).
            w_max: the window at a loss before, segments; 0: there was none.
        """
        self._c = c
        self._fast_convergence = fast_convergence
        self._found = not hystart
        self._least_s = 0.0
        self._count = 0.0
        self._reset()
        self._w_max = w_max
        self._end = -1
        self._round_start = self._last_ack = 0.0
        self._round_rtt = float("inf")
        self._samples = 0

    def _reset(self) -> None:
        self._w_max = 0.0
        self._epoch = -1.0
        self._k = self._origin = self._w_est = self._acked = 0.0
        self._per_segment = 1e9
        self._last_cwnd, self._last_s = -1, -1.0

    def resume(self, flow: "Flow", now: float, idle_s: float) -> None:
        """Idle time does not count (Linux, `cubictcp_cwnd_event`)."""
        if self._epoch >= 0:
            self._epoch = min(now, self._epoch + idle_s)

    def sample(self, flow: "Flow", sample: Sample) -> None:
        """Note the least delay; look whether slow start should end."""
        if sample.rtt_s < 0 or (self._epoch >= 0 and sample.now - self._epoch < 1.0):
            return
        if self._least_s == 0 or sample.rtt_s < self._least_s:
            self._least_s = sample.rtt_s
        if not self._found and flow.is_slow_start:
            self._hystart(flow, sample)

    def _begin_round(self, flow: "Flow") -> None:
        self._round_start = self._last_ack = flow.clock.now
        self._end = flow.next
        self._round_rtt = float("inf")
        self._samples = 0

    def _hystart(self, flow: "Flow", sample: Sample) -> None:
        now = sample.now
        if flow.unacked > self._end:  # whatever the window, so that a round is a flight
            self._begin_round(flow)
        if flow.cwnd < _LOW_WINDOW:
            return
        if now - self._last_ack <= _TRAIN_GAP_S:
            self._last_ack = now
            pace = 2 * flow.cwnd / flow.srtt_s * 1448 if flow.srtt_s > 0 else float("inf")
            threshold = (self._least_s + min(1e-3, _BURST_BYTES / pace)) / 2
            if now - self._round_start > threshold:
                self._leave(flow)
        self._round_rtt = min(self._round_rtt, sample.rtt_s)
        if self._samples < _SAMPLES:
            self._samples += 1
        elif self._round_rtt > self._least_s + min(max(self._least_s / 8, _LEAST_DELAY_S), _MOST_DELAY_S):
            self._leave(flow)

    def _leave(self, flow: "Flow") -> None:
        self._found = True
        flow.ssthresh = flow.cwnd

    def grow(self, flow: "Flow", sample: Sample) -> None:
        """Slow start, then along the cubic curve or the friendly estimate, whichever is higher."""
        acked = sample.acked
        if flow.is_slow_start:
            acked = slow_start(flow, acked)
            if not acked:
                return
        self._update(flow.cwnd, acked, sample.now)
        if self._count >= self._per_segment:  # gathered when more were needed for a segment
            self._count = 0.0
            flow.cwnd += 1
        self._count += acked
        if self._count >= self._per_segment:
            more = int(self._count / self._per_segment)
            self._count -= more * self._per_segment
            flow.cwnd += more

    def _update(self, cwnd: int, acked: int, now: float) -> None:
        self._acked += acked
        if self._last_cwnd == cwnd and now - self._last_s <= 1 / 32:
            return
        if self._epoch < 0 or now - self._last_s >= _TICK_S:
            self._last_cwnd, self._last_s = cwnd, now
            if self._epoch < 0:
                self._epoch = now
                self._acked = acked
                self._w_est = cwnd
                self._k = ((self._w_max - cwnd) / self._c) ** (1 / 3) if self._w_max > cwnd else 0.0
                self._origin = max(self._w_max, cwnd)
            t = now - self._epoch + self._least_s
            target = self._origin + self._c * (t - self._k) ** 3
            self._per_segment = cwnd / (target - cwnd) if target > cwnd else 100.0 * cwnd
            if self._w_max == 0:
                self._per_segment = min(self._per_segment, 20.0)
        per = cwnd * _FRIENDLY
        while self._acked > per:
            self._acked -= per
            self._w_est += 1
        if self._w_est > cwnd:
            self._per_segment = min(self._per_segment, cwnd / (self._w_est - cwnd))
        self._per_segment = max(self._per_segment, 2.0)

    def threshold(self, flow: "Flow", now: float) -> int:
        """0.7 of the window; a window below the last maximum gives way to others (fast convergence)."""
        self._epoch = -1.0
        cwnd = flow.cwnd
        fewer = self._fast_convergence and cwnd < self._w_max
        self._w_max = cwnd * (1 + _BETA) / 2 if fewer else float(cwnd)
        return max(int(cwnd * _BETA), 2)

    def lose_all(self, flow: "Flow") -> None:
        """Forget the curve and begin to look for the end of slow start anew."""
        self._reset()
        self._least_s = 0.0
        self._found = False
        self._begin_round(flow)
