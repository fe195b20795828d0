"""BBR v1 (Cardwell et al., ACM Queue 2016) in the order of Linux: paced by what was delivered at best.

Where Linux starts its cycle of gains at a random phase, this one starts where the flow's number says. Left
out: the look for policers.
"""

from collections import deque
from typing import TYPE_CHECKING

from geosim.cost.tcp.control import Control, Sample

if TYPE_CHECKING:
    from geosim.cost.tcp.flow import Flow

_HIGH = 2885 / 1000 + 1 / 1000  # 2 / ln 2, rounded up
_CYCLE = (1.25, 0.75, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0)
_WINDOW_GAIN = 2.0
_RATE_ROUNDS = 10
_RTT_WINDOW_S = 10.0
_PROBE_S = 0.2
_LEAST_WINDOW = 4
_FULL_GROWTH, _FULL_ROUNDS = 1.25, 3
_MARGIN = 0.99  # paces one per cent below its estimate
_EXTRA_ROUNDS, _MOST_EXTRA_S = 5, 0.1


class Bbr(Control):
    """One flow's state."""

    restarts = False
    own_recovery = True

    def __init__(self, number: int = 0) -> None:
        """A new connection's; `number` says at which phase its cycle of gains starts."""
        self._number = number
        self._mode = "startup"
        self._rates: deque[tuple[int, float]] = deque()
        self._rounds = 0
        self._next_round = 0
        self._round_start = False
        self._full_rate = 0.0
        self._full_count = 0
        self._full = False
        self._rtt_s = float("inf")
        self._rtt_stamp_s = 0.0
        self._cycle = 0
        self._cycle_s = 0.0
        self._probe_until_s = -1.0
        self._probe_round = False
        self._idle_restart = False
        self._prior_window = 0
        self._was_recovering = False
        self._conserve = False
        self._extra = [0, 0]
        self._extra_at = 0
        self._extra_rounds = 0
        self._epoch_s = 0.0
        self._epoch_acked = 0

    @property
    def rate(self) -> float:
        """The most that was delivered, segments per second, over the last ten round trips."""
        return self._rates[0][1] if self._rates else 0.0

    def start(self, flow: "Flow") -> None:
        """Pace by the handshake's round trip."""
        self._rtt_s = flow.srtt_s
        self._rtt_stamp_s = flow.clock.now
        rtt = flow.srtt_s if flow.srtt_s > 0 else 1e-3
        self.pacing_rate = _HIGH * flow.cwnd / rtt

    def resume(self, flow: "Flow", now: float, idle_s: float) -> None:
        """After silence go at the estimate, not above."""
        if not flow.app_limited:
            return
        self._idle_restart = True
        self._epoch_s, self._epoch_acked = now, 0
        if self._mode == "probe_bw" and self.rate:
            self.pacing_rate = _MARGIN * self.rate
        elif self._mode == "probe_rtt":
            self._end_probe(flow, now)

    def threshold(self, flow: "Flow", now: float) -> int:
        """Remember the window; loss as such changes nothing."""
        self._save_window(flow)
        return flow.ssthresh

    def lose_all(self, flow: "Flow") -> None:
        """A timeout ends a round."""
        self._save_window(flow)
        self._full_rate = 0.0
        self._was_recovering = True

    def _save_window(self, flow: "Flow") -> None:
        if not self._was_recovering and self._mode != "probe_rtt":
            self._prior_window = flow.cwnd
        else:
            self._prior_window = max(self._prior_window, flow.cwnd)

    def sample(self, flow: "Flow", sample: Sample) -> None:
        """Update the model, then pace and window."""
        self._update_rate(flow, sample)
        self._update_extra(flow, sample)
        self._update_cycle(flow, sample)
        self._look_for_full(sample)
        self._drain(flow, sample)
        self._update_rtt(flow, sample)
        gain, window_gain = self._gains()
        rate = _MARGIN * gain * self.rate
        if rate and (self._full or self.pacing_rate is None or rate > self.pacing_rate):
            self.pacing_rate = rate
        self._set_window(flow, sample, window_gain)

    def _gains(self) -> tuple[float, float]:
        if self._mode == "startup":
            return _HIGH, _HIGH
        if self._mode == "drain":
            return 1 / _HIGH, _HIGH
        if self._mode == "probe_bw":
            return _CYCLE[self._cycle], _WINDOW_GAIN
        return 1.0, 1.0

    def _update_rate(self, flow: "Flow", sample: Sample) -> None:
        self._round_start = False
        if sample.interval_s <= 0:
            return
        if sample.prior_delivered >= self._next_round:
            self._next_round = flow.delivered
            self._rounds += 1
            self._round_start = True
            self._conserve = False
        if sample.interval_s < flow.least_rtt_s * (1 - 1e-9):
            return
        rate = sample.delivered / sample.interval_s
        if not sample.app_limited or rate >= self.rate:
            rates = self._rates
            while rates and rates[-1][1] <= rate:
                rates.pop()
            rates.append((self._rounds, rate))
            while rates[0][0] < self._rounds - _RATE_ROUNDS:
                rates.popleft()

    def _update_extra(self, flow: "Flow", sample: Sample) -> None:
        if self._round_start:
            self._extra_rounds += 1
            if self._extra_rounds >= _EXTRA_ROUNDS:
                self._extra_rounds = 0
                self._extra_at = 1 - self._extra_at
                self._extra[self._extra_at] = 0
        expected = self.rate * (sample.now - self._epoch_s)
        if self._epoch_acked <= expected:
            self._epoch_acked, self._epoch_s, expected = 0, sample.now, 0.0
        self._epoch_acked += sample.acked
        extra = min(int(self._epoch_acked - expected), flow.cwnd)
        self._extra[self._extra_at] = max(self._extra[self._extra_at], extra)

    def _burst(self) -> int:
        """Segments that go at once (Linux, `bbr_tso_segs_goal`)."""
        assert self.pacing_rate is not None
        return min(45, max(2, int(self.pacing_rate / 1024)))

    def _inflight(self, gain: float) -> int:
        goal = int(gain * self.rate * self._rtt_s) + 1 + 3 * self._burst()
        goal += goal % 2
        return goal + 2 if self._mode == "probe_bw" and self._cycle == 0 else goal

    def _in_net(self, flow: "Flow", in_flight: int, gain: float) -> float:
        wait = max(0.0, flow.next_send_s - flow.clock.now)
        ahead = in_flight + (self._burst() if gain > 1 else 0)
        return max(0.0, ahead - self.rate * wait)

    def _update_cycle(self, flow: "Flow", sample: Sample) -> None:
        if self._mode != "probe_bw":
            return
        gain = _CYCLE[self._cycle]
        whole = sample.now - self._cycle_s > self._rtt_s
        if gain == 1:
            over = whole
        elif gain > 1:
            there = self._in_net(flow, sample.prior_in_flight, gain) >= self._inflight(gain)
            over = whole and (sample.lost > 0 or there)
        else:
            over = whole or self._in_net(flow, sample.prior_in_flight, gain) <= self._inflight(1.0)
        if over:
            self._cycle = (self._cycle + 1) % len(_CYCLE)
            self._cycle_s = sample.now

    def _look_for_full(self, sample: Sample) -> None:
        if self._full or not self._round_start or sample.app_limited:
            return
        if self.rate >= _FULL_GROWTH * self._full_rate:
            self._full_rate, self._full_count = self.rate, 0
            return
        self._full_count += 1
        self._full = self._full_count >= _FULL_ROUNDS

    def _drain(self, flow: "Flow", sample: Sample) -> None:
        if self._mode == "startup" and self._full:
            self._mode = "drain"
        if self._mode == "drain" and self._in_net(flow, flow.in_flight, 1.0) <= self._inflight(1.0):
            self._enter_probe_bw(sample.now)

    def _enter_probe_bw(self, now: float) -> None:
        self._mode = "probe_bw"
        self._cycle = (3 * self._number + 2) % len(_CYCLE)
        if self._cycle == 1:  # never begins with the drain
            self._cycle = 2
        self._cycle_s = now

    def _update_rtt(self, flow: "Flow", sample: Sample) -> None:
        now = sample.now
        expired = now > self._rtt_stamp_s + _RTT_WINDOW_S
        if sample.rtt_s >= 0 and (sample.rtt_s <= self._rtt_s or expired):
            self._rtt_s, self._rtt_stamp_s = sample.rtt_s, now
        if expired and not self._idle_restart and self._mode != "probe_rtt":
            self._save_window(flow)
            self._mode = "probe_rtt"
            self._probe_until_s = -1.0
        if self._mode == "probe_rtt":
            flow.app_limited = max(1, flow.delivered + flow.in_flight)
            if self._probe_until_s < 0 and flow.in_flight <= _LEAST_WINDOW:
                self._probe_until_s = now + _PROBE_S
                self._probe_round = False
                self._next_round = flow.delivered
            elif self._probe_until_s >= 0:
                self._probe_round |= self._round_start
                if self._probe_round:
                    self._end_probe(flow, now)
        if sample.delivered > 0:
            self._idle_restart = False

    def _end_probe(self, flow: "Flow", now: float) -> None:
        if self._probe_until_s < 0 or now <= self._probe_until_s:
            return
        self._rtt_stamp_s = now
        flow.cwnd = max(flow.cwnd, self._prior_window)
        if self._full:
            self._enter_probe_bw(now)
        else:
            self._mode = "startup"

    def _set_window(self, flow: "Flow", sample: Sample, gain: float) -> None:
        cwnd = flow.cwnd
        recovering = flow.recovering or flow.timed_out
        if sample.acked:
            if sample.lost:
                cwnd = max(cwnd - sample.lost, 1)
            if flow.recovering and not self._was_recovering:
                self._conserve = True
                self._next_round = flow.delivered
                cwnd = flow.in_flight + sample.acked
            elif self._was_recovering and not recovering:
                cwnd = max(cwnd, self._prior_window)
                self._conserve = False
            self._was_recovering = recovering
            if self._conserve:
                cwnd = max(cwnd, flow.in_flight + sample.acked)
            else:
                target = self._target(gain)
                if self._full:
                    cwnd = min(cwnd + sample.acked, target)
                elif cwnd < target or flow.delivered < 10:
                    cwnd += sample.acked
                cwnd = max(cwnd, _LEAST_WINDOW)
        if self._mode == "probe_rtt":
            cwnd = min(cwnd, _LEAST_WINDOW)
        flow.cwnd = cwnd

    def _target(self, gain: float) -> int:
        target = int(gain * self.rate * self._rtt_s) + 1
        if self._full:
            target += int(min(max(self._extra), self.rate * _MOST_EXTRA_S))
        target += 3 * self._burst()
        target += target % 2
        return target + 2 if self._mode == "probe_bw" and self._cycle == 0 else target
