"""Which elements of a lane travel: host side of `kernels.select` and `kernels.blocks`.

In scopes larger than a block: a sample gives a threshold that should be some 10 % low; one pass collects
what lies above it; the k-th largest is found exactly among those, eight bits at a time; ties go to the lower
index. A scope for which the sample was misleading (too few or too many candidates: constants, mostly zeros)
is marked as failed, which the host sees once the rest has run without effect; it then has such scopes
searched whole.
"""

from dataclasses import dataclass

import torch

from geosim.policy.select import RandomK
from runtime.codec.cuda.kernels import blocks as block_kernels
from runtime.codec.cuda.kernels import rank
from runtime.codec.cuda.kernels import select as kernels
from runtime.codec.cuda.launch import launch
from runtime.codec.cuda.plan import Lane
from runtime.codec.cuda.tables import (
    CHUNK,
    GUESS,
    REGION,
    ROOM,
    RUN,
    SAMPLES,
    SCOPE,
    TAKE,
    TAKEN,
    TILE,
    Tables,
)

# Candidates of a tile that are looked at together.
STEP = 256
# Bits of a round's status.
NOT_FINITE, MISLED = 1, 2


@dataclass(frozen=True)
class Source:
    """Where u = weight * values + residual comes from; the residual may be None, its decay is then 1."""

    values: torch.Tensor
    residual: torch.Tensor | None
    weight: float
    decay: float

    @property
    def pointers(self) -> tuple[torch.Tensor, torch.Tensor, float]:
        """(values, residual or what stands for it, weight) as kernels take them."""
        return self.values, self.values if self.residual is None else self.residual, self.weight

    @property
    def feedback(self) -> bool:
        """Whether there is a residual."""
        return self.residual is not None


class Selection:
    """One lane's choice in one round.

    Attributes:
        chosen: u of what travels, fp32 [lane.count], in order (without a source: empty).
        offsets: where in the fragment it lies [lane.count], int32, or int64 from 2^31 elements on.
        bad: tiles that are not finite, int8 [tiles]; their residual is untouched.
        searched: whether there are scopes that the sample misled.
    """

    def __init__(
        self,
        lane: Lane,
        tables: Tables,
        source: Source | None,
        words: torch.Tensor,
        status: torch.Tensor,
        numel: int,
    ) -> None:
        self.lane, self.tables, self.words, self.status = lane, tables, words, status
        device = status.device
        self._read, self._drawn = source is not None, isinstance(lane.select, RandomK)
        self._source = source or Source(torch.empty(0, device=device), None, 1.0, 1.0)
        self._index = torch.int32 if numel < 1 << 31 else torch.int64
        self.chosen = torch.empty(lane.count if self._read else 0, device=device)
        self.offsets = torch.empty(lane.count, dtype=self._index, device=device)
        self.bad = torch.zeros(len(tables.tiles), dtype=torch.int8, device=device)
        self.searched = False

    def blocks(self) -> None:
        """First part for small blocks: u, what travels of each, decay * u into the residual."""
        lane, source = self.lane, self._source
        columns = 1 << (lane.block - 1).bit_length()
        launch(
            block_kernels.blocks, len(self.tables.tiles), *source.pointers, source.decay, self.tables.tiles,
            self.tables.sections, self.words, self.chosen, self.offsets, self.bad, self.status,
            BLOCK=lane.block, TAKE=lane.taken, FEEDBACK=source.feedback, DECAY=source.decay != 1.0,
            READ=self._read, DRAWN=self._drawn, EVEN=lane.even, ROWS=max(1, TILE // columns),
            COLUMNS=columns, warps=4,
        )  # fmt: skip

    def code(self, body: torch.Tensor) -> None:
        """Second part for small blocks: their positions into a body, int32 words."""
        if self.lane.positions:
            launch(
                block_kernels.code_positions, len(self.tables.values), self.offsets, self.tables.values,
                self.tables.sections, body, TILE=CHUNK,
            )  # fmt: skip

    def collect(self) -> None:
        """Larger scopes, first part: u into the residual, candidates; the status tells if they will do."""
        lane, tables, source, device = self.lane, self.tables, self._source, self.status.device
        scopes = tables.scopes
        self.direct = scopes[:, ROOM] == 0
        self._always = bool(torch.any(lane.tables.scopes[:, ROOM] == 0))
        thresholds = scopes[:, GUESS].to(torch.int32) if self._drawn else self._threshold()
        self._counts = torch.zeros(len(scopes), dtype=self._index, device=device)
        self._chunks = torch.zeros((len(tables.tiles), 2), dtype=self._index, device=device)
        self._records = torch.empty(lane.room, dtype=torch.int32, device=device)
        self._places = torch.empty(lane.room, dtype=torch.int16, device=device)
        launch(
            kernels.stream, len(tables.tiles), *source.pointers, tables.tiles, scopes, self.words, thresholds,
            self._counts, self._records, self._places, self._chunks, self.bad, self.status,
            FEEDBACK=source.feedback, READ=self._read, DRAWN=self._drawn, COLLECT=lane.room > 0,
            EVEN=lane.even, TILE=TILE, warps=4,
        )  # fmt: skip
        self._failed = ~self.direct & ((self._counts < scopes[:, TAKE]) | (self._counts > scopes[:, ROOM]))
        self.status |= MISLED * self._failed.any()

    def search_failed(self) -> None:
        """Have scopes whose sample was misleading searched whole, until `searched` is False again."""
        self.direct |= self._failed
        self.searched = True

    def choose(self, body: torch.Tensor) -> None:
        """Larger scopes, second part: find the k-th largest, put what travels in order, write positions.

        Nothing happens where the status is not 0.
        """
        tables, source = self.tables, self._source
        kth, missing = self._kth()
        shared = (
            *source.pointers, tables.tiles, tables.scopes, self.words, self._records, self._places,
            self._chunks, self.direct.to(torch.int8), kth, self.status,
        )  # fmt: skip
        tallies = torch.empty_like(self._chunks)
        meta = {"DRAWN": self._drawn, "FEEDBACK": source.feedback, "STEP": STEP}
        launch(kernels.tally, len(tables.tiles), *shared, tallies, **meta)
        scope = tables.tiles[:, SCOPE].long()
        tied = tallies[:, 1]
        before = tied.cumsum(0, dtype=self._index) - tied
        before -= before[tables.first_tiles[scope]]
        ties = torch.minimum((missing[scope].to(self._index) - before).clamp_(min=0), tied)
        sent = tallies[:, 0] + ties
        starts = torch.stack([sent.cumsum(0, dtype=self._index) - sent, ties], dim=1)
        launch(
            kernels.place, len(tables.tiles), *shared[:5], tables.sections, *shared[5:], starts, self.chosen,
            self.offsets, body, READ=self._read, POSITIONS=self.lane.positions and self._read, **meta,
        )  # fmt: skip

    def _threshold(self) -> torch.Tensor:
        """Magnitude bits [scopes] that should have about as many elements above them as there is room for."""
        lane, tables, source = self.lane, self.tables, self._source
        keys = torch.empty(lane.samples, dtype=torch.int32, device=self.status.device)
        launch(
            rank.sample, len(tables.draws), *source.pointers, tables.draws, tables.scopes,
            tables.sections, tables.spans, keys, FEEDBACK=source.feedback, STEPS=lane.steps,
            RUNS=TILE // RUN, RUN=RUN, warps=16,
        )  # fmt: skip
        found = torch.zeros(len(tables.scopes), dtype=torch.int32, device=keys.device)
        wanted = tables.scopes[:, GUESS].clone()
        self._descend(tables.draws, keys, tables.scopes[:, TAKEN].contiguous(), SAMPLES, False, found, wanted)
        return found

    def _kth(self) -> tuple[torch.Tensor, torch.Tensor]:
        """The keys of the k-th largest [scopes], int32 bits; how many of those that equal it travel."""
        tables, scopes = self.tables, self.tables.scopes
        found = torch.zeros(len(scopes), dtype=torch.int32, device=scopes.device)
        wanted = scopes[:, TAKE].clone()
        ends = torch.minimum(self._counts.long(), scopes[:, ROOM])
        self._descend(tables.finds, self._records, ends, REGION, False, found, wanted)
        if self._always or self.searched:
            found.masked_fill_(self.direct, 0)
            wanted.copy_(torch.where(self.direct, scopes[:, TAKE], wanted))
            self._descend(tables.tiles, self._records, ends, REGION, True, found, wanted)
        return found, wanted

    def _descend(
        self,
        programs: torch.Tensor,
        records: torch.Tensor,
        ends: torch.Tensor,
        column: int,
        direct: bool,
        found: torch.Tensor,
        wanted: torch.Tensor,
    ) -> None:
        if not len(programs):
            return
        bins = torch.zeros(len(ends) * 256, dtype=self._index, device=ends.device)
        marks = self.direct.to(torch.int8)
        for shift in (24, 16, 8, 0):
            launch(
                rank.histogram, len(programs), *self._source.pointers, records, programs,
                self.tables.scopes, ends, marks, self.words, found, bins, shift, DIRECT=direct,
                DRAWN=self._drawn, FEEDBACK=self._source.feedback, COLUMN=column, TILE=TILE, warps=8,
            )  # fmt: skip
            launch(rank.descend, len(ends), bins, found, wanted, shift)
