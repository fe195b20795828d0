"""One encode on a device: what runs in which order."""

from collections.abc import Sequence
from typing import Any

import torch

from geosim.policy.maths.quantize import scale_limit, top_level
from geosim.policy.quantize import Cast
from runtime.codec.cuda.kernels import dense, read, values
from runtime.codec.cuda.launch import launch
from runtime.codec.cuda.plan import Lane, rows_per_program
from runtime.codec.cuda.selection import Selection, Source
from runtime.codec.cuda.tables import CHUNK, COUNT, POS, ROW, SECTION, SIZE, TILE, Tables


class Encoding:
    """Sections' bytes and residuals of one round.

    `start` reads every value once, writes what one pass can write and finds whether all is finite; `finish`
    does the rest and touches no residual where `status` is not 0. Both only queue work.

    Args:
        lanes, tables: of the body; tables on the device.
        source: what is encoded.
        words: of each lane, from `launch.encoding_words`, on the device.
        body_bytes: of the body.

    Attributes:
        status: int32 [1] on the device: 0, or NOT_FINITE, MISLED or both.
        body: uint8 on the device, as long as the body or a few bytes longer.
    """

    def __init__(
        self,
        lanes: Sequence[Lane],
        tables: Sequence[Tables],
        source: Source,
        words: Sequence[torch.Tensor],
        body_bytes: int,
    ) -> None:
        device = source.values.device
        self._source = source
        self.status = torch.zeros(1, dtype=torch.int32, device=device)
        self.words = torch.zeros(body_bytes // 4 + 2, dtype=torch.int32, device=device)
        self.body = self.words.view(torch.uint8)
        self._parts = [
            _Part(lane, table, source, drawn, self.status)
            for lane, table, drawn in zip(lanes, tables, words, strict=True)
        ]

    def start(self) -> None:
        """Every lane's pass over all values."""
        for part in self._parts:
            part.start(self.body)

    def finish(self) -> None:
        """What follows once all is known to be finite."""
        for part in self._parts:
            part.finish(self.words, self.body)

    def again(self) -> None:
        """`finish` once more, where a sample was misleading."""
        self.status.zero_()
        whole = [part.selection for part in self._parts if part.lane.method == "whole"]
        for selection in whole:
            selection.search_failed()
        self.finish()
        for selection in whole:
            selection.searched = False

    def undo(self) -> None:
        """Take `start` back: the residual is as before, to rounding."""
        if self._source.feedback:
            for part in self._parts:
                part.undo(self.body)


class _Part:
    """One lane of an encoding."""

    def __init__(
        self,
        lane: Lane,
        tables: Tables,
        source: Source,
        words: torch.Tensor,
        status: torch.Tensor,
    ) -> None:
        self.lane, self._tables, self._source, self._status = lane, tables, source, status
        how = lane.quantize
        self._scaled = not isinstance(how, Cast)
        self._dither = lane.dithers
        # What draws nothing is given some pointer.
        self._words, drawn = (words[0], words[1]) if len(words) else (status, status)
        self.selection = Selection(lane, tables, source, drawn, status, source.values.numel())
        self._scales = torch.empty(lane.rows, device=status.device)
        self._format: dict[str, Any] = {"KIND": how.kind, "LEVEL": top_level(how) * 1.0}
        self._limit = 1.0 if isinstance(how, Cast) else scale_limit(how)
        self._decay = source.feedback and source.decay != 1.0

    @property
    def _whole(self) -> bool:
        return self.lane.method == "whole"

    def start(self, body: torch.Tensor) -> None:
        if self.lane.method == "fused":
            self._fuse(body)
        elif self.lane.method == "blocks":
            self.selection.blocks()
        else:
            self.selection.collect()

    def finish(self, words: torch.Tensor, body: torch.Tensor) -> None:
        if self.lane.method == "fused":
            return
        if self.lane.method == "blocks":
            self.selection.code(words)
        if self._whole:
            self.selection.choose(words)
            if self._decay:
                launch(
                    dense.decayed, len(self._tables.tiles), self._source.residual, self._source.decay,
                    self._tables.tiles, self._status, EVEN=self.lane.even, TILE=TILE, warps=8,
                )  # fmt: skip
        if self._scaled:
            self._write_scales(body)
        self._write_values(body)

    def undo(self, body: torch.Tensor) -> None:
        lane, source, tiles = self.lane, self._source, self._tables.tiles
        passed = 1.0 if lane.method in ("whole", "staged") else source.decay
        launch(
            dense.undo, len(tiles), *source.pointers, passed, tiles, self.selection.bad,
            EVEN=lane.even, TILE=TILE, warps=8,
        )  # fmt: skip
        if lane.method == "fused":
            programs = tiles[:, [SECTION, POS]].long()
            launch(
                read.add_values, len(tiles), body, self._scales, programs, self._tables.sections,
                self._tables.spans, self._tables.spans, self.selection.bad, source.residual,
                KIND=lane.quantize.kind, BITS=lane.quantize.bits, SCALED=self._scaled, GROUP=self.lane.group,
                WHERE="all", FRESH=False, SKIP=True, STEPS=lane.steps, ALIGNED=lane.aligned,
                EVEN=lane.even, TILE=TILE, warps=8,
            )  # fmt: skip

    def _fuse(self, body: torch.Tensor) -> None:
        lane, source, tables = self.lane, self._source, self._tables
        launch(
            dense.fused, len(tables.tiles), *source.pointers, source.decay, tables.tiles, tables.sections,
            self._words, self._scales, body, self.selection.bad, self._status, FEEDBACK=source.feedback,
            DECAY=self._decay, BITS=lane.quantize.bits, LIMIT=self._limit, DITHER=self._dither,
            GROUP=self.lane.group, LEVELS=(lane.group or 1).bit_length() - 1, ALIGNED=lane.aligned,
            EVEN=lane.even, TILE=TILE, warps=16, **self._format,
        )  # fmt: skip

    @property
    def _travelling(self) -> tuple[torch.Tensor | float, ...]:
        return self.selection.chosen, *self._source.pointers

    @property
    def _where(self) -> dict[str, Any]:
        return {"CHOSEN": self.lane.method != "staged", "FEEDBACK": self._source.feedback}

    def _write_scales(self, body: torch.Tensor) -> None:
        tables, group = self._tables, self.lane.group
        if not len(tables.parts):
            launch(
                values.narrow_scales, len(tables.rows), *self._travelling, tables.rows, tables.sections,
                self._scales, body, LIMIT=self._limit, GROUP=self.lane.group, LEVELS=(group - 1).bit_length(),
                ROWS=rows_per_program(group), **self._format, **self._where,
            )  # fmt: skip
            return
        peaks = torch.zeros(self.lane.rows, dtype=torch.int32, device=body.device)
        launch(
            values.peaks, len(tables.parts), *self._travelling, tables.parts, tables.sections, peaks,
            GROUP=self.lane.group, TILE=TILE, **self._where, warps=8,
        )  # fmt: skip
        totals = self._totals() if self.lane.quantize.kind == "sign" else self._scales
        launch(
            values.wide_scales, len(tables.rows), tables.rows, tables.sections, peaks, totals, self._scales,
            body, LIMIT=self._limit, GROUP=self.lane.group, TILE=CHUNK, **self._format,
        )  # fmt: skip

    def _totals(self) -> torch.Tensor:
        """Sums of magnitudes of large groups [rows], by halves, 64-fold at a time."""
        out = torch.empty_like(self._scales)
        for s, section in enumerate(self.lane.tables.sections.tolist()):
            count, row, size = section[COUNT], section[ROW], section[SIZE]
            width = min(self.lane.group or count, count)
            rows = -(-count // width)
            sums = out
            first = True
            while first or size > 1:
                levels = min(6, size.bit_length() - 1)
                size >>= levels
                now = torch.empty(rows * size, device=out.device)
                launch(
                    values.halve, rows * -(-size // 64), *self._travelling, self._tables.sections, s, sums,
                    now, width, size, FIRST=first, LEVELS=levels, COLUMNS=64, **self._where,
                )  # fmt: skip
                sums, first = now, False
            out[row : row + rows] = sums
        return out

    def _write_values(self, body: torch.Tensor) -> None:
        lane, tables, source = self.lane, self._tables, self._source
        launch(
            values.write_values, len(tables.values), self.selection.chosen, self.selection.offsets,
            *source.pointers, source.decay, tables.values, tables.sections, self._words, self._scales, body,
            self._status, DECAY=self._decay, BITS=lane.quantize.bits, DITHER=self._dither,
            SCALED=self._scaled, GROUP=self.lane.group, ALIGNED=lane.aligned, TILE=CHUNK, **self._format,
            **self._where,
        )  # fmt: skip
