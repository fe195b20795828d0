"""Encodes one fragment's update: select and add in one pass over memory, then write what was kept."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from geosim.policy.maths import Key
from runtime.codec.cpu import add, fused, positions, read, select, write
from runtime.codec.cpu.draw import counter_key, draw
from runtime.codec.cpu.plan import SectionPlan
from runtime.codec.cpu.scratch import Scratch
from runtime.codec.cpu.update import ONE, Update
from runtime.codec.cpu.whole import WholeSelection, ranges
from runtime.codec.workers import run, run_weighed, shares, threads

Undo = list[Callable[[], None]]
_EMPTY = np.zeros(0, np.float32)
_TASK = 64
_MARKED = 6  # positions' upper bits that are marked while one value is written
_FEW = 1 << 16  # elements that are selected before what they keep is written: they should stay in cache


class Encoder:
    """Of one fragment on one shard."""

    def __init__(self, plans: Sequence[SectionPlan]) -> None:
        sparse = [plan for plan in plans if plan.sparse]
        self.kept = sum(plan.count for plan in sparse)
        self.dtype = np.uint32 if all(plan.numel <= 1 << 32 for plan in sparse) else np.int64
        self._batched = [(plan, _Scopes([plan], plan.batch)) for plan in sparse if plan.batch]
        self._scopes = _Scopes(
            [plan for plan in sparse if not plan.whole and not plan.drawn and not plan.batch]
        )
        self._whole = [plan for plan in sparse if plan.whole]
        self._drawn = [plan for plan in sparse if plan.drawn]
        self._wide = [plan for plan in plans if not plan.sparse and plan.wide]
        self._narrow = [plan for plan in plans if not plan.sparse and not plan.wide]
        self._later = [plan for plan in plans if plan.wide or (plan.sparse and not plan.batch)]

    @property
    def needs_room(self) -> bool:
        """Whether u must stand in memory."""
        return bool(self.kept or self._wide)

    def __call__(self, update: Update, key: Key, body: np.ndarray) -> bool:
        """Write `body`; False where u is not finite, the residual then undone."""
        scratch = Scratch((self.kept, self.dtype), (self.kept, np.uint32))
        try:
            return self._encode(update, key, body, *scratch.arrays)
        finally:
            scratch.give_back()

    def _encode(
        self, update: Update, key: Key, body: np.ndarray, found: np.ndarray, words: np.ndarray
    ) -> bool:
        undo: Undo = []
        # A step that finds nothing to do would still cost as much as thousands of elements.
        fine = (
            (not (self._drawn or self._wide) or self._add_all(update, undo))
            and (not self._scopes or self._select_scopes(update, found, words, undo))
            and (not self._batched or self._select_and_write(update, key, body, found, words, undo))
            and (not self._whole or self._select_whole(update, found, words, undo))
            and (not self._narrow or self._write_narrow(update, key, body, undo))
        )
        if not fine:
            for step in undo if update.keeps else ():
                step()
            return False
        for plan in self._drawn:
            mine = slice(plan.kept_at, plan.kept_at + plan.count)
            found[mine] = draw(plan, key, self.dtype)
            write.take_values(update.work, found[mine], plan.ends, plan.shifts, words[mine])
        if update.keeps and update.decay != 1:
            run([
                partial(add.decayed, update.work[begin:end], update.decay)
                for plan in (*self._whole, *self._drawn)
                for begin, end in ranges(plan)
            ])  # fmt: skip
        if self._later:
            self._write_kept(update, key, body, found, words)
        return True

    def _add_all(self, update: Update, undo: Undo) -> bool:
        """u into the room of sections that are drawn from, or whose groups are wide."""
        parts = [part for plan in (*self._drawn, *self._wide) for part in ranges(plan)]
        done = [0] * len(parts)

        def one(i: int) -> None:
            begin, end = parts[i]
            done[i] = add.add_all(
                update.values[begin:end], update.kind, update.weight, update.work[begin:end], update.keeps
            )

        run([partial(one, i) for i in range(len(parts))])
        undo.append(
            lambda: update.take_off((begin, begin + n) for (begin, _), n in zip(parts, done, strict=True))
        )
        return all(begin + n == end for (begin, end), n in zip(parts, done, strict=True))

    def _select_scopes(self, update: Update, found: np.ndarray, words: np.ndarray, undo: Undo) -> bool:
        scopes = self._scopes
        decay = update.decay if update.keeps else ONE
        parts = scopes.cuts(threads())
        done = [(0, 0)] * len(parts)

        def one(i: int) -> None:
            at = parts[i]
            done[i] = select.select_scopes(
                update.values, update.kind, update.weight, update.work, update.keeps, decay,
                scopes.starts[at], scopes.sizes[at], scopes.keeps[at], scopes.bases[at], scopes.outs[at],
                found, words,
            )  # fmt: skip

        def take_back() -> None:
            for at, (whole, more) in zip(parts, done, strict=True):
                scopes.take_off(update, at, whole, more, decay)

        run([partial(one, i) for i in range(len(parts))])
        undo.append(take_back)
        return all(whole == at.stop - at.start for at, (whole, _) in zip(parts, done, strict=True))

    def _select_and_write(
        self, update: Update, key: Key, body: np.ndarray, found: np.ndarray, words: np.ndarray, undo: Undo
    ) -> bool:
        """Sections in blocks.

        Threads' shares are whole batches, so that no two write to the same group or byte.
        """
        decay = update.decay if update.keeps else ONE
        parts = [(plan, scopes, at) for plan, scopes in self._batched for at in scopes.cuts(threads())]
        done = [(0, 0, 0)] * len(parts)
        # Put together here: another thread has nothing of what that takes in its cache.
        calls = [
            partial(
                fused.select_and_write,
                update.values, update.kind, update.weight, update.work, update.keeps, decay,
                scopes.starts[at], scopes.sizes[at], scopes.keeps[at], scopes.bases[at], scopes.outs[at],
                found, words, max(1, _FEW // plan.block), plan.step, plan.kept_at, plan.low,
                body[plan.low_at : plan.high_at], *_upper_part(plan, scopes, at, body),
                plan.ends, plan.shifts, plan.form, plan.width, plan.bump, plan.stochastic,
                *counter_key(plan, key, rounding=True),
                body[plan.scales_at : plan.values_at], body[plan.values_at : plan.end],
            )
            for plan, scopes, at in parts
        ]  # fmt: skip

        def one(i: int) -> None:
            done[i] = calls[i]()

        def take_back() -> None:
            for (plan, scopes, at), (whole, more, written) in zip(parts, done, strict=True):
                mine = slice(scopes.outs[at.start], written)
                update.work[found[mine].astype(np.int64) + plan.shifts[0]] = (
                    words[mine].view(np.float32) * decay
                )
                scopes.take_off(update, at, whole, more, decay)

        run_weighed([(at.stop - at.start, partial(one, i)) for i, (_, _, at) in enumerate(parts)])
        undo.append(take_back)
        return all(whole == at.stop - at.start for (_, _, at), (whole, _, _) in zip(parts, done, strict=True))

    def _select_whole(self, update: Update, found: np.ndarray, words: np.ndarray, undo: Undo) -> bool:
        for plan in self._whole:
            selection = WholeSelection(plan, update, self.dtype)
            undo.append(selection.undo)
            mine = slice(plan.kept_at, plan.kept_at + plan.count)
            if not selection(found[mine], words[mine]):
                return False
        return True

    def _write_narrow(self, update: Update, key: Key, body: np.ndarray, undo: Undo) -> bool:
        """Dense sections in one pass; the residual is undone by what was written."""
        parts = [(plan, begin, end) for plan in self._narrow for begin, end in plan.items()]
        done = [0] * len(parts)
        cuts = shares([end - begin for _, begin, end in parts], threads()) if parts else []

        def some(at: slice) -> None:
            for i in range(at.start, at.stop):
                plan, begin, end = parts[i]
                shift = int(plan.shifts[0])
                values = update.values[begin + shift : end + shift]
                residual = update.work[begin + shift : end + shift] if update.keeps else _EMPTY
                done[i] = write.write_dense(
                    values, update.kind, update.weight, residual, update.keeps, update.decay,
                    plan.form, plan.width, plan.bump, plan.stochastic, *counter_key(plan, key, rounding=True),
                    begin, body[plan.scales_at : plan.values_at], body[plan.values_at : plan.end],
                )  # fmt: skip
                if done[i] < end - begin:
                    return

        run([partial(some, at) for at in cuts])

        def take_back() -> None:
            for (plan, begin, _), n in zip(parts, done, strict=True):
                at = begin + int(plan.shifts[0])
                c = np.empty(n, np.float32)
                scales, data = body[plan.scales_at : plan.values_at], body[plan.values_at : plan.end]
                read.read_values(scales, data, plan.form, plan.width, begin, begin + n, c)
                update.work[at : at + n] /= update.decay
                update.work[at : at + n] += c
                update.take_off([(at, at + n)])

        undo.append(take_back)
        return all(n == end - begin for (_, begin, end), n in zip(parts, done, strict=True))

    def _write_kept(
        self, update: Update, key: Key, body: np.ndarray, found: np.ndarray, words: np.ndarray
    ) -> None:
        """Positions, scales and values of what was kept, and what of it the residual keeps back."""
        residual = update.work if update.keeps else _EMPTY
        kept = words.view(np.float32)
        tasks: list[tuple[int, Callable[[], None]]] = []

        def high(plan: SectionPlan) -> None:
            mine = found[plan.kept_at : plan.kept_at + plan.count]
            positions.write_all_high(mine, plan.low, body[plan.high_at : plan.scales_at])

        def item(plan: SectionPlan, begin: int, end: int) -> None:
            if plan.sparse:
                at = slice(plan.kept_at + begin, plan.kept_at + end)
                x, mine = kept[at], found[at]
                if not plan.drawn:
                    positions.write_low(mine, plan.low, begin, body[plan.low_at : plan.high_at])
            else:
                shift = int(plan.shifts[0])
                x, mine = update.work[begin + shift : end + shift], found[:0]
            write.write_item(
                x, mine, plan.ends, plan.shifts, residual, update.decay,
                plan.form, plan.width, plan.bump, plan.stochastic, *counter_key(plan, key, rounding=True),
                begin, body[plan.scales_at : plan.values_at], body[plan.values_at : plan.end], -1,
            )  # fmt: skip

        for plan in self._later:
            if plan.sparse and not plan.drawn:
                tasks.append((plan.count // _MARKED, partial(high, plan)))
            tasks += [(end - begin, partial(item, plan, begin, end)) for begin, end in plan.items()]
        run_weighed([(weight + _TASK, task) for weight, task in tasks])


class _Scopes:
    """The selection scopes of sections that one thread at a time sees to, as arrays."""

    def __init__(self, plans: Sequence[SectionPlan], batch: int = 1) -> None:
        """`batch`: so many stay together."""
        self._batch = batch
        rows = [_scope_rows(plan) for plan in plans]
        columns = [np.concatenate(column) for column in zip(*rows, strict=True)] if rows else []
        if not columns:
            columns = [np.zeros(0, np.int64)] * 5
        self.starts, self.sizes, self.keeps, self.bases, self.outs = columns
        self._cuts: dict[int, list[slice]] = {}

    def __len__(self) -> int:
        return len(self.sizes)

    def cuts(self, count: int) -> list[slice]:
        """For so many threads; cut once, as that takes as long as selecting from a thousandth of them."""
        if count not in self._cuts:
            firsts = range(0, len(self.sizes), self._batch)
            weights = [int(self.sizes[first : first + self._batch].sum()) for first in firsts]
            self._cuts[count] = [
                slice(at.start * self._batch, min(at.stop * self._batch, len(self.sizes)))
                for at in shares(weights, count)
            ]
        return self._cuts[count]

    def take_off(self, update: Update, at: slice, whole: int, more: int, decay: np.float32) -> None:
        """Undo the sum over the first `whole` scopes of a cut, and `more` elements of the next one."""
        starts, ends = self.starts[at], self.starts[at] + self.sizes[at]
        update.take_off(zip(starts[:whole], ends[:whole], strict=True), decay)
        update.take_off((start, start + more) for start in starts[whole : whole + 1])


def _upper_part(plan: SectionPlan, scopes: _Scopes, at: slice, body: np.ndarray) -> tuple[int, np.ndarray]:
    """Of the positions' upper bits the first that scopes of a cut write, and their bytes: whole ones."""
    firsts = [
        (int(scopes.bases[scope]) >> plan.low) + int(scopes.outs[scope]) - plan.kept_at
        for scope in (at.start, at.stop)
        if scope < len(scopes.bases)
    ]
    begin = plan.high_at + firsts[0] // 8
    end = plan.high_at + firsts[1] // 8 if len(firsts) > 1 else plan.scales_at
    return firsts[0], body[begin:end]


def _scope_rows(plan: SectionPlan) -> tuple[np.ndarray, ...]:
    firsts, sizes, keeps = plan.scopes()
    outs = plan.kept_at + np.cumsum(keeps) - keeps
    return firsts + int(plan.shifts[0]), sizes, keeps, firsts, outs
