"""One TCP sender and its receiver: windows, the scoreboard of what is in flight, recovery, timers.

Linux's, in segments: SACK with RACK (RFC 8985; packets do not overtake each other here, so whatever was sent
before a delivered one is lost), proportional rate reduction (RFC 6937), tail loss probes, retransmission
timeouts with a minimum of 200 ms (RFC 6298), restart after idle (`tcp_cwnd_restart`), and growth only of
windows that are in use (`tcp_is_cwnd_limited`). Left out: delayed acknowledgements (the receiver acknowledges
each batch), undoing of needless recoveries, the growth of receivers' buffers.
"""

import math
from bisect import insort
from collections import deque
from collections.abc import Callable

from geosim.cost.tcp.clock import Clock
from geosim.cost.tcp.control import Control, Sample
from geosim.cost.tcp.queue import Queue

ACK_BYTES = 52.0  # IPv4 20, TCP 20, timestamps 12
INITIAL_WINDOW = 10  # segments, RFC 6928
LEAST_RTO_S = 0.2
_LEAST_PROBE_S = 2e-3
_MOST_BURST = 45  # segments of 64 KiB
_DUPLICATES = 3


class Chunk:
    """Segments that were sent together and have one fate."""

    __slots__ = (
        "app_limited", "count", "done", "first_sent_s", "prior_delivered", "prior_s", "received", "sent_s",
        "start", "twice",
    )  # fmt: skip

    def __init__(self, start: int, count: int, sent_s: float, twice: bool) -> None:
        self.start = start
        self.count = count
        self.sent_s = sent_s
        self.twice = twice
        self.received = False
        self.done = False
        self.prior_delivered = 0
        self.prior_s = 0.0
        self.first_sent_s = 0.0
        self.app_limited = False


class Flow:
    """One direction of one connection. Windows in segments, times in seconds.

    Attributes:
        cwnd, ssthresh, in_flight, delivered, lost: as in Linux; lost: segments sent in vain so far.
        received: segments that have reached the receiver, each once.
        srtt_s, least_rtt_s: smoothed and least round trip.
        on_receipt: called with the time whenever the receiver gets something new.
        windows: (time, window) after every acknowledgement, where a list is put here.
    """

    def __init__(
        self,
        clock: Clock,
        forward: Queue,
        backward: Queue,
        control: Control,
        window: int,
        rounds: bool = False,
        extra_s: float = 0.0,
    ) -> None:
        """A connection just opened.

        Args:
            clock: of all.
            forward, backward: the queues that data and acknowledgements take.
            control: congestion control.
            window: the most segments in flight, by the socket's buffers.
            rounds: whether all that acknowledgements of one instant allow leaves at once, of any size; else
                bursts are Linux's (`tcp_tso_autosize`).
            extra_s: how much longer its round trip is than the queues', by its way to them.
        """
        self.clock = clock
        self.control = control
        self.cwnd = INITIAL_WINDOW
        self.ssthresh = 1 << 30
        self.in_flight = 0
        self.delivered = 0
        self.lost = 0
        self.received = 0
        self.srtt_s = self.least_rtt_s = forward.delay_s + backward.delay_s + extra_s
        self.on_receipt: Callable[[float], None] = lambda now: None
        self.windows: list[tuple[float, int]] | None = None
        self.end = 0  # segments that the application has given
        self.next = 0
        self.unacked = 0
        self.recovering = False
        self.timed_out = False
        self.app_limited = 0
        self.next_send_s = 0.0
        self.last_sent_s = 0.0
        self._forward, self._backward = forward, backward
        self._window = window
        self._extra_s = extra_s
        self._rounds = rounds
        self._outstanding: deque[Chunk] = deque()
        self._repeats: deque[Chunk] = deque()
        self._to_repeat: deque[tuple[int, int]] = deque()
        self._rttvar_s = self.srtt_s / 2
        self._high = 0
        self._old = 0  # of what was sent before recovery, how much is still to be delivered
        self._prr_delivered = self._prr_out = self._prior_cwnd = 0
        self._limited = False
        self._max_out = 0
        self._usage_seq = 0
        self._delivered_s = 0.0
        self._first_sent_s = 0.0
        self._timer_s = math.inf
        self._timer_set = False
        self._probed = False
        self._backoff = 0
        self._wake_set = False
        control.start(self)

    @property
    def rto_s(self) -> float:
        """Retransmission timeout."""
        return self.srtt_s + max(LEAST_RTO_S, 4 * self._rttvar_s)

    @property
    def is_slow_start(self) -> bool:
        """Whether the window is below its threshold."""
        return self.cwnd < self.ssthresh

    @property
    def is_limited(self) -> bool:
        """Whether the window held the sender back (Linux, `tcp_is_cwnd_limited`)."""
        if self._limited:
            return True
        return self.is_slow_start and self.cwnd < 2 * self._max_out

    def give(self, segments: int) -> None:
        """The application hands segments over now."""
        self._resume(self.clock.now)
        self.app_limited = max(1, self.delivered + self.in_flight)
        self.add(segments)

    def give_small(self, size_bytes: float) -> None:
        """A small packet that goes behind what was given; the receiver's part and losses are left out."""
        now = self.clock.now
        self._resume(now)
        if self.next == self.end:
            self._forward.offer_small(now, size_bytes)
            self.last_sent_s = now

    def _resume(self, now: float) -> None:
        """Silence ends, if there was any: nothing was in flight."""
        if self.next == self.unacked:
            idle = now - self.last_sent_s
            if self.control.restarts and idle > self.rto_s:
                self._restart(idle)
            self.control.resume(self, now, idle)

    def add(self, segments: int) -> None:
        """The application goes on handing over what it gave."""
        self.end += segments
        self.send()

    def _restart(self, idle_s: float) -> None:
        self.ssthresh = max(self.ssthresh, 3 * self.cwnd // 4) if self.ssthresh < 1 << 30 else self.ssthresh
        least = min(INITIAL_WINDOW, self.cwnd)
        rto = self.rto_s
        idle_s -= rto
        while idle_s > 0 and self.cwnd > least:
            self.cwnd >>= 1
            idle_s -= rto
        self.cwnd = max(self.cwnd, least)
        self._limited = False
        self._max_out = 0

    def send(self) -> None:
        """Send what the window, the pace and the buffers allow."""
        now = self.clock.now
        rate = self.control.pacing_rate
        sent = False
        while True:
            repeat = bool(self._to_repeat)
            if not repeat and self.next >= self.end:
                break
            room = self.cwnd - self.in_flight
            if room <= 0:
                break
            if rate is not None and now < self.next_send_s:
                self._wake_at(self.next_send_s)
                break
            n = min(room, self._burst())
            if repeat:
                start, count = self._to_repeat[0]
                n = min(n, count)
                if n == count:
                    self._to_repeat.popleft()
                else:
                    self._to_repeat[0] = (start + n, count - n)
            else:
                start = self.next
                n = min(n, self.end - start, self.unacked + self._window - start)
                if n <= 0:
                    break
            self._put(now, start, n, repeat)
            sent = True
            if rate is not None:
                length = n / rate
                credit = now - self.next_send_s
                self.next_send_s = max(now, self.next_send_s) + length - max(0.0, min(length / 2, credit))
        limited = self.in_flight >= self.cwnd
        if sent or limited:
            out = self.next - self.unacked
            if self.unacked >= self._usage_seq or limited or (not self._limited and out > self._max_out):
                self._limited = limited
                self._max_out = out
                self._usage_seq = self.next

    def _burst(self) -> int:
        """Segments handed over at once: a millisecond's worth, up to 64 KiB."""
        if self._rounds:
            return 1 << 60
        rate = self.control.pacing_rate
        if rate is None:
            factor = 2.0 if self.cwnd < self.ssthresh / 2 else 1.2
            rate = factor * self.cwnd / self.srtt_s if self.srtt_s > 0 else math.inf
        goal = rate / 1024
        return _MOST_BURST if goal >= _MOST_BURST else max(2, int(goal))

    def _put(self, now: float, start: int, count: int, repeat: bool) -> None:
        if not self.in_flight:
            self._first_sent_s = self._delivered_s = now
        if not repeat:
            self.next = start + count
        if self.recovering:
            self._prr_out += count
        self.in_flight += count
        self.last_sent_s = now
        for n, arrival in self._forward.offer(now, count):
            chunk = Chunk(start, n, now, repeat)
            chunk.prior_delivered = self.delivered
            chunk.prior_s = self._delivered_s
            chunk.first_sent_s = self._first_sent_s
            chunk.app_limited = self.app_limited > 0
            start += n
            self._outstanding.append(chunk)
            if repeat:
                self._repeats.append(chunk)
            if arrival >= 0:
                self.clock.at(arrival, self._receive, chunk)
        self._arm(now)

    def _receive(self, chunk: Chunk) -> None:
        now = self.clock.now
        chunk.received = True
        if not chunk.done:  # given up by a timeout: what was sent again counts
            self.received += chunk.count
        arrival = self._backward.offer_small(now, ACK_BYTES)
        if arrival >= 0:
            self.clock.at(arrival + self._extra_s, self._acknowledge, chunk)
        self.on_receipt(now)

    def _acknowledge(self, chunk: Chunk) -> None:
        """An acknowledgement arrives, of a chunk and of all received before."""
        outstanding = self._outstanding
        now = self.clock.now
        acked = missing = 0
        advanced = False
        newest: Chunk | None = None
        while not chunk.done:
            one = outstanding.popleft()
            one.done = True
            self.in_flight -= one.count
            if one.received:
                acked += one.count
                newest = one
                if one.start < self._high:
                    self._old -= one.count
            else:
                missing += one.count
                if one.count:
                    self._repeat(one.start, one.count)
        if newest is None:
            return
        before = self.unacked
        self._move_unacked(newest)
        advanced = self.unacked > before
        self.delivered += acked
        self.lost += missing
        rtt = -1.0 if newest.twice else now - newest.sent_s
        if rtt >= 0:
            self._measure(rtt)
        self._delivered_s = now
        self._first_sent_s = newest.sent_s
        self._backoff = 0
        self._probed = False
        app_limited = newest.app_limited
        if self.app_limited and self.delivered > self.app_limited:
            self.app_limited = 0
        interval = max(newest.sent_s - newest.first_sent_s, now - newest.prior_s)
        sample = Sample(
            now, acked, missing, rtt, self.delivered - newest.prior_delivered, interval,
            newest.prior_delivered, app_limited, self.in_flight + acked + missing,
        )  # fmt: skip
        self._settle(sample, advanced)
        if self.windows is not None:
            self.windows.append((now, self.cwnd))
        self._arm(now)
        if self._rounds:
            self._wake_at(now)
        else:
            self.send()

    def _repeat(self, start: int, count: int) -> None:
        """What is lost goes again in order, what is lost twice first (Linux, `tcp_verify_retransmit_hint`).

        Else the first hole could be closed last, and recovery would send one segment a round trip until then.
        """
        if self._to_repeat and start < self._to_repeat[-1][0]:
            insort(self._to_repeat, (start, count))
        else:
            self._to_repeat.append((start, count))

    def _move_unacked(self, newest: Chunk) -> None:
        repeats = self._repeats
        while repeats and (repeats[0].received or repeats[0].done):
            repeats.popleft()
        hole = self._to_repeat[0][0] if self._to_repeat else 1 << 62
        if repeats:
            hole = min(hole, repeats[0].start)
        if hole < 1 << 62:
            self.unacked = max(self.unacked, hole)
            return
        head = self._outstanding[0].start if self._outstanding else self.next
        self.unacked = max(self.unacked, head)

    def _measure(self, rtt: float) -> None:
        self._rttvar_s += (abs(rtt - self.srtt_s) - self._rttvar_s) / 4
        self.srtt_s += (rtt - self.srtt_s) / 8
        self.least_rtt_s = min(self.least_rtt_s, rtt)

    def _settle(self, sample: Sample, advanced: bool) -> None:
        """Enter or leave recovery, and let the window answer."""
        in_recovery = self.recovering or self.timed_out
        if sample.lost and not in_recovery:
            self.recovering = True
            self._prior_cwnd = self.cwnd
            self._prr_delivered = self._prr_out = 0
            self.ssthresh = self.control.threshold(self, sample.now)
            self._high = self.next
            self._old = sum(c.count for c in self._outstanding) + sum(n for _, n in self._to_repeat)
        elif in_recovery and self._old <= 0:
            if self.recovering and not self.control.own_recovery:
                self.cwnd = self.ssthresh
            self.recovering = self.timed_out = False
            self._high = 0
        self.control.sample(self, sample)
        if self.control.own_recovery:
            return
        if self.recovering:
            self._reduce(sample, advanced)
        elif self.is_limited:
            self.control.grow(self, sample)

    def _reduce(self, sample: Sample, advanced: bool) -> None:
        """Proportional rate reduction (RFC 6937; Linux, `tcp_cwnd_reduction`)."""
        self._prr_delivered += sample.acked
        delta = self.ssthresh - self.in_flight
        if delta < 0:
            count = -(-self.ssthresh * self._prr_delivered // max(1, self._prior_cwnd)) - self._prr_out
        else:
            count = max(self._prr_delivered - self._prr_out, sample.acked)
            if advanced and not sample.lost:
                count += 1
            count = min(delta, count)
        self.cwnd = self.in_flight + max(count, 0 if self._prr_out else 1)

    def _wake_at(self, time: float) -> None:
        if not self._wake_set:
            self._wake_set = True
            self.clock.at(time, self._wake, None)

    def _wake(self, _: None) -> None:
        self._wake_set = False
        self.send()

    def _arm(self, now: float) -> None:
        """(Re)start the timer that fires when acknowledgements stay away: a probe first, then a timeout."""
        if not self._outstanding:
            self._timer_s = math.inf
            return
        wait = self.rto_s * 2**self._backoff
        if not self._probed and not self.recovering and not self.timed_out:
            alone = LEAST_RTO_S if self.in_flight == 1 else _LEAST_PROBE_S
            wait = min(wait, 2 * self.srtt_s + alone)
        self._timer_s = now + wait
        if not self._timer_set:
            self._timer_set = True
            self.clock.at(self._timer_s, self._timer, None)

    def _timer(self, _: None) -> None:
        self._timer_set = False
        now = self.clock.now
        if self._timer_s == math.inf:
            return
        if now < self._timer_s:
            self._timer_set = True
            self.clock.at(self._timer_s, self._timer, None)
            return
        if not self._probed and not self.recovering and not self.timed_out:
            self._probe(now)
        else:
            self._time_out(now)

    def _probe(self, now: float) -> None:
        """Tail loss probe: a new segment, or the last one again."""
        self._probed = True
        if self.next < self.end and self.next < self.unacked + self._window:
            self._put(now, self.next, 1, False)
            return
        last = self._outstanding[-1]
        if last.received or not last.count:  # only an acknowledgement is missing
            self._send_copy(now, last)
            return
        last.count -= 1
        self.in_flight -= 1
        if not last.count:
            last.done = True
            self._outstanding.pop()
        self._put(now, last.start + last.count, 1, True)

    def _send_copy(self, now: float, last: Chunk) -> None:
        """A segment that the receiver has, for its acknowledgement's sake."""
        chunk = Chunk(last.start + last.count, 0, now, True)
        chunk.prior_delivered, chunk.prior_s, chunk.first_sent_s = self.delivered, self._delivered_s, now
        self._outstanding.append(chunk)
        for _, arrival in self._forward.offer(now, 1):
            if arrival >= 0:
                self.clock.at(arrival, self._receive, chunk)
        self._arm(now)

    def _time_out(self, now: float) -> None:
        """All that is outstanding counts as lost."""
        self._backoff = min(self._backoff + 1, 6)
        if not self.timed_out:
            self.ssthresh = self.control.threshold(self, now)
            self.control.lose_all(self)
        self.timed_out, self.recovering = True, False
        self._repeats.clear()
        missing = ((c.start, c.count) for c in self._outstanding if c.count and not c.received)
        again = sorted([*self._to_repeat, *missing])
        for c in self._outstanding:
            c.done = True
            if c.received:
                self.delivered += c.count
            else:
                self.lost += c.count
        self._outstanding.clear()
        self._to_repeat = deque(again)
        if not again:  # only acknowledgements were lost
            self.unacked = self.next
        self.in_flight = 0
        self.cwnd = 1
        self._high = self.next
        self._old = sum(n for _, n in again)
        self.next_send_s = min(self.next_send_s, now)
        self.send()
