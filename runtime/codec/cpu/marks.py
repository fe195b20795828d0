"""Reads the positions of one section of one body, in parts that threads share."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from runtime.codec.cpu import positions
from runtime.codec.cpu.plan import SectionPlan
from runtime.codec.workers import threads

_WORDS = 1 << 10

Tasks = list[tuple[int, Callable[[], None]]]


class Marks:
    """One section's positions: first the tasks of `counting` are run, then those of `placing`."""

    def __init__(self, plan: SectionPlan, body: np.ndarray, found: np.ndarray) -> None:
        """`found` [k]: where they go."""
        self._plan, self._found = plan, found
        self._lower, self._high = body[plan.low_at : plan.high_at], body[plan.high_at : plan.scales_at]
        words = -(-len(self._high) // 8)
        step = max(_WORDS, -(-words // threads()))
        self._words = [(first, min(words, first + step)) for first in range(0, words, step)]
        self._counts = [0] * len(self._words)
        self._placed = [False] * len(self._words)
        self._begins: list[int] = []

    def counting(self) -> Tasks:
        """Tasks, with their weights, that count the marks of each part."""
        return [(last - first, partial(self._count, i)) for i, (first, last) in enumerate(self._words)]

    def placing(self) -> Tasks:
        """Tasks that read the positions; none if marks are too few or too many, or unused bits are set."""
        plan = self._plan
        used = plan.count * plan.low % 8
        if used and self._lower[-1] >> used:
            return []
        if plan.upper % 8 and self._high[-1] >> plan.upper % 8:
            return []
        if sum(self._counts) != plan.count:
            return []
        self._begins = np.cumsum([0, *self._counts]).tolist()
        return [(count, partial(self._place, i)) for i, count in enumerate(self._counts)]

    def sound(self) -> bool:
        """Whether all are read, are in range, and ascend."""
        inner = [begin for begin in self._begins if 0 < begin < self._plan.count]
        return all(self._placed) and all(self._found[begin] > self._found[begin - 1] for begin in inner)

    def _count(self, i: int) -> None:
        self._counts[i] = positions.count_ones(self._high, *self._words[i])

    def _place(self, i: int) -> None:
        begin, end = self._begins[i], self._begins[i + 1]
        self._placed[i] = positions.read_positions(
            self._lower,
            self._high,
            self._plan.low,
            *self._words[i],
            begin,
            end,
            self._plan.numel,
            self._found,
        )
