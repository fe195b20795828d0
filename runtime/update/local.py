"""local: the inner optimizer steps every time; a window's end brings an outer step on the mean change."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from geosim.policy import Local
from geosim.policy.maths import outer_step
from runtime.update.rule import Rule, copy_into


class LocalRule(Rule):
    """Keeps the shard of theta_global and of the outer momentum; windows start at theta_global."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        assert isinstance(self.layout.policy.update, Local)
        self._outer = self.layout.policy.update.outer
        self._theta = [shard.zeros(self.device) for shard in self.shards]
        self._velocity = [shard.zeros(self.device) for shard in self.shards]
        self._poisoned = False
        with torch.no_grad():
            for shard, theta in zip(self.shards, self._theta, strict=True):
                shard.read([param.detach() for param in self.params], theta)

    def observe(self, tokens: int, window_tokens: int) -> None:
        """One inner step; gradients that are not finite would stay in the moments for ever and make none."""
        if not tokens:
            return
        gradients = [param.grad for param in self.params if param.grad is not None]
        if gradients and _finite(gradients):
            with self.clock.part("apply", traced="update"):
                self.inner.step()
        elif gradients:
            self._poisoned = True

    def contribution(self, fragment: int, window_tokens: int) -> Tensor:
        """D_m = theta_start - theta_m; not a number where the window saw a gradient that was not finite."""
        shard = self.shards[fragment]
        now = shard.zeros(self.device)
        shard.read([param.detach() for param in self.params], now)
        change = self._start(fragment) - now
        return change.fill_(torch.nan) if self._poisoned else change

    def clear(self, fragment: int) -> None:
        """Forget what poisoned the last window."""
        self._poisoned = False

    def apply(self, results: Sequence[tuple[int, Tensor, bool]]) -> None:
        """The outer step, d = 0 where the round was skipped."""
        with self.clock.part("apply"):
            for fragment, total, _ in results:
                self._theta[fragment], self._velocity[fragment] = outer_step(
                    self._outer, self._theta[fragment], total.to(self.device), self._velocity[fragment]
                )

    def restart(self, fragments: Sequence[int]) -> None:
        """theta_m <- theta_global, on all ranks of the site."""
        for fragment in fragments:
            with self.clock.part("gather"):
                whole, _ = self.gathers[fragment](self._theta[fragment], False)
            with self.clock.part("apply"):
                for i, vector in whole.items():
                    self.params[i].copy_(vector.view_as(self.params[i]))

    def agreed(self) -> list[Tensor]:
        """theta_global and the outer momentum."""
        return [*self._theta, *self._velocity]

    def state_dict(self) -> dict[str, Any]:
        """theta_global, the outer momentum, and whether this window is lost already."""
        return {
            "theta": [vector.clone() for vector in self._theta],
            "velocity": [vector.clone() for vector in self._velocity],
            "poisoned": self._poisoned,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """What `state_dict` returned."""
        copy_into(self._theta, state["theta"])
        copy_into(self._velocity, state["velocity"])
        self._poisoned = bool(state["poisoned"])

    def _start(self, fragment: int) -> Tensor:
        """theta_global as the parameters hold it: rounded to their dtype."""
        out = torch.empty_like(self._theta[fragment])
        at = 0
        for piece in self.shards[fragment].pieces:
            part = self._theta[fragment][at : at + piece.numel]
            out[at : at + piece.numel] = part.to(self.params[piece.tensor].dtype).to(torch.float32)
            at += piece.numel
        return out


def _finite(gradients: Sequence[Tensor]) -> bool:
    """Whether every value is; a norm that is finite says so at once, one that is not may have overflowed."""
    if bool(torch.isfinite(torch.stack(torch._foreach_norm(list(gradients)))).all().item()):
        return True
    return all(bool(torch.isfinite(gradient).all().item()) for gradient in gradients)
