"""What a body's sections become on a GPU: lanes that share kernels, and the tables that those read.

A *lane* is all sections that are handled by the same launches. Everything here follows from the sections
alone and is made once.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from geosim.policy.codec import kept_in_section, position_bits
from geosim.policy.maths import Section
from geosim.policy.quantize import SCALE_BYTES, Cast, Quantize
from geosim.policy.select import Dense, RandomK, TopK, kept
from runtime.codec.bits import packed_bytes
from runtime.codec.cuda.scopes import block_of, cut
from runtime.codec.cuda.tables import (
    AT,
    CHUNK,
    COUNT,
    LARGEST_BLOCK,
    LENGTH,
    POS,
    ROOM,
    SCOPE,
    TAKEN,
    TILE,
    VALUE_AT,
    VECTOR,
    Method,
    Tables,
    split,
)


@dataclass(frozen=True)
class Lane:
    """Sections that share kernels.

    Attributes:
        method: `fused`: all values travel, one pass; `staged`: all travel, their scales need a pass of their
            own; `blocks`: one program selects a block; `whole`: selection in scopes larger than that.
        numbers: of the sections in the body.
        select, quantize: of all of them.
        positions: whether positions travel.
        count: values that travel.
        rows: scales.
        samples, room: of all scopes together.
        steps: halvings that find a position's span.
        even: the alignment in elements that all tiles share, 16 or 1.
        aligned: what the byte offsets of values in the body share: 16, the size of a value, or 0.
        tables: on the CPU.
    """

    method: Method
    numbers: tuple[int, ...]
    select: Dense | TopK | RandomK
    quantize: Quantize
    positions: bool
    count: int
    rows: int
    samples: int
    room: int
    steps: int
    even: int
    aligned: int
    tables: Tables

    @property
    def group(self) -> int:
        """Values a scale; 0 where one serves the section, or there are none."""
        return group_of(self.quantize)

    @property
    def dithers(self) -> bool:
        """Whether values are rounded stochastically."""
        return getattr(self.quantize, "rounding", "nearest") == "stochastic"

    @property
    def block(self) -> int:
        """The selection block of `blocks`."""
        assert not isinstance(self.select, Dense)
        assert isinstance(self.select.scope, int)
        return self.select.scope

    @property
    def taken(self) -> int:
        """How many of a whole selection block travel."""
        assert not isinstance(self.select, Dense)
        return kept(self.block, self.select.ratio)


def group_of(quantize: Quantize) -> int:
    """Values a scale; 0 where one serves the section, or there are none."""
    return 0 if isinstance(quantize, Cast) or quantize.group == "section" else quantize.group


def rows_per_program(group: int) -> int:
    """Scale groups that one program handles: those of up to TILE values; larger ones are split."""
    return max(1, CHUNK >> (group - 1).bit_length()) if 0 < group <= TILE else CHUNK


def make_lanes(sections: Sequence[Section]) -> tuple[Lane, ...]:
    """The lanes of a body, in no particular order; sections without elements are in none."""
    members: dict[tuple[Method, Quantize], list[int]] = {}
    for number, section in enumerate(sections):
        if section.numel:
            members.setdefault((_method(section), section.quantize), []).append(number)
    offsets = _offsets(sections)
    return tuple(
        _make_lane(method, numbers, [sections[n] for n in numbers], [offsets[n] for n in numbers])
        for (method, _), numbers in members.items()
    )


def _method(section: Section) -> Method:
    how, group = section.select, group_of(section.quantize)
    if kept_in_section(how, section.numel) < section.numel:
        return "blocks" if 0 < block_of(how) <= LARGEST_BLOCK else "whole"
    if len(section.spans) > 1:
        return "whole"
    within = isinstance(section.quantize, Cast) or (0 < group <= TILE and group & (group - 1) == 0)
    return "fused" if within else "staged"


def _travels(section: Section) -> bool:
    """Whether a section's positions travel."""
    return isinstance(section.select, TopK) and kept_in_section(section.select, section.numel) < section.numel


def _offsets(sections: Sequence[Section]) -> list[tuple[int, ...]]:
    """Byte offsets of each section's low bits, bit vector, scales and values."""
    out: list[tuple[int, ...]] = []
    at = 0
    for section in sections:
        count = kept_in_section(section.select, section.numel)
        sizes = [0, 0, SCALE_BYTES * section.quantize.scale_count(count)]
        if _travels(section):
            low, upper = position_bits(section.numel, count)
            sizes[:2] = packed_bytes(count, low), packed_bytes(upper, 1)
        starts = (at, at + sizes[0], at + sum(sizes[:2]), at + sum(sizes))
        out.append(starts)
        at = starts[-1] + packed_bytes(count, section.quantize.bits)
    return out


def _make_lane(
    method: Method, numbers: list[int], sections: list[Section], offsets: list[tuple[int, ...]]
) -> Lane:
    how, quantize = sections[0].select, sections[0].quantize
    held, spans = _held(sections, offsets)
    tiles, scopes = cut(method, sections)
    group = group_of(quantize)
    counts = held[:, COUNT].tolist()
    scales = [quantize.scale_count(count) for count in counts]
    upper = [
        packed_bytes(position_bits(section.numel, count)[1], 1) if _travels(section) else 0
        for section, count in zip(sections, counts, strict=True)
    ]
    vectors = split(upper, VECTOR)
    narrow = np.int32 if tiles[:, [AT, POS]].max() < (1 << 31) - TILE else np.int64
    tables: list[np.ndarray] = [
        held,
        spans,
        tiles.astype(narrow),
        scopes,
        split(counts, CHUNK),
        split(scales, rows_per_program(group)),
        split(scales, CHUNK),
        np.zeros((0, 3), np.int64) if 0 < group <= TILE or not any(scales) else _parts(counts, group),
        split(scopes[:, TAKEN].tolist(), TILE),
        split(scopes[:, ROOM].tolist(), TILE),
        vectors,
        np.searchsorted(tiles[:, SCOPE], np.arange(len(scopes))),
        np.searchsorted(vectors[:, 0], np.arange(len(sections) + 1)),
    ]
    return Lane(
        method,
        tuple(numbers),
        how,
        quantize,
        _travels(sections[0]),
        sum(counts),
        sum(scales),
        int(scopes[:, TAKEN].sum()),
        int(scopes[:, ROOM].sum()),
        (max(len(section.spans) for section in sections) - 1).bit_length(),
        1 if np.any(tiles[:, [AT, LENGTH]] % 16) else 16,
        _alignment(held[:, VALUE_AT], quantize.bits),
        Tables(*(torch.from_numpy(np.ascontiguousarray(table)) for table in tables)),
    )


def _held(sections: list[Section], offsets: list[tuple[int, ...]]) -> tuple[np.ndarray, np.ndarray]:
    """The tables of sections and of their spans."""
    rows: list[tuple[int, ...]] = []
    spans: list[tuple[int, int]] = []
    kept_before = scales_before = 0
    for section, places in zip(sections, offsets, strict=True):
        how, n = section.select, section.numel
        count = kept_in_section(how, n)
        low, _ = position_bits(n, count)
        members = min(group_of(section.quantize) or count, count)
        size = 1 << (members - 1).bit_length()
        block = block_of(how)
        last = kept(n % block, how.ratio) if block and not isinstance(how, Dense) else 0
        first_span, at = len(spans), 0
        for start, stop in section.spans:
            spans.append((start, at))
            at += stop - start
        start = section.spans[0][0]
        spread = (first_span, len(section.spans), size, last)
        rows.append((start, n, count, kept_before, low, *places, scales_before, *spread))
        kept_before += count
        scales_before += section.quantize.scale_count(count)
    return np.array(rows, np.int64), np.array(spans, np.int64)


def _alignment(offsets: np.ndarray, bits: int) -> int:
    if not np.any(offsets % 16):
        return 16
    return 0 if bits < 8 or np.any(offsets % (bits // 8)) else bits // 8


def _parts(counts: Sequence[int], group: int) -> np.ndarray:
    """(section, scale group, first of its values) of each TILE values of a group, int64 [parts, 3]."""
    out = []
    for s, count in enumerate(counts):
        for row, begin in enumerate(range(0, count, group or count)):
            first = np.arange(begin, min(begin + (group or count), count), TILE, dtype=np.int64)
            out.append(np.stack([np.full_like(first, s), np.full_like(first, row), first], axis=1))
    return np.concatenate(out)
