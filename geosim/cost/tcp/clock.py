"""Events in the order of time; those at one time in the order in which they were set."""

import heapq
from collections.abc import Callable
from typing import Any


class Clock:
    """What is to happen, and when; `now` in seconds."""

    def __init__(self) -> None:
        self.now = 0.0
        self._count = 0
        self._events: list[tuple[float, int, Callable[..., None], Any]] = []

    def at(self, time: float, call: Callable[..., None], argument: Any) -> None:
        """Have `call(argument)` happen at `time`."""
        self._count += 1
        heapq.heappush(self._events, (time, self._count, call, argument))

    def run(self, is_over: Callable[[], bool], until: float) -> None:
        """Let things happen until `is_over` says so, nothing is left, or it is `until`."""
        events = self._events
        while events and not is_over():
            if events[0][0] > until:
                self.now = until
                return
            self.now, _, call, argument = heapq.heappop(events)
            call(argument)

    def idle(self, seconds: float) -> None:
        """Let what is under way happen, and be `seconds` later."""
        until = self.now + seconds
        self.run(lambda: False, until)
        self.now = until
