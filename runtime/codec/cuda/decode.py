"""One received body on a device: checked whole, then added."""

from collections.abc import Sequence

import numpy as np
import torch

from geosim.policy.maths import Key
from geosim.policy.maths.quantize import scale_limit, top_level
from geosim.policy.quantize import Cast
from geosim.policy.select import RandomK
from runtime.codec.cuda.kernels import read
from runtime.codec.cuda.launch import launch, position_words
from runtime.codec.cuda.plan import Lane
from runtime.codec.cuda.report import BLOCK, NO_BLOCK, ONES, ROWS, first_fault
from runtime.codec.cuda.scopes import block_of
from runtime.codec.cuda.selection import MISLED, Selection
from runtime.codec.cuda.tables import CHUNK, LOW, VECTOR, Tables

# Random-k's offsets by lane.
Drawn = dict[int, torch.Tensor]


class Decoding:
    """One body.

    Args:
        lanes, tables: of the body; tables on the device.
        body: uint8, in host memory.
        key: of the sender.
        numel: of the fragment.
        device: where values are wanted.
        drawn: random-k's offsets, which are those of all sites in a round: filled and used again.
    """

    def __init__(
        self,
        lanes: Sequence[Lane],
        tables: Sequence[Tables],
        body: torch.Tensor,
        key: Key,
        numel: int,
        device: torch.device,
        drawn: Drawn,
    ) -> None:
        self._lanes, self._tables, self._host = lanes, tables, body
        self._body = torch.empty(body.numel(), dtype=torch.uint8, device=device)
        self._body.copy_(body, non_blocking=True)
        for i, lane in enumerate(lanes):
            if lane.method in ("blocks", "whole") and isinstance(lane.select, RandomK) and i not in drawn:
                drawn[i] = _draw(lane, tables[i], key, numel, device)
        self._positions = dict(drawn)
        self._scales = [torch.empty(lane.rows, device=device) for lane in lanes]

    def check(self) -> None:
        """Wait for the verdict.

        Raises:
            ValueError: whatever no encoder writes, in a few words.
        """
        reports = [self._inspect(i) for i in range(len(self._lanes))]
        flat = torch.cat([r.flatten() for r in reports]).cpu().numpy()
        parts = np.split(flat, np.cumsum([r.numel() for r in reports])[:-1])
        fault = first_fault(self._lanes, [p.reshape(ROWS, -1) for p in parts], self._host.numpy())
        if fault:
            raise ValueError(fault)

    def add(self, out: torch.Tensor, fresh: bool) -> None:
        """Add the values to `out`, fp32 [numel], or overwrite it if `fresh` and everything travels."""
        for i, (lane, tables) in enumerate(zip(self._lanes, self._tables, strict=True)):
            where = "all"
            if i in self._positions:
                where = "listed" if lane.positions else "placed"
            launch(
                read.add_values, len(tables.values), self._body, self._scales[i], tables.values,
                tables.sections, tables.spans, self._positions.get(i, tables.spans), tables.spans, out,
                KIND=lane.quantize.kind, BITS=lane.quantize.bits, SCALED=lane.rows > 0, GROUP=lane.group,
                WHERE=where, FRESH=fresh, SKIP=False, STEPS=lane.steps, ALIGNED=lane.aligned,
                EVEN=lane.even if where == "all" else 1, TILE=CHUNK,
            )  # fmt: skip

    def _inspect(self, i: int) -> torch.Tensor:
        """The report of a lane; its positions and scales are then known."""
        lane, tables, how = self._lanes[i], self._tables[i], self._lanes[i].quantize
        report = torch.zeros((ROWS, len(lane.numbers)), dtype=torch.int64, device=self._body.device)
        report[BLOCK] = NO_BLOCK + 1
        if lane.positions:
            self._positions[i] = self._read_positions(lane, tables, report)
        if lane.rows:
            launch(
                read.read_scales, len(tables.scales), self._body, tables.scales, tables.sections, report,
                self._scales[i], LIMIT=scale_limit(how), GROUP=lane.group, TILE=CHUNK,
            )  # fmt: skip
        if isinstance(how, Cast) or how.kind in ("int8", "int4", "e3m0"):
            launch(
                read.check_values, len(tables.values), self._body, tables.values, tables.sections, report,
                KIND=how.kind, BITS=how.bits, LEVEL=top_level(how), ALIGNED=lane.aligned, TILE=CHUNK,
            )  # fmt: skip
        return report

    def _read_positions(self, lane: Lane, tables: Tables, report: torch.Tensor) -> torch.Tensor:
        ones = torch.zeros(len(tables.vectors) + 1, dtype=torch.int64, device=report.device)
        shared = (self._body, tables.vectors, tables.sections)
        launch(read.count_ones, len(tables.vectors), *shared, ones[1:], VECTOR=VECTOR)
        ones = ones.cumsum(0)
        first = ones[tables.first_vectors]
        torch.sub(first[1:], first[:-1], out=report[ONES])
        before = ones[:-1] - first[tables.vectors[:, 0]]
        positions = torch.zeros(lane.count, dtype=torch.int64, device=report.device)
        most = int(lane.tables.sections[:, LOW].max())
        launch(
            read.read_positions, len(tables.vectors), *shared, before, positions,
            BYTES=(most + 14) // 8, VECTOR=VECTOR, warps=8,
        )  # fmt: skip
        block = block_of(lane.select)
        launch(
            read.check_positions, len(tables.values), positions, tables.values, tables.sections, report,
            len(lane.numbers), BLOCK=block, TAKE=lane.taken if block else 1, TILE=CHUNK,
        )  # fmt: skip
        return positions


def _draw(lane: Lane, tables: Tables, key: Key, numel: int, device: torch.device) -> torch.Tensor:
    """Random-k's offsets in the fragment [lane.count]."""
    status = torch.zeros(1, dtype=torch.int32, device=device)
    words = position_words(key, lane.numbers).to(device)
    selection = Selection(lane, tables, None, words, status, numel)
    if lane.method == "blocks":
        selection.blocks()
        return selection.offsets
    selection.collect()
    if int(status) & MISLED:
        status.zero_()
        selection.search_failed()
    selection.choose(status)
    return selection.offsets
