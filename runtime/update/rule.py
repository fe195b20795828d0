"""What the two update rules have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from geosim.policy import Layout
from runtime.measure import Clock
from runtime.shards import Gather, Shard


class Rule(ABC):
    """One rank's part of an update rule.

    Vectors are fp32 and cover this rank's shard of a fragment; a rank beyond the shards has empty ones, and
    takes part in what the site gathers.
    """

    def __init__(
        self, layout: Layout, params: Sequence[Tensor], inner: Optimizer, rank: int, ranks: int, clock: Clock
    ) -> None:
        """`params`: in the layout's order; `inner`: the user's optimizer over the same."""
        self.layout = layout
        self.params = params
        self.inner = inner
        self.clock = clock
        count = len(layout.fragments)
        self.device = params[0].device
        self.shards = [Shard(layout, f, rank) for f in range(count)]
        self.gathers = [Gather(layout, f, rank, ranks) for f in range(count)]

    @abstractmethod
    def observe(self, tokens: int, window_tokens: int) -> None:
        """Take in the step whose gradients stand in `param.grad`.

        Args:
            tokens: of this site in this step; the gradients are their mean.
            window_tokens: of this site so far in this window, this step included.
        """

    @abstractmethod
    def contribution(self, fragment: int, window_tokens: int) -> Tensor:
        """What the window brought to a fragment: its mean gradient or its parameter change."""

    @abstractmethod
    def clear(self, fragment: int) -> None:
        """A new window begins for a fragment."""

    @abstractmethod
    def apply(self, results: Sequence[tuple[int, Tensor, bool]]) -> None:
        """Apply results that are due at one boundary, each (fragment, sum over sites, skipped)."""

    @abstractmethod
    def restart(self, fragments: Sequence[int]) -> None:
        """A window of these fragments has ended, and what was due is applied."""

    @abstractmethod
    def agreed(self) -> list[Tensor]:
        """The vectors that must be the same at all sites."""

    @abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """Everything beyond the inner optimizer's own state."""

    @abstractmethod
    def load_state_dict(self, state: dict[str, Any]) -> None:
        """What `state_dict` returned."""


def copy_into(vectors: Sequence[Tensor], saved: Sequence[Tensor]) -> None:
    """Copy saved vectors back in place."""
    with torch.no_grad():
        for vector, value in zip(vectors, saved, strict=True):
            vector.copy_(value)
