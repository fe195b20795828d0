"""Decodes payloads of one fragment: checks all of a body, then adds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple

import numpy as np

from geosim.policy.maths import Key
from runtime.codec.cpu import positions, read
from runtime.codec.cpu.draw import draw
from runtime.codec.cpu.marks import Marks, Tasks
from runtime.codec.cpu.plan import ITEM, SectionPlan
from runtime.codec.cpu.total import Total
from runtime.codec.workers import run_weighed

_RANGE = 1 << 18


class Row(NamedTuple):
    """What travelled of one sparse section.

    Attributes:
        found: ascending positions [k].
        c: fp32 values [k].
    """

    found: np.ndarray
    c: np.ndarray


class Decoder:
    """Of one fragment on one shard."""

    def __init__(self, plans: Sequence[SectionPlan]) -> None:
        self._plans = plans
        self._sparse = [plan for plan in plans if plan.sparse]
        self._dtype = np.uint32 if all(plan.numel <= 1 << 32 for plan in self._sparse) else np.int64
        self._none = np.empty(0, self._dtype)
        self._free: list[dict[int, Row]] = []
        self._drawn: tuple[tuple[int, int], dict[int, np.ndarray]] | None = None

    @contextmanager
    def rows(self, key: Key) -> Iterator[dict[int, Row]]:
        """Room for the sparse sections of one payload, by section; kept for the next."""
        try:
            room = self._free.pop()
        except IndexError:
            room = {plan.number: self._room(plan) for plan in self._sparse}
        for plan in self._sparse:
            if plan.drawn:
                room[plan.number] = room[plan.number]._replace(found=self._draw(plan, key))
        try:
            yield room
        finally:
            self._free.append(room)

    def _room(self, plan: SectionPlan) -> Row:
        found = self._none if plan.drawn else np.empty(plan.count, self._dtype)
        return Row(found, np.empty(plan.count, np.float32))

    def read(self, body: np.ndarray, rows: dict[int, Row]) -> bool:
        """Read a body's sparse sections; whether it is one that an encoder writes."""
        if not self._read_positions(body, rows):
            return False
        wrong: list[SectionPlan] = []

        def item(plan: SectionPlan, begin: int, end: int) -> None:
            scales, data = body[plan.scales_at : plan.values_at], body[plan.values_at : plan.end]
            fine = read.all_right(scales, data, plan.form, plan.width, begin, end)
            if plan.sparse and not plan.drawn:
                found = rows[plan.number].found
                fine = fine and positions.well_placed(found, begin, end, plan.block, plan.keep, plan.numel)
            if plan.sparse and fine:
                read.read_values(
                    scales, data, plan.form, plan.width, begin, end, rows[plan.number].c[begin:end]
                )
            if not fine:
                wrong.append(plan)

        run_weighed([
            (end - begin, partial(item, plan, begin, end))
            for plan in self._plans for begin, end in plan.items()
        ])  # fmt: skip
        return not wrong

    def add(self, body: np.ndarray, rows: dict[int, Row], out: np.ndarray) -> None:
        """Add what `read` has accepted to `out`."""
        tasks: Tasks = []
        for plan in self._plans:
            if plan.sparse:
                found, c = rows[plan.number]
                for begin, end in _parts(plan.count, ITEM):
                    place = partial(read.add_sparse, found[begin:end], c[begin:end], plan.ends, plan.shifts)
                    tasks.append((end - begin, partial(place, out)))
            else:
                scales, data = body[plan.scales_at : plan.values_at], body[plan.values_at : plan.end]
                shift = int(plan.shifts[0])
                for begin, end in _parts(plan.count, _RANGE):
                    part = out[begin + shift : end + shift]
                    one = partial(read.add_dense, scales, data, plan.form, plan.width, begin, end, part)
                    tasks.append((end - begin, one))
        run_weighed(tasks)

    def sum(self, bodies: Sequence[np.ndarray], key: Key, out: np.ndarray) -> list[bool]:
        """Overwrite `out` with the sum of a round's bodies, in their order.

        Returns:
            Which of them are ones that an encoder writes; if not all are, `out` means nothing.
        """
        return Total(self._plans, bodies, partial(self._positions, key), out).sound

    def _positions(self, key: Key, plan: SectionPlan) -> np.ndarray | None:
        return self._draw(plan, key) if plan.drawn else None

    def _read_positions(self, body: np.ndarray, rows: dict[int, Row]) -> bool:
        """All sections' at once, as threads wait for each other after every step."""
        marks = [Marks(plan, body, rows[plan.number].found) for plan in self._sparse if not plan.drawn]
        run_weighed([task for section in marks for task in section.counting()])
        run_weighed([task for section in marks for task in section.placing()])
        return all(section.sound() for section in marks)

    def _draw(self, plan: SectionPlan, key: Key) -> np.ndarray:
        """All payloads of a round have the same positions, so they are drawn once."""
        of = (int(key.seed), int(key.round))
        drawn = self._drawn  # another thread may replace it
        if drawn is None or drawn[0] != of:
            drawn = self._drawn = (of, {})
        known = drawn[1]
        if plan.number not in known:
            known[plan.number] = draw(plan, key, self._dtype)
        return known[plan.number]


def _parts(count: int, step: int) -> list[tuple[int, int]]:
    return [(begin, min(count, begin + step)) for begin in range(0, count, step)]
