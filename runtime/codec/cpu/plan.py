"""What is known of a fragment's sections before any data: sizes, offsets, and how the work is cut up."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd, lcm

import numpy as np

from geosim.policy.codec import kept_in_section, position_bits
from geosim.policy.maths import Section
from geosim.policy.quantize import SCALE_BYTES
from geosim.policy.select import Dense, RandomK, kept
from runtime.codec.bits import packed_bytes
from runtime.codec.cpu.forms import AS_FP16, NAMES, RUN

ITEM = 1 << 16
_STREAMED_ITEM = 1 << 18
LARGE = 1 << 20
_BATCH = (
    1 << 20
)  # elements: where threads' shares would have to be longer, blocks are not written as they come
_BATCHED_FROM = 1 << 16  # elements: smaller sections stay in cache anyway


@dataclass(frozen=True)
class SectionPlan:
    """One section of a fragment's payload.

    Attributes:
        number, section: which, and what it is.
        numel, count: its elements, and how many of them travel.
        form, width, bump, stochastic: how values are written, as the kernels take it.
        low, upper: bits of each position that are packed, and bits of the vector of the rest; 0 without.
        low_at, high_at, scales_at, values_at, end: offsets into the body.
        block, keep: elements of a selection block, and how many each keeps; 0 and 1 where there are none.
        kept_at: where among all sparse sections' values this one's begin.
        ends, shifts: of its spans: the position after the last, and what leads from a position to the
            fragment's element.
    """

    number: int
    section: Section
    numel: int
    count: int
    form: int
    width: int
    bump: bool
    stochastic: bool
    low: int
    upper: int
    low_at: int
    high_at: int
    scales_at: int
    values_at: int
    end: int
    block: int
    keep: int
    kept_at: int
    ends: np.ndarray
    shifts: np.ndarray

    @property
    def sparse(self) -> bool:
        """Whether values are gathered from the elements: only some travel, or they lie in several spans."""
        return self.count < self.numel or len(self.section.spans) > 1

    @property
    def drawn(self) -> bool:
        """Whether positions are known before any data and do not travel: drawn, or all."""
        return self.sparse and (isinstance(self.section.select, RandomK) or self.count == self.numel)

    @property
    def whole(self) -> bool:
        """Whether one top-k goes over more than a single thread should see to."""
        return self.sparse and not self.drawn and not self.block and (
            self.numel > LARGE or len(self.section.spans) > 1
        )  # fmt: skip

    @property
    def wide(self) -> bool:
        """Whether a group's values are too many to stay in cache until their scale is known."""
        return self.form > AS_FP16 and self.width > RUN

    @property
    def step(self) -> int:
        """Values that whole groups and bytes hold."""
        return lcm(8, self.width if self.form > AS_FP16 else 1)

    @property
    def batch(self) -> int:
        """Blocks whose part of the payload is whole groups and bytes: threads' shares may begin with them.

        0: the section is not selected and written in one go.
        """
        if not self.block or self.drawn or self.numel < _BATCHED_FROM:
            return 0
        bits = 8 << self.low
        blocks = lcm(self.step // gcd(self.step, self.keep), bits // gcd(bits, self.block))
        return blocks if blocks * self.block <= _BATCH else 0

    @property
    def scale_count(self) -> int:
        """Groups."""
        return 0 if self.form <= AS_FP16 else -(-self.count // self.width)

    def items(self) -> list[tuple[int, int]]:
        """Ranges of travelling values: whole groups, and multiples of 8 but for the last."""
        # Dense ones are streamed through; what is selected should stay in a cache.
        size = ITEM if self.sparse or self.wide else _STREAMED_ITEM
        step = max(8, size // self.width // 8 * 8) * self.width if self.form > AS_FP16 else size
        return [(begin, min(self.count, begin + step)) for begin in range(0, self.count, step)]

    def scopes(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Of each scope of a selection: first position, elements, and how many of them are kept; int64."""
        block = self.block or self.numel
        firsts = np.arange(0, self.numel, block, dtype=np.int64)
        sizes = np.minimum(block, self.numel - firsts)
        keeps = np.full(len(firsts), self.keep, np.int64)
        keeps[-1] = self.count - self.keep * (len(firsts) - 1)
        return firsts, sizes, keeps


def make_plan(sections: Sequence[Section]) -> tuple[SectionPlan, ...]:
    """Plans of a fragment's sections, in the order in which they travel."""
    out, at, kept_at = [], 0, 0
    for number, section in enumerate(sections):
        numel, how, keep = section.numel, section.quantize, 1
        count = kept_in_section(section.select, numel)
        some = count < numel
        low, upper = position_bits(numel, count) if some and section.select.kind == "topk" else (0, 0)
        low_at = at
        high_at = low_at + packed_bytes(count, low)
        scales_at = high_at + packed_bytes(upper, 1)
        values_at = scales_at + SCALE_BYTES * how.scale_count(count)
        at = values_at + packed_bytes(count, how.bits)
        group, chosen = getattr(how, "group", 1), section.select
        block = 0
        if some and not isinstance(chosen, Dense) and isinstance(chosen.scope, int):
            block, keep = chosen.scope, kept(chosen.scope, chosen.ratio)
        spans = np.array(section.spans, np.int64).reshape(-1, 2)
        ends = np.cumsum(spans[:, 1] - spans[:, 0])
        out.append(
            SectionPlan(
                number, section, numel, count,
                form=NAMES.index(how.kind),
                width=max(1, count if group == "section" else min(int(group), count)),
                bump=group != "section",
                stochastic=getattr(how, "rounding", "nearest") == "stochastic",
                low=low, upper=upper, low_at=low_at, high_at=high_at,
                scales_at=scales_at, values_at=values_at, end=at,
                block=block, keep=keep,
                kept_at=kept_at,
                ends=ends,
                shifts=spans[:, 1] - ends,
            )
        )  # fmt: skip
        kept_at += count if out[-1].sparse else 0
    return tuple(out)
