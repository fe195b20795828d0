"""The sum of a round's payloads of one fragment, in one turn: checks, reads and adds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from runtime.codec.cpu import sums
from runtime.codec.cpu.plan import SectionPlan
from runtime.codec.workers import run, run_weighed, threads

_STREAMED_FROM = 1 << 20
_RANGE = 1 << 18
_MOST = 1 << 22


class Total:
    """One sum.

    Attributes:
        sound: which payloads are ones that an encoder writes. If not all are, the result means nothing.
    """

    def __init__(
        self,
        plans: Sequence[SectionPlan],
        bodies: Sequence[np.ndarray],
        drawn: Callable[[SectionPlan], np.ndarray | None],
        out: np.ndarray,
    ) -> None:
        """Overwrite `out` with the sum, unless a look that precedes it finds something wrong.

        Args:
            plans: of all sections.
            bodies: uint8, each of the right size.
            drawn: positions of a section, where they do not travel; else None.
            out: fp32, the fragment's.
        """
        self.sound = [True] * len(bodies)
        self._bodies = bodies
        self._spared = [_spared(body, plans) for body in bodies]
        self._addresses = np.array([body.ctypes.data for body in self._spared], np.uint64)
        self._out = out
        self._streamed = len(out) >= _STREAMED_FROM
        self._places = {plan.number: _places(plan) for plan in plans}
        self._before = {plan.number: _index(plan, len(bodies)) for plan in plans if plan.sparse}
        run([partial(self._inspect, plan, m) for plan in plans if plan.sparse for m in range(len(bodies))])
        if not all(self.sound):
            return
        tasks = []
        numbers: list[list[np.ndarray]] = []
        for plan in plans:
            if plan.sparse:
                numbers.append([])
                tasks += self._sparse(plan, drawn(plan), numbers[-1])
            else:
                tasks += self._dense(plan)
        run_weighed(tasks)
        for taken, plan in zip(numbers, (plan for plan in plans if plan.sparse), strict=True):
            self._follow(taken, plan.count)

    def _inspect(self, plan: SectionPlan, m: int) -> None:
        if not sums.inspect(
            self._bodies[m], plan.form, plan.low, plan.upper, plan.count, plan.width,
            self._places[plan.number], self._before[plan.number][m],
        ):  # fmt: skip
            self.sound[m] = False

    def _sparse(
        self, plan: SectionPlan, drawn: np.ndarray | None, numbers: list[np.ndarray]
    ) -> list[tuple[int, Callable[[], object]]]:
        tasks: list[tuple[int, Callable[[], object]]] = []
        first = 0
        # Long ranges begin few searches; all threads should still have some.
        step = min(_MOST, max(_RANGE, plan.numel // (4 * threads())))
        for last, shift in zip(plan.ends.tolist(), plan.shifts.tolist(), strict=True):
            for begin in range(first, last, step):
                end = min(last, begin + step)
                numbers.append(np.empty((len(self._bodies), 2), np.int64))
                tasks.append((end - begin, partial(
                    sums.sum_sparse, self._addresses, self._places[plan.number], plan.low, plan.form,
                    plan.width, plan.block, plan.keep, plan.count, plan.numel, drawn,
                    self._before[plan.number], begin, self._streamed,
                    self._out[begin + shift : end + shift], numbers[-1],
                )))  # fmt: skip
            first = last
        return tasks

    def _dense(self, plan: SectionPlan) -> list[tuple[int, Callable[[], object]]]:
        shift = int(plan.shifts[0])

        def one(begin: int, end: int) -> None:
            right = np.ones(len(self._bodies), np.uint8)
            sums.sum_dense(
                self._addresses, self._places[plan.number], plan.form, plan.width, begin, end, self._streamed,
                self._out[begin + shift : end + shift], right,
            )  # fmt: skip
            for m in np.flatnonzero(right == 0):
                self.sound[m] = False

        return [
            (end - begin, partial(one, begin, end))
            for begin, end in ((at, min(plan.count, at + _RANGE)) for at in range(0, plan.count, _RANGE))
        ]

    def _follow(self, numbers: list[np.ndarray], count: int) -> None:
        """Each range of a section goes on where the one before has stopped; then all positions ascend."""
        for m in range(len(self._bodies)):
            begins = [int(taken[m, 0]) for taken in numbers]
            ends = [int(taken[m, 1]) for taken in numbers]
            if [*begins, count] != [0, *ends]:
                self.sound[m] = False


def _spared(body: np.ndarray, plans: Sequence[SectionPlan]) -> np.ndarray:
    """The body, or a copy with the bytes that are read after a bit vector near its end."""
    short = any(plan.sparse and len(body) < plan.scales_at + sums.SPARE for plan in plans)
    return np.concatenate([body, np.zeros(sums.SPARE, np.uint8)]) if short else body


def _places(plan: SectionPlan) -> np.ndarray:
    return np.array([plan.low_at, plan.high_at, plan.scales_at, plan.values_at, plan.end])


def _index(plan: SectionPlan, payloads: int) -> np.ndarray:
    words = -(-(plan.scales_at - plan.high_at) // 8)
    return np.zeros((payloads, -(-words // sums.INDEXED) + 1), np.int64)
