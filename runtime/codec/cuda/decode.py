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
    """One body at a time.

    Args:
        lanes, tables: of the body; tables on the device.
        device: where values are wanted.
        body_bytes: of the body.
    """

    def __init__(
        self, lanes: Sequence[Lane], tables: Sequence[Tables], device: torch.device, body_bytes: int
    ) -> None:
        self._lanes, self._tables, self._device = lanes, tables, device
        self._body = torch.empty(body_bytes, dtype=torch.uint8, device=device)
        self._host = torch.empty(0, dtype=torch.uint8)
        self._positions: Drawn = {}
        self._scales = [torch.empty(lane.rows, device=device) for lane in lanes]
        self._reports: list[torch.Tensor] = []

    def load(self, body: torch.Tensor) -> None:
        """Queue the copy of a body, uint8 in host memory."""
        self._host = body
        self._body.copy_(body, non_blocking=True)

    def inspect(self) -> None:
        """Queue the checks of the body that is loaded; positions and scales are known once they have run."""
        self._reports = [self._inspect(i) for i in range(len(self._lanes))]
        self._flat = torch.cat([r.flatten() for r in self._reports])

    def verify(self) -> None:
        """Wait for the verdict.

        Raises:
            ValueError: whatever no encoder writes, in a few words.
        """
        flat = self._flat.cpu().numpy()
        parts = np.split(flat, np.cumsum([r.numel() for r in self._reports])[:-1])
        fault = first_fault(self._lanes, [p.reshape(ROWS, -1) for p in parts], self._host.numpy())
        if fault:
            raise ValueError(fault)

    def add(self, out: torch.Tensor, fresh: bool, key: Key, drawn: Drawn) -> None:
        """Add the values to `out`, fp32 [numel], or overwrite it if `fresh` and everything travels.

        Args:
            out, fresh: as above.
            key: of the sender.
            drawn: random-k's offsets, which are those of all sites in a round: filled and used again.
        """
        for i, (lane, tables) in enumerate(zip(self._lanes, self._tables, strict=True)):
            if lane.method in ("blocks", "whole") and isinstance(lane.select, RandomK) and i not in drawn:
                drawn[i] = _draw(lane, tables, key, out.numel(), self._device)
            positions = drawn.get(i, self._positions.get(i))
            where = "all"
            if positions is not None:
                where = "listed" if lane.positions else "placed"
            launch(
                read.add_values, len(tables.values), self._body, self._scales[i], tables.values,
                tables.sections, tables.spans, tables.spans if positions is None else positions, tables.spans,
                out, KIND=lane.quantize.kind, BITS=lane.quantize.bits, SCALED=lane.rows > 0, GROUP=lane.group,
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
