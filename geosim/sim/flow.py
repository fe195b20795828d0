"""A transfer on its links: n equal TCP flows with what is left of them, through bursts, pauses and stream.

A flow sends its window and pauses until a round trip has passed since it began; then the window has doubled.
A window's head leaves at all that the links give, as far as the flow has credit, and the rest of it at what
flows reach. Once a window takes a round trip the rest streams. Where the window's limit is below that,
windows and pauses go on, as long as no other flow shares the links; then the rest streams (the law is
`cost.sending.slow_start`; here shares change under way). Bytes are on the wire.
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
    """How n equal TCP flows start: round trip, window now and at most (of all), what they reach of a link.

    `opposed` is that rate while flows are on the way back. `paced`: windows are spread over a round trip
    (`cost.sending.slow_start`).
    """

    flows: int = 1
    rtt_s: float = 0.0
    window: float = math.inf
    limit: float = math.inf
    stream: float = math.inf
    opposed: float = math.inf
    paced: bool = False


HEAD, BODY, STREAM = range(3)


class Flow:
    """n equal TCP flows with one transfer: what is left of it and how fast it goes now.

    Attributes:
        phase: what moves now: a window's head, at the links' own rate; the rest of a window, at what flows
            reach; or all the rest, which the window's limit bounds, too. burst: bytes of it. body: what
            follows the head. credit: seconds that heads may save. room: at most.
        share: what flows reach of the narrowest link while flows are on the way back. pace: the window's
            limit in a round trip. short: whether windows at their limit may leave one at a time.
        top: what the narrowest of its links carries.
        since: when `left` and `burst` were true.
        alone: whether it meets no other flow and goes through its bursts without further alarms.
        is_opposed: whether flows are on the way back.
        mark: an event that fires once no more than `mark_left` is left; None once it has.
    """

    __slots__ = (
        "alarm",
        "alone",
        "body",
        "burst",
        "credit",
        "done",
        "is_opposed",
        "left",
        "limit",
        "mark",
        "mark_left",
        "n",
        "opposed",
        "pace",
        "paced",
        "paused_until",
        "phase",
        "rate",
        "room",
        "round_start",
        "route",
        "rtt_s",
        "share",
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
        self.begin(now)

    @property
    def cap(self) -> float:
        """The most that goes per second now, whatever the links give."""
        if self.phase == HEAD:
            return math.inf
        reached = self.opposed if self.is_opposed else self.stream
        return min(reached, self.pace) if self.phase == STREAM else reached

    def begin(self, now: float) -> None:
        """From now on the first window leaves."""
        self.credit = min(self.room, 0.5 * self.rtt_s)
        self.begin_round(now)

    def begin_round(self, now: float) -> None:
        """From now on a window leaves, or all that is left."""
        self.round_start, self.paused_until = now, -1.0
        self.phase, self.burst, self.body = self._round(self.window, self.credit)

    def _round(self, window: float, credit: float) -> tuple[int, float, float]:
        """How a window begins: phase, burst and body."""
        if self.top == 0 < self.rtt_s:
            return BODY, window, 0.0
        takes_all = window >= self.share * (self.rtt_s + credit) * (1 - TINY)
        if takes_all or (self.paced and window >= self.limit):
            rate, body = min(self.share, self.pace), math.inf
        else:
            rate, body = self.share, window
        spare = self.top - rate
        if credit <= 0 or spare <= 0:
            return (STREAM if body == math.inf else BODY), body, 0.0
        head = min(credit * rate * self.top / spare, body)
        return HEAD, head, body - head

    def fit(self, full: float) -> None:
        """The narrowest of its links carries so many bytes in a round trip."""
        self.top = full / self.rtt_s if self.rtt_s > 0 else 0.0
        self.share = min(self.opposed, self.top)
        self.pace = self.limit / self.rtt_s if self.rtt_s > 0 else math.inf
        self.room = 0.0
        if not self.paced and 0 < self.share < self.top:
            self.room = min(self.rtt_s, self.rtt_s * (self.top - self.share) / self.share)
        self.short = not self.paced and self.limit < self.share * (self.rtt_s + self.room)

    def end_pause(self, now: float) -> None:
        """A round trip is over: the window has doubled."""
        self.window, self.credit = self._later(self.window, self.credit)
        self.begin_round(now)

    def _later(self, window: float, credit: float) -> tuple[float, float]:
        """The window and the credit, a round trip later."""
        if self.share > 0:
            credit = min(self.room, credit + self.rtt_s - window / self.share)
        return min(2 * window, self.limit), credit

    def give_up_bursts(self) -> None:
        """From now on others share its links: out of slow start it goes on without windows and pauses."""
        if self.short and self.window >= self.limit:
            self.phase, self.burst, self.paused_until = STREAM, math.inf, -1.0

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
                self.end_pause(now)
        elif self.burst <= tiny:
            until = self.round_start + self.rtt_s
            if self.body > tiny:
                self.phase = STREAM if self.body == math.inf else BODY
                self.burst, self.body = self.body, 0.0
            elif now < until - TINY * (1 + now):
                self.burst, self.paused_until = math.inf, until
            else:
                self.phase, self.burst = STREAM, math.inf
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
            self.phase, self.body, self.credit,
        ) = self._after(self.left, rate, until)  # fmt: skip

    def ends(self, left: float, rate: float) -> float:
        """When so many bytes will have left, at the rate of links without other flows."""
        return self._after(left, rate, math.inf)[2]

    def _after(
        self, left: float, rate: float, until: float
    ) -> tuple[float, float, float, float, float, float, float, int, float, float]:
        """What `run` comes to, with `left` bytes to go: all that it changes, in its order.

        It is what `part_ends`, `advance` and `is_through` do by turns, on plain variables, since most of a
        run's time goes here.
        """
        burst, since, round_start, paused = self.burst, self.since, self.round_start, self.paused_until
        window, limit, rtt_s, share, room = self.window, self.limit, self.rtt_s, self.share, self.room
        phase, body, credit = self.phase, self.body, self.credit
        reached = min(self.opposed if self.is_opposed else self.stream, rate)
        streaming = min(reached, self.pace)
        infinite = math.inf
        while True:
            if paused >= 0:
                speed, end = 0.0, paused
            else:
                speed = streaming if phase == STREAM else reached if phase == BODY else rate
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
                return left, burst, since, round_start, paused, window, speed, phase, body, credit
            if paused >= 0:
                round_start, paused = since, -1.0
                window, credit = self._later(window, credit)
                if window == limit and left > limit and share > 0 and not self.paced:
                    rounds, left = self._rounds_alike(left, credit, since, until)
                    credit = max(min(room, credit - rounds * (limit / share - rtt_s)), 0.0)
                    since += rounds * rtt_s
                    round_start = since
                phase, burst, body = self._round(window, credit)
            elif burst <= tiny:
                if body > tiny:
                    phase, burst, body = STREAM if body == infinite else BODY, body, 0.0
                elif since < round_start + rtt_s - TINY * (1 + since):
                    burst, paused, body = infinite, round_start + rtt_s, 0.0
                else:
                    phase, burst, body = STREAM, infinite, 0.0

    def _rounds_alike(self, left: float, credit: float, since: float, until: float) -> tuple[float, float]:
        """How many windows at their limit leave whole until a time, with credit left, and what is left then.

        The last one is not among them; what the clock cannot tell from none is none.
        """
        told = left - slack(self.top, since)
        whole = max(math.ceil(told / self.limit * (1 - TINY)) - 1.0, 0.0)
        rounds, extra = whole, self.limit / self.share - self.rtt_s
        if extra > 0:
            rounds = min(rounds, float(math.floor(credit / extra)))
        if until < math.inf:
            rounds = min(rounds, float(math.floor((until - since) / self.rtt_s)))
        left -= rounds * self.limit
        return rounds, min(left, self.limit) if rounds == whole else left


def slack(rate: float, now: float) -> float:
    """Bytes that are as good as none: the clock cannot tell when they leave."""
    return TINY_BYTES + rate * TINY_SHARE_OF_TIME * (1 + now)


@lru_cache(maxsize=4096)
def time_alone(size_bytes: float, ramp: Ramp, rate: float, is_opposed: bool) -> float:
    """Seconds of a transfer over links without other flows."""
    flow = Flow((), size_bytes, ramp, ramp.rtt_s * rate, 0.0)
    flow.is_opposed = is_opposed
    return flow.ends(size_bytes, rate)
