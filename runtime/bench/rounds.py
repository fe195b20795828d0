"""Times that can be compared: everything once a round, in an order that is drawn anew for each."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median

import torch

_PAUSE_S = 0.01


@dataclass(frozen=True)
class Contestant:
    """Something to time.

    Attributes:
        name: unique.
        run: what is timed.
        prepare: runs before it, untimed.
        rounds: takes part in the first so many rounds; None: in all.
    """

    name: str
    run: Callable[[], object]
    prepare: Callable[[], object] = field(default=lambda: None)
    rounds: int | None = None


class Times:
    """Seconds of each contestant in each round in which it took part."""

    def __init__(self) -> None:
        self._seconds: dict[str, dict[int, float]] = {}

    def add(self, name: str, round: int, seconds: float) -> None:
        """Note one time."""
        self._seconds.setdefault(name, {})[round] = seconds

    def median_s(self, name: str) -> float:
        """Median over its rounds."""
        return median(self._seconds[name].values())

    def fastest_s(self, name: str) -> float:
        """Least of its rounds."""
        return min(self._seconds[name].values())

    def slowest_s(self, name: str) -> float:
        """Most of its rounds."""
        return max(self._seconds[name].values())

    def ratio(self, name: str, other: str) -> float:
        """Median of time over the other's time in the same round, over the rounds that both were in."""
        own, others = self._seconds[name], self._seconds[other]
        return median(own[r] / others[r] for r in own if r in others)


Clock = Callable[[Callable[[], object]], float]


def clock_of(device: torch.device) -> Clock:
    """How to time on a device: its own events where it is CUDA, the wall clock elsewhere."""
    return _cuda_seconds if device.type == "cuda" else _wall_seconds


def _wall_seconds(run: Callable[[], object]) -> float:
    # All begin alike: torch's threads asleep, as they spin for some milliseconds after their last work
    # (OpenMP's), and this one awake, as it would else begin slowly.
    until = time.perf_counter() + _PAUSE_S
    while (begun := time.perf_counter()) < until:
        pass
    run()
    return time.perf_counter() - begun


def _cuda_seconds(run: Callable[[], object]) -> float:
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    begin.record()
    run()
    end.record()
    end.synchronize()
    return 1e-3 * begin.elapsed_time(end)


def run_rounds(
    contestants: Sequence[Contestant],
    rounds: int,
    clock: Clock,
    seed: int,
    progress: Callable[[int], None],
) -> Times:
    """Time all, after one run of each that takes part in every round, which does not count.

    Args:
        contestants: what to time.
        rounds: how often.
        clock: runs something and says the seconds.
        seed: of the order within rounds.
        progress: called with the rounds done.
    """
    times, draw = Times(), random.Random(seed)
    for one in contestants:
        if one.rounds is None:
            one.prepare()
            one.run()
    for round in range(rounds):
        taking_part = [one for one in contestants if one.rounds is None or round < one.rounds]
        draw.shuffle(taking_part)
        for one in taking_part:
            one.prepare()
            times.add(one.name, round, clock(one.run))
        progress(round + 1)
    return times
