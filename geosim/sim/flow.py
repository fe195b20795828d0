"""A transfer on its links: n equal TCP flows with what is left of them, through bursts, pauses and stream.

In slow start a flow sends its window in a burst at its share and pauses until a round trip has passed since
the burst began; then the window has doubled. Once a burst takes a round trip, what fills the path leaves in a
burst and the rest streams. Where the window's limit is below that, bursts and pauses go on, as long as no
other flow shares the links; then the rest streams (the law is `cost.transport.send_time`; here shares change
under way). Bytes are on the wire.
"""

import math
from dataclasses import dataclass
from functools import lru_cache

import simpy

TINY = 1e-12
TINY_BYTES = 1e-6
TINY_SHARE_OF_TIME = 1e-15  # a few units in the last place of the clock


@dataclass(frozen=True)
class Ramp:
    """How n equal TCP flows start: round trip, window now and at most (of all), rate once it is full.

    `opposed` is that rate while flows are on the way back. `paced`: out of slow start no window below what
    fills the path leaves in a burst.
    """

    flows: int = 1
    rtt_s: float = 0.0
    window: float = math.inf
    limit: float = math.inf
    stream: float = math.inf
    opposed: float = math.inf
    paced: bool = False


class Flow:
    """n equal TCP flows with one transfer: what is left of it and how fast it goes now.

    Attributes:
        most: what a window has to be for slow start to be over. filling: what then leaves at once; infinite:
            nothing, it streams. short: whether it goes on in bursts and pauses then.
        top: what the narrowest of its links carries.
        pauses: whether the burst under way is followed by a pause until its round trip is over.
        since: when `left` and `burst` were true.
        alone: whether it meets no other flow and goes through its bursts without further alarms.
        is_opposed: whether flows are on the way back.
        mark: an event that fires once no more than `mark_left` is left; None once it has.
    """

    __slots__ = (
        "alarm",
        "alone",
        "burst",
        "done",
        "filling",
        "is_opposed",
        "left",
        "limit",
        "mark",
        "mark_left",
        "most",
        "n",
        "opposed",
        "paced",
        "paused_until",
        "pauses",
        "rate",
        "round_start",
        "route",
        "rtt_s",
        "short",
        "since",
        "size",
        "stream",
        "top",
        "window",
    )

    def __init__(
        self, route: tuple[int, ...], size_bytes: float, ramp: Ramp, full: float, now: float
    ) -> None:
        self.route = route
        self.size = self.left = size_bytes
        self.n = ramp.flows
        self.rtt_s = ramp.rtt_s
        self.window = min(ramp.window, ramp.limit)
        self.limit = ramp.limit
        self.stream = ramp.stream
        self.opposed = min(ramp.stream, ramp.opposed)
        self.paced = ramp.paced
        self.is_opposed = False
        self.mark: simpy.Event | None = None
        self.mark_left = 0.0
        self.fit(full)
        self.done: simpy.Event | None = None
        self.alarm: simpy.Event | None = None
        self.alone = False
        self.rate = 0.0
        self.since = now
        self.begin_round(now)

    @property
    def cap(self) -> float:
        """The most that goes per second once out of slow start; no bound inside a burst."""
        if self.burst < math.inf:
            return math.inf
        return self.opposed if self.is_opposed else self.stream

    def begin_round(self, now: float) -> None:
        """From now on a window leaves at once, or what fills the path, or all that is left."""
        self.round_start = now
        self.paused_until = -1.0
        early = self.window < self.most
        self.burst = self.window if early else self.filling
        self.pauses = early or self.short

    def fit(self, full: float) -> None:
        """The narrowest of its links carries so many bytes in a round trip."""
        down = full == 0 < self.rtt_s
        self.most = self.limit if down else min(self.limit, full * (1 - TINY))
        self.top = full / self.rtt_s if self.rtt_s > 0 else 0.0
        self.short = not self.paced and self.limit < full
        if self.short:
            self.filling = min(full, self.opposed * self.rtt_s * (1 + TINY), self.limit)
        else:
            self.filling = full if self.limit >= full > 0 else math.inf

    def give_up_bursts(self) -> None:
        """From now on others share its links: once out of slow start it goes on without bursts and pauses."""
        if self.short and self.window >= self.most:
            self.burst, self.paused_until, self.pauses = math.inf, -1.0, False

    def advance(self, now: float) -> float:
        """Bring the bytes up to now; how many have moved."""
        moved = 0.0
        if self.rate > 0 and now > self.since:
            moved = min(self.rate * (now - self.since), self.left)
            self.left -= moved
            self.burst -= moved
        self.since = now
        return moved

    def reach_mark(self, now: float) -> None:
        """Fire the mark if what it stands for has left."""
        if self.mark is not None and self.left - self.mark_left <= slack(max(self.rate, self.top), now):
            self.mark.succeed()
            self.mark = None

    def is_through(self, now: float) -> bool:
        """Let a flow whose part is over move on; whether the whole transfer is."""
        tiny = slack(self.rate, now)
        if self.left <= tiny:
            return True
        if self.paused_until >= 0:
            if self.paused_until <= now:
                self.window = min(2 * self.window, self.limit)
                self.begin_round(now)
        elif self.burst <= tiny:
            until = self.round_start + self.rtt_s
            self.burst = math.inf
            if self.pauses and now < until - TINY * (1 + now):
                self.paused_until = until
        return False

    def part_ends(self, rate: float) -> float:
        """When the burst, the pause or the transfer is over at a rate from `since` on; the rate is set."""
        if self.paused_until >= 0:
            self.rate = 0.0
            return self.paused_until
        self.rate = rate
        ahead = min(self.left, self.burst)
        if self.mark is not None and self.left > self.mark_left:
            ahead = min(ahead, self.left - self.mark_left)
        return self.since + ahead / rate if rate > 0 else math.inf

    def run(self, rate: float, until: float) -> None:
        """Go through bursts and pauses at the rate of links without other flows, to a time or the end."""
        (
            self.left, self.burst, self.since, self.round_start, self.paused_until, self.window, self.rate,
            self.pauses,
        ) = self._after(self.left, rate, until)  # fmt: skip

    def ends(self, left: float, rate: float) -> float:
        """When so many bytes will have left, at the rate of links without other flows."""
        return self._after(left, rate, math.inf)[2]

    def _after(
        self, left: float, rate: float, until: float
    ) -> tuple[float, float, float, float, float, float, float, bool]:
        """What `run` comes to, with `left` bytes to go: all that it changes, in its order.

        It is what `part_ends`, `advance` and `is_through` do by turns, on plain variables, since most of a
        run's time goes here.
        """
        burst, since, round_start, paused = self.burst, self.since, self.round_start, self.paused_until
        window, limit, rtt_s, most, filling = self.window, self.limit, self.rtt_s, self.most, self.filling
        pauses, short = self.pauses, self.short
        streaming = min(self.opposed if self.is_opposed else self.stream, rate)
        infinite = math.inf
        while True:
            if paused >= 0:
                speed, end = 0.0, paused
            else:
                speed = rate if burst < infinite else streaming
                end = since + (left if left < burst else burst) / speed if speed > 0 else infinite
            stops = end > until or end == infinite
            if stops:
                end = until
            if speed > 0 and end > since:
                moved = speed * (end - since)
                if moved > left:
                    moved = left
                left -= moved
                burst -= moved
            since = end
            tiny = TINY_BYTES + speed * TINY_SHARE_OF_TIME * (1 + since)
            if stops or left <= tiny:
                return left, burst, since, round_start, paused, window, speed, pauses
            if paused >= 0:
                window = 2 * window if 2 * window < limit else limit
                round_start, paused = since, -1.0
                if window < most:
                    burst = window
                else:
                    burst, pauses = filling, short
                    if short and left > filling:
                        # Rounds alike at once, up to the last one; what the clock cannot tell is none.
                        told = left - slack(rate, since)
                        rounds = max(math.ceil(told / filling * (1 - TINY)) - 1.0, 0.0)
                        more = rounds
                        if until < infinite:
                            rounds = min(rounds, math.floor((until - since) / rtt_s))
                        left -= rounds * filling
                        if rounds == more and left > filling:
                            left = filling
                        since += rounds * rtt_s
                        round_start = since
            elif burst <= tiny:
                burst = infinite
                if pauses and since < round_start + rtt_s - TINY * (1 + since):
                    paused = round_start + rtt_s


def slack(rate: float, now: float) -> float:
    """Bytes that are as good as none: the clock cannot tell when they leave."""
    return TINY_BYTES + rate * TINY_SHARE_OF_TIME * (1 + now)


@lru_cache(maxsize=4096)
def time_alone(size_bytes: float, ramp: Ramp, rate: float, is_opposed: bool) -> float:
    """Seconds of a transfer over links without other flows."""
    flow = Flow((), size_bytes, ramp, ramp.rtt_s * rate, 0.0)
    flow.is_opposed = is_opposed
    return flow.ends(size_bytes, rate)
