"""What kernels read: tables of tiles, sections and scopes, by the column numbers below."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Literal

import numpy as np
import torch

Method = Literal["fused", "staged", "blocks", "whole"]

# Elements that one program of a streaming kernel handles, and of one that handles what travels.
TILE, CHUNK = 4096, 1024
# Selection blocks up to this many elements are handled by one program each.
LARGEST_BLOCK = 8192
# Consecutive elements of a sample.
RUN = 16
# Bytes of an Elias-Fano bit vector that one program decodes.
VECTOR = 256

(
    START,
    NUMEL,
    COUNT,
    KEPT,
    LOW,
    LOW_AT,
    BITS_AT,
    SCALE_AT,
    VALUE_AT,
    ROW,
    FIRST_SPAN,
    SPANS,
    SIZE,
    LAST,
) = range(14)
SECTION_COLUMNS = 14
AT, POS, LENGTH, SECTION, SCOPE = range(5)
TILE_COLUMNS = 5
OWNER, BEGIN, WIDTH, TAKE, GUESS, SAMPLES, TAKEN, STRIDE, REGION, ROOM = range(10)
SCOPE_COLUMNS = 10


@dataclass(frozen=True)
class Tables:
    """One lane's tables, int64 [rows, columns]; the tiles int32 below 2^31 elements.

    Attributes:
        sections: by the section columns: offset of the first value, elements, how many travel, how many
            travel before them in the lane, low bits a position, byte offsets of low bits, bit vector, scales
            and values in the body, scales before them in the lane, first span and number of spans, members of
            a scale group as a power of two, how many travel of a last partial block.
        spans: (offset in the fragment's values, position in the section).
        tiles: at most TILE elements (blocks: whole blocks) of one span and one scope each.
        scopes: what a selection is made of on its own, by the scope columns: section, first position,
            elements, how many are taken, how many of the samples (random-k: the threshold), samples before
            them, samples, distance of runs, candidates before them, room for candidates (0: none collected).
        values: (section, first) of each CHUNK of what travels.
        rows: (section, first) of scale groups, as many as a program makes.
        scales: (section, first) of each CHUNK scales.
        parts: (section, scale group, first) of each TILE of scale groups too large for one program.
        draws: (scope, first) of each TILE samples.
        finds: (scope, first) of each TILE candidates.
        vectors: (section, first byte) of each VECTOR bytes of bit vectors.
        first_tiles: first tile of each scope [scopes].
        first_vectors: first row of `vectors` of each section, and their number [sections + 1].
    """

    sections: torch.Tensor
    spans: torch.Tensor
    tiles: torch.Tensor
    scopes: torch.Tensor
    values: torch.Tensor
    rows: torch.Tensor
    scales: torch.Tensor
    parts: torch.Tensor
    draws: torch.Tensor
    finds: torch.Tensor
    vectors: torch.Tensor
    first_tiles: torch.Tensor
    first_vectors: torch.Tensor

    def to(self, device: torch.device) -> "Tables":
        """A copy on a device."""
        return replace(self, **{f.name: getattr(self, f.name).to(device) for f in fields(self)})


def split(counts: Sequence[int], chunk: int) -> np.ndarray:
    """(owner, first) of each chunk of counts of things, int64 [chunks, 2]."""
    out = [np.zeros((0, 2), np.int64)]
    for i, count in enumerate(counts):
        first = np.arange(0, count, chunk, dtype=np.int64)
        out.append(np.stack([np.full_like(first, i), first], axis=1))
    return np.concatenate(out)
