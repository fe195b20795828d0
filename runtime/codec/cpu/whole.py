"""Exact top-k over a section too large for one thread: a sampled threshold, one pass, a fix-up.

The threshold is chosen a little low from a sample, so that one pass over memory adds the residual and
leaves a few candidates too many. Where the sample misled and too few reach it, further passes with lower
thresholds follow; the last one takes all.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import sqrt

import numpy as np

from runtime.codec.cpu import add, rank, select
from runtime.codec.cpu.plan import SectionPlan
from runtime.codec.cpu.update import Update
from runtime.codec.workers import run, shares, threads

RANGE = 1 << 19
_SAMPLED_FROM = 1 << 16
_SPARE = 1.1
_DEVIATIONS = 3.0
_LOWER = 3.0
_PAD = np.zeros(rank.LANES, np.uint32)

Candidates = tuple[np.ndarray, np.ndarray]  # positions [n], and the bits of u [n + 64]


def ranges(plan: SectionPlan) -> list[tuple[int, int]]:
    """A section's elements in the fragment, in pieces for threads."""
    out = []
    for start, stop in plan.section.spans:
        out += [(at, min(stop, at + RANGE)) for at in range(start, stop, RANGE)]
    return out


class WholeSelection:
    """One section's top-k."""

    def __init__(self, plan: SectionPlan, update: Update, dtype: type[np.integer]) -> None:
        """`dtype`: of positions."""
        self._plan = plan
        self._update = update
        self._dtype = dtype
        self._ranges = ranges(plan)
        sizes = [end - begin for begin, end in self._ranges]
        self._bases = np.cumsum([0, *sizes[:-1]]).tolist()
        self._cuts = shares(sizes, threads())
        self._written = [0] * len(self._ranges)

    def __call__(self, found_out: np.ndarray, words_out: np.ndarray) -> bool:
        """u into the update's room, and what is kept into the outputs [count]; False if not finite."""
        sample = self._sample()
        spare = 1.0
        while True:
            parts = self._collect(self._threshold(sample, spare), bool(self._written[-1]))
            if not self._finite:
                return False
            if sum(len(found) for found, _ in parts) >= self._plan.count:
                self._keep(parts, self._upper(sample), found_out, words_out)
                return True
            spare *= _LOWER

    def undo(self) -> None:
        """Take the sum back as far as it was written."""
        self._update.take_off(
            (begin, begin + n) for (begin, _), n in zip(self._ranges, self._written, strict=True)
        )

    @property
    def _finite(self) -> bool:
        return all(begin + n == end for (begin, end), n in zip(self._ranges, self._written, strict=True))

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
        parts: list[np.ndarray] = [_PAD] * len(self._ranges)

        def some(at: slice) -> None:
            for i in range(at.start, at.stop):
                begin, end = self._ranges[i]
                part = np.empty((end - begin) // select.SAMPLED * select.LINE + select.LINE, np.uint32)
                n = select.sample(
                    update.values[begin:end], update.kind, update.weight, update.work[begin:end],
                    update.keeps, self._bases[i] // select.SAMPLED, part,
                )  # fmt: skip
                parts[i] = part[:n]

        run([partial(some, at) for at in self._cuts])
        return np.concatenate([*parts, _PAD])

    def _collect(self, least: np.uint32, written: bool) -> list[Candidates]:
        """Candidates in ascending order of position."""
        update, count = self._update, self._plan.count
        results: list[list[Candidates]] = [[] for _ in self._cuts]

        def some(number: int, at: slice) -> None:
            ties = 0
            # Room for all of a range; what is never touched costs nothing.
            found, words = np.empty(RANGE, self._dtype), np.empty(RANGE, np.uint32)
            for i in range(at.start, at.stop):
                begin, end = self._ranges[i]
                n, more, self._written[i] = select.collect(
                    update.values[begin:end], update.kind, update.weight, update.work[begin:end],
                    update.keeps, written, least, max(0, count - ties), self._bases[i], found, words,
                )  # fmt: skip
                if self._written[i] < end - begin:
                    return
                ties += more
                results[number].append((found[:n].copy(), np.concatenate([words[:n], _PAD])))

        run([partial(some, number, at) for number, at in enumerate(self._cuts)])
        return [part for result in results for part in result]

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
    others = [_PAD] * len(parts)

    def below(i: int) -> None:
        found, words = parts[i]
        out = np.empty(len(found), np.uint32)
        others[i] = out[: rank.gather_below(words, len(found), add.MAGNITUDE, upper, out)]

    _share_out(below, len(parts))
    missing = count - sum(len(found) - len(other) for (found, _), other in zip(parts, others, strict=True))
    if missing <= 0:
        others, missing = [words[: len(found)] for found, words in parts], count
    words = np.concatenate([*others, _PAD])
    return np.uint32(rank.threshold_of(words, len(words) - len(_PAD), add.MAGNITUDE, missing))


def _share_out(work: Callable[[int], None], count: int) -> None:
    """Call work(0) to work(count - 1), each thread its share of them."""
    crew = min(count, threads())

    def some(first: int) -> None:
        for i in range(first, count, crew):
            work(i)

    run([partial(some, first) for first in range(crew)])
