"""Exact top-k over a section too large for one thread: a sampled threshold, one pass, a fix-up.

The threshold is chosen a little low from a sample, so that one pass over memory adds the residual and
leaves a few candidates too many. Where the sample misled and too few reach it, further passes with lower
thresholds follow; the last one takes all.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import sqrt
from typing import NamedTuple

import numpy as np

from runtime.codec.cpu import add, rank, select
from runtime.codec.cpu.lowlevel import LINE
from runtime.codec.cpu.plan import SectionPlan
from runtime.codec.cpu.scratch import Scratch
from runtime.codec.cpu.update import Update
from runtime.codec.workers import run, shares, threads

RANGE = 1 << 19
_SAMPLED_FROM = 1 << 16
_SPARE = 1.1
_DEVIATIONS = 3.0
_LOWER = 3.0
_ROOM = 1.3
_PART = 1 << 16
_PAD = np.zeros(rank.LANES, np.uint32)

Candidates = tuple[np.ndarray, np.ndarray]  # positions [n], and the bits of u [n], then zeros up to whole 64


class Piece(NamedTuple):
    """A range of the fragment's elements, and which position in the section the first one has."""

    begin: int
    end: int
    base: int


def ranges(plan: SectionPlan) -> list[tuple[int, int]]:
    """A section's elements in the fragment, in pieces for threads."""
    out = []
    for start, stop in plan.section.spans:
        out += [(at, min(stop, at + RANGE)) for at in range(start, stop, RANGE)]
    return out


def _parts(found: np.ndarray, words: np.ndarray, n: int) -> list[Candidates]:
    """n candidates in parts for threads; there is room for 64 words more."""
    words[n : n + rank.LANES] = 0
    starts = range(0, n, _PART)
    ends = [min(n, start + _PART) for start in starts]
    return [
        (found[start:end], words[start : start + rank.padded(end - start)])
        for start, end in zip(starts, ends, strict=True)
    ]


class WholeSelection:
    """One section's top-k."""

    def __init__(self, plan: SectionPlan, update: Update, dtype: type[np.integer]) -> None:
        """`dtype`: of positions."""
        self._plan = plan
        self._update = update
        self._dtype = dtype
        self._pieces: list[Piece] = []
        self._cuts: list[slice] = []
        parts = ranges(plan)
        base = 0
        for at in shares([end - begin for begin, end in parts], threads()):
            first = len(self._pieces)
            for begin, end in parts[at]:
                if len(self._pieces) > first and self._pieces[-1].end == begin:
                    self._pieces[-1] = self._pieces[-1]._replace(end=end)
                else:
                    self._pieces.append(Piece(begin, end, base))
                base += end - begin
            self._cuts.append(slice(first, len(self._pieces)))
        self._written = [0] * len(self._pieces)

    def __call__(self, found_out: np.ndarray, words_out: np.ndarray) -> bool:
        """u into the update's room, and what is kept into the outputs [count]; False if not finite."""
        sample = self._sample()
        room = int(_ROOM * self._plan.count) // len(self._cuts) + add.BLOCK + rank.LANES
        rooms: list[tuple[int, type[np.generic]]] = [(room, self._dtype), (room, np.uint32)]
        scratch = Scratch(*(rooms * len(self._cuts)))
        try:
            return self._select(sample, scratch.arrays, found_out, words_out)
        finally:
            scratch.give_back()

    def _select(
        self, sample: np.ndarray, held: list[np.ndarray], found_out: np.ndarray, words_out: np.ndarray
    ) -> bool:
        spare = 1.0
        while True:
            parts = self._collect(self._threshold(sample, spare), bool(self._written[-1]), held)
            if not self._finite:
                return False
            if sum(len(found) for found, _ in parts) >= self._plan.count:
                self._keep(parts, self._upper(sample), found_out, words_out)
                return True
            spare *= _LOWER

    def undo(self) -> None:
        """Take the sum back as far as it was written."""
        self._update.take_off(
            (piece.begin, piece.begin + n) for piece, n in zip(self._pieces, self._written, strict=True)
        )

    @property
    def _finite(self) -> bool:
        return all(piece.begin + n == piece.end for piece, n in zip(self._pieces, self._written, strict=True))

    def _threshold(self, sample: np.ndarray, spare: float) -> np.uint32:
        """A magnitude that a few more than are kept should reach; 0: all do."""
        n = len(sample) - rank.LANES
        expected = n * self._plan.count / self._plan.numel
        wanted = int(spare * max(_SPARE * expected, expected + _DEVIATIONS * sqrt(expected) + _DEVIATIONS))
        if wanted >= n:
            return np.uint32(0)
        return np.uint32(rank.threshold_of(sample, n, rank.ALL_BITS, max(1, wanted)))

    def _upper(self, sample: np.ndarray) -> np.uint32:
        """A magnitude that a few less than are kept should reach; the largest there is without a sample."""
        n = len(sample) - rank.LANES
        expected = n * self._plan.count / self._plan.numel
        wanted = int(min(expected / _SPARE, expected - _DEVIATIONS * sqrt(expected)))
        if wanted < 1:
            return add.MAGNITUDE
        return np.uint32(rank.threshold_of(sample, n, rank.ALL_BITS, wanted))

    def _sample(self) -> np.ndarray:
        """Magnitudes of a small share of the elements, and a pad."""
        if self._plan.numel <= _SAMPLED_FROM:
            return _PAD
        update = self._update
        parts: list[np.ndarray] = [_PAD] * len(self._pieces)

        def some(at: slice) -> None:
            for i in range(at.start, at.stop):
                begin, end, base = self._pieces[i]
                part = np.empty((end - begin) // select.SAMPLED * LINE + LINE, np.uint32)
                n = select.sample(
                    update.values[begin:end], update.kind, update.weight, update.work[begin:end],
                    update.keeps, base // select.SAMPLED, part,
                )  # fmt: skip
                parts[i] = part[:n]

        run([partial(some, at) for at in self._cuts])
        return np.concatenate([*parts, _PAD])

    def _collect(self, least: np.uint32, written: bool, held: list[np.ndarray]) -> list[Candidates]:
        """Candidates in ascending order of position; `held`: room for each thread's positions and words."""
        results: list[list[Candidates]] = [[] for _ in self._cuts]

        def some(number: int, at: slice) -> None:
            results[number] = self._collect_some(at, least, written, *held[2 * number : 2 * number + 2])

        run([partial(some, number, at) for number, at in enumerate(self._cuts)])
        return [part for result in results for part in result]

    def _collect_some(
        self, at: slice, least: np.uint32, written: bool, found: np.ndarray, words: np.ndarray
    ) -> list[Candidates]:
        """`_collect` of some pieces."""
        update, count = self._update, self._plan.count
        results: list[Candidates] = []
        ties = to = 0
        for i in range(at.start, at.stop):
            begin, end, base = self._pieces[i]
            done = 0
            while True:
                n, more, some = select.collect(
                    update.values[begin + done : end], update.kind, update.weight,
                    update.work[begin + done : end], update.keeps, written, least, max(0, count - ties),
                    base + done, found[to : -rank.LANES], words[to : -rank.LANES],
                )  # fmt: skip
                to, ties, done = to + n, ties + more, done + some
                self._written[i] = done
                if begin + done == end:
                    break
                if len(found) - rank.LANES - to >= add.BLOCK:  # not for want of room
                    return results
                results += _parts(found, words, to)
                # Room for all that is left of the piece; what is never touched costs nothing.
                room, to = end - begin - done + add.BLOCK + rank.LANES, 0
                found, words = np.empty(room, self._dtype), np.empty(room, np.uint32)
        return results + _parts(found, words, to)

    def _keep(
        self, parts: list[Candidates], upper: np.uint32, found_out: np.ndarray, words_out: np.ndarray
    ) -> None:
        """The largest of the candidates: a threshold over all, then each part on its own."""
        left, at = self._plan.count, 0
        least = _least(parts, upper, left)
        counts = [(0, 0)] * len(parts)
        places = [(0, 0, 0)] * len(parts)  # where each part's begin and end, and how many equal the threshold

        def count(i: int) -> None:
            found, words = parts[i]
            counts[i] = rank.counts(words, len(found), add.MAGNITUDE, least)

        def keep(i: int) -> None:
            (found, words), (begin, end, ties) = parts[i], places[i]
            rank.keep_above(
                found,
                words,
                len(found),
                add.MAGNITUDE,
                least,
                ties,
                found_out[begin:end],
                words_out[begin:end],
            )

        _share_out(count, len(parts))
        left -= sum(above for above, _ in counts)
        for i, (above, equal) in enumerate(counts):
            ties = min(left, equal)
            places[i] = at, at + above + ties, ties
            left, at = left - ties, at + above + ties
        _share_out(keep, len(parts))


def _least(parts: list[Candidates], upper: np.uint32, count: int) -> np.uint32:
    """What the `count` largest of all candidates reach, as `rank.threshold_of` has it.

    Args:
        upper: fewer than `count` should reach it, but most of those; then only the others need looking at.
    """
    sizes = [len(words) for _, words in parts]
    begins = np.cumsum([0, *sizes]).tolist()
    found_below = [0] * len(parts)
    scratch = Scratch((begins[-1] + rank.LANES, np.uint32))
    room = scratch.arrays[0]

    def below(i: int) -> None:
        found, words = parts[i]
        out = room[begins[i] : begins[i + 1]]
        found_below[i] = rank.gather_below(words, len(found), add.MAGNITUDE, upper, out)

    try:
        _share_out(below, len(parts))
        missing = count - (sum(len(found) for found, _ in parts) - sum(found_below))
        at = 0
        for i, (found, words) in enumerate(parts):
            # Where more than `count` reached `upper`, all need looking at.
            some = room[begins[i] :][: found_below[i]] if missing > 0 else words[: len(found)]
            room[at : at + len(some)] = some
            at += len(some)
        return np.uint32(rank.threshold_of(room, at, add.MAGNITUDE, missing if missing > 0 else count))
    finally:
        scratch.give_back()


def _share_out(work: Callable[[int], None], count: int) -> None:
    """Call work(0) to work(count - 1), each thread its share of them."""
    crew = min(count, threads())

    def some(first: int) -> None:
        for i in range(first, count, crew):
            work(i)

    run([partial(some, first) for first in range(crew)])
