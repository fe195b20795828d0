"""Decodes payloads of one fragment: checks all of a body, then adds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple

import numpy as np

from geosim.policy.maths import Key
from runtime.codec.cpu import positions, read
from runtime.codec.cpu.draw import draw
from runtime.codec.cpu.marks import Marks, Tasks
from runtime.codec.cpu.plan import ITEM, SectionPlan
from runtime.codec.workers import run, shares, threads

_STREAMED_FROM = 1 << 20
_RANGE = 1 << 18
_MOST = 1 << 22


class Rows(NamedTuple):
    """What travelled of one sparse section in several payloads.

    Attributes:
        found: ascending positions [payloads, k]; drawn ones [1, k], as they are the same in all.
        c: fp32 values [payloads, k].
    """

    found: np.ndarray
    c: np.ndarray


class Decoder:
    """Of one fragment on one shard."""

    def __init__(self, plans: Sequence[SectionPlan]) -> None:
        self._plans = plans
        self._sparse = [plan for plan in plans if plan.sparse]
        self._dtype = np.uint32 if all(plan.numel <= 1 << 32 for plan in self._sparse) else np.int64
        self._free: dict[int, list[dict[int, Rows]]] = {}
        self._drawn: tuple[tuple[int, int], dict[int, np.ndarray]] | None = None

    @contextmanager
    def rows(self, payloads: int, key: Key) -> Iterator[dict[int, Rows]]:
        """Room for the sparse sections of so many payloads of one round, by section; kept for the next."""
        free = self._free.setdefault(payloads, [])
        try:
            room = free.pop()
        except IndexError:
            room = {plan.number: self._room(plan, payloads) for plan in self._sparse}
        for plan in self._sparse:
            if plan.drawn:
                room[plan.number] = room[plan.number]._replace(found=self._draw(plan, key)[None])
        try:
            yield room
        finally:
            free.append(room)

    def _room(self, plan: SectionPlan, payloads: int) -> Rows:
        found = np.empty((0 if plan.drawn else payloads, plan.count), self._dtype)
        return Rows(found, np.empty((payloads, plan.count), np.float32))

    def read(self, bodies: Sequence[np.ndarray], rows: dict[int, Rows]) -> list[bool]:
        """Read bodies' sparse sections, each into its row; which of them are ones that an encoder writes."""
        sound = self._read_positions(bodies, rows)

        def item(plan: SectionPlan, row: int, begin: int, end: int) -> None:
            body = bodies[row]
            scales, data = body[plan.scales_at : plan.values_at], body[plan.values_at : plan.end]
            groups = (begin // plan.width, -(-end // plan.width)) if plan.scale_count else (0, 0)
            fine = read.scales_are_right(scales, plan.form, *groups)
            fine = fine and read.values_are_right(data, plan.form, begin, end)
            if plan.sparse and not plan.drawn:
                found = rows[plan.number].found[row]
                fine = fine and positions.well_placed(found, begin, end, plan.block, plan.keep, plan.numel)
            if plan.sparse and fine:
                c = rows[plan.number].c[row, begin:end]
                read.read_values(scales, data, plan.form, plan.width, begin, end, c)
            if not fine:
                sound[row] = False

        _run([
            (end - begin, partial(item, plan, row, begin, end))
            for row, fine in enumerate(sound)
            for plan in (self._plans if fine else ())
            for begin, end in plan.items()
        ])  # fmt: skip
        return sound

    def add(self, body: np.ndarray, rows: dict[int, Rows], out: np.ndarray) -> None:
        """Add what `read` has accepted, in the first row, to `out`."""
        tasks: Tasks = []
        for plan in self._plans:
            if plan.sparse:
                found, c = rows[plan.number].found[0], rows[plan.number].c[0]
                for begin, end in _parts(plan.count, ITEM):
                    place = partial(read.add_sparse, found[begin:end], c[begin:end], plan.ends, plan.shifts)
                    tasks.append((end - begin, partial(place, out)))
            else:
                for begin, end in _parts(plan.count, _RANGE):
                    tasks.append((end - begin, partial(_add_dense, plan, body, begin, end, False, out)))
        _run(tasks)

    def sum(self, bodies: Sequence[np.ndarray], rows: dict[int, Rows], out: np.ndarray) -> None:
        """Overwrite `out` with the sum of what `read` has accepted, a body a row."""
        streamed = len(out) >= _STREAMED_FROM
        tasks: Tasks = []
        for plan in self._plans:
            if plan.sparse:
                tasks += self._sum_sparse(plan, rows[plan.number], streamed, out)
            else:
                for begin, end in _parts(plan.count, _RANGE):
                    tasks.append((end - begin, partial(_sum_dense, plan, bodies, begin, end, out)))
        _run(tasks)

    def _sum_sparse(self, plan: SectionPlan, rows: Rows, streamed: bool, out: np.ndarray) -> Tasks:
        found, c = rows
        of = np.arange(len(c)) % len(found)
        tasks: Tasks = []
        first = 0
        # Long ranges begin few searches; all threads should still have some.
        step = min(_MOST, max(_RANGE, plan.numel // (4 * threads())))
        for last, shift in zip(plan.ends.tolist(), plan.shifts.tolist(), strict=True):
            for begin in range(first, last, step):
                end = min(last, begin + step)
                part = out[begin + shift : end + shift]
                tasks.append((end - begin, partial(read.sum_sparse, found, of, c, begin, streamed, part)))
            first = last
        return tasks

    def _read_positions(self, bodies: Sequence[np.ndarray], rows: dict[int, Rows]) -> list[bool]:
        """All sections' of all bodies at once, as threads wait for each other after every step."""
        marks = [
            [
                Marks(plan, body, rows[plan.number].found[row])
                for plan in self._sparse
                if not plan.drawn
            ]
            for row, body in enumerate(bodies)
        ]  # fmt: skip
        _run([task for body in marks for section in body for task in section.counting()])
        _run([task for body in marks for section in body for task in section.placing()])
        return [all(section.sound() for section in body) for body in marks]

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


def _run(tasks: Tasks) -> None:
    cuts = shares([weight for weight, _ in tasks], threads()) if tasks else []
    run([partial(_each, [task for _, task in tasks[at]]) for at in cuts])


def _each(tasks: Sequence[Callable[[], None]]) -> None:
    for task in tasks:
        task()


def _add_dense(
    plan: SectionPlan, body: np.ndarray, begin: int, end: int, overwrite: bool, out: np.ndarray
) -> None:
    shift = int(plan.shifts[0])
    scales, data = body[plan.scales_at : plan.values_at], body[plan.values_at : plan.end]
    part = out[begin + shift : end + shift]
    read.add_dense(scales, data, plan.form, plan.width, begin, end, overwrite, part)


def _sum_dense(
    plan: SectionPlan, bodies: Sequence[np.ndarray], begin: int, end: int, out: np.ndarray
) -> None:
    for number, body in enumerate(bodies):
        _add_dense(plan, body, begin, end, number == 0, out)
