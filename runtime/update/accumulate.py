"""accumulate: parameters are fixed inside a window, and its end brings one global optimizer step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from geosim.policy.maths import window_mean
from runtime.trace import noted
from runtime.update.rule import Rule, copy_into


class AccumulateRule(Rule):
    """Sums the shard's token-weighted gradients; `zero_grad` never touches the sums."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._sums = [shard.zeros(self.device) for shard in self.shards]

    def observe(self, tokens: int, window_tokens: int) -> None:
        """Add the step's gradients, weighted by its tokens."""
        if tokens:
            gradients = [param.grad for param in self.params]
            with noted(self.clock.trace, "update"):
                for shard, total in zip(self.shards, self._sums, strict=True):
                    shard.add_weighted(gradients, float(tokens), total)

    def contribution(self, fragment: int, window_tokens: int) -> Tensor:
        """G_m: the mean over the window's tokens; zeros where the site had none."""
        total = self._sums[fragment]
        return window_mean(total, float(window_tokens)) if window_tokens else torch.zeros_like(total)

    def clear(self, fragment: int) -> None:
        """Start the next sum."""
        self._sums[fragment].zero_()

    def apply(self, results: Sequence[tuple[int, Tensor, bool]]) -> None:
        """One step of the inner optimizer on the fragments' tensors, at the learning rate that stands now.

        Tensors without a result have no gradient in it, so their moments, decay and step count rest; a
        skipped round is no step at all. The user's own gradients are put back afterwards.
        """
        before = [param.grad for param in self.params]
        fresh: list[Tensor | None] = [None] * len(self.params)
        for fragment, total, skipped in results:
            with self.clock.part("gather"):
                whole, skipped = self.gathers[fragment](total.to(self.device), skipped)
            if not skipped:
                for i, vector in whole.items():
                    param = self.params[i]
                    fresh[i] = vector.view_as(param).to(param.dtype)
        present = [g for g in fresh if g is not None]
        if not present:
            return
        with self.clock.part("apply"):
            if self.layout.policy.max_grad_norm is not None:
                _clip(present, self.layout.policy.max_grad_norm)
            try:
                for param, gradient in zip(self.params, fresh, strict=True):
                    param.grad = gradient
                self.inner.step()
            finally:
                for param, old in zip(self.params, before, strict=True):
                    param.grad = old

    def restart(self, fragments: Sequence[int]) -> None:
        """Nothing: parameters have not moved inside the window."""

    def agreed(self) -> list[Tensor]:
        """The shard's parameters."""
        return _read(self)

    def state_dict(self) -> dict[str, Any]:
        """The sums."""
        return {"sums": [vector.clone() for vector in self._sums]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """The sums."""
        copy_into(self._sums, state["sums"])


def _read(rule: Rule) -> list[Tensor]:
    out = []
    for shard in rule.shards:
        vector = shard.zeros(rule.device)
        shard.read([param.detach() for param in rule.params], vector)
        out.append(vector)
    return out


def _clip(gradients: Sequence[Tensor], most: float) -> None:
    """Scale all gradients down together until their norm is `most`, as torch's clip_grad_norm_ does."""
    norm = torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(g.float()) for g in gradients]))
    scale = torch.clamp(most / (norm + 1e-6), max=1.0)
    for gradient in gradients:
        gradient.mul_(scale.to(gradient.dtype))
