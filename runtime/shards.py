"""Between tensors and the flat vectors that travel: a WAN rank's shard of a fragment, and all of it."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor

from geosim.policy import Layout, Piece

Vector = Tensor  # fp32, one dimension


class Shard:
    """What one WAN rank owns of one fragment: its pieces end to end, as a vector [numel]."""

    def __init__(self, layout: Layout, fragment: int, shard: int) -> None:
        self.pieces: tuple[Piece, ...] = layout.pieces(fragment, shard) if shard < layout.shards else ()
        self.numel = sum(piece.numel for piece in self.pieces)
        self._offsets = []
        at = 0
        for piece in self.pieces:
            self._offsets.append((piece, at, at + piece.numel))
            at += piece.numel

    def zeros(self, device: torch.device) -> Vector:
        """A vector of zeros."""
        return torch.zeros(self.numel, dtype=torch.float32, device=device)

    def read(self, tensors: Sequence[Tensor], out: Vector) -> None:
        """Copy this shard's part of the model's tensors into `out`."""
        for piece, start, stop in self._offsets:
            out[start:stop].copy_(tensors[piece.tensor].reshape(-1)[piece.start : piece.stop])

    def add_weighted(self, tensors: Sequence[Tensor | None], weight: float, out: Vector) -> None:
        """out += weight * tensor, product and sum rounding separately in fp32; None counts as zero."""
        for piece, start, stop in self._offsets:
            tensor = tensors[piece.tensor]
            if tensor is not None:
                values = tensor.reshape(-1)[piece.start : piece.stop].to(torch.float32)
                out[start:stop].add_(values if weight == 1.0 else values * weight)

    def write(self, vector: Vector, full: dict[int, Tensor]) -> None:
        """Copy a vector's parts into whole flat tensors, by tensor number."""
        for piece, start, stop in self._offsets:
            full[piece.tensor][piece.start : piece.stop].copy_(vector[start:stop])


class Gather:
    """Brings the shards of one fragment together on every rank of a site, with one flag alongside."""

    def __init__(self, layout: Layout, fragment: int, rank: int, ranks: int) -> None:
        self._shards = [Shard(layout, fragment, s) for s in range(layout.shards)]
        self._numel = {i: layout.tensors[i].numel for i in layout.fragments[fragment].tensors}
        self._longest = max(shard.numel for shard in self._shards)
        self._rank = rank
        self._ranks = ranks

    def __call__(self, mine: Vector, flag: bool) -> tuple[dict[int, Vector], bool]:
        """Whole flat tensors by number, and whether any WAN rank raised its flag.

        Args:
            mine: this rank's shard; empty for a rank beyond the shards.
            flag: this rank's flag.
        """
        if self._ranks == 1:
            rows, flagged = [mine], flag
        else:
            rows, flagged = self._collect(mine, flag)
        whole = {i: torch.empty(n, dtype=torch.float32, device=mine.device) for i, n in self._numel.items()}
        for shard, row in zip(self._shards, rows, strict=True):
            shard.write(row, whole)
        return whole, flagged

    def _collect(self, mine: Vector, flag: bool) -> tuple[list[Vector], bool]:
        # Rows are as long as the longest shard, and one value longer for the flag.
        row = torch.zeros(self._longest + 1, dtype=torch.float32, device=mine.device)
        row[: mine.numel()] = mine
        row[-1] = float(flag)
        count = len(self._shards)
        rows = torch.empty(count, self._longest + 1, dtype=torch.float32, device=mine.device)
        if count == self._ranks:
            dist.all_gather(list(rows.unbind()), row)
        else:
            # An all-gather would carry an empty row for each rank that has no shard.
            for source in range(count):
                if source == self._rank:
                    rows[source] = row
                dist.broadcast(rows[source], source)
        return list(rows), bool(rows[:, -1].max().item() > 0)


def most_in_site(numbers: Sequence[int], ranks: int, device: torch.device) -> tuple[int, ...]:
    """Of each number the largest that any rank of the site has."""
    if ranks == 1:
        return tuple(numbers)
    most = torch.tensor(numbers, dtype=torch.int64, device=device)
    dist.all_reduce(most, op=dist.ReduceOp.MAX)
    return tuple(int(value) for value in most.tolist())
