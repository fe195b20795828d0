"""How the ranks train together: flat DDP over all sites, or sites that exchange as a policy says."""

from __future__ import annotations

from abc import ABC, abstractmethod
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from geosim.policy import SyncPolicy
from runtime.measure import Clock
from runtime.optimizer import GeoOptimizer, TokenPlan
from runtime.pace import Pacer
from runtime.sites import Sites
from runtime.trace import Recorder


class Method(ABC):
    """What the training loop needs of either.

    Attributes:
        wrapped: the model to call.
        optimizer: what a scheduler, and a checkpoint, holds.
        clock: where the time went.
        collective: the part that communication inside the backward pass counts as.
    """

    wrapped: nn.Module
    optimizer: Optimizer
    clock: Clock
    collective: str

    @abstractmethod
    def ready(self) -> None:
        """Training begins: nothing that connecting sends is still on its way."""

    @abstractmethod
    def step(self) -> None:
        """The gradients are there."""

    @abstractmethod
    def finish(self) -> None:
        """No step follows."""

    @abstractmethod
    def close(self) -> None:
        """Part from the others."""

    @abstractmethod
    def figures(self) -> dict[str, Any]:
        """What it has counted since `ready`: plain data."""

    @abstractmethod
    def take_flights(self, steps: int) -> list[dict[str, float]]:
        """Exchanges done since the last call: fragment, round, and when they started and finished.

        `steps`: how many are done.
        """


class FlatDDP(Method):
    """torch's own DDP over one default group that spans the sites."""

    def __init__(
        self,
        model: nn.Module,
        inner: Optimizer,
        policy: SyncPolicy,
        sites: Sites,
        pacer: Pacer,
        trace: Recorder | None = None,
    ) -> None:
        self._model = model
        self._pacer = pacer
        self._crosses = sites.count > 1
        self.collective = "wait" if self._crosses else "site_collective"  # the WAN lies inside the reduction
        self._most = policy.max_grad_norm
        self.optimizer = inner
        self.clock = Clock(trace)
        self.wrapped = wrap(model, pacer)

    def ready(self) -> None:
        """DDP has sent the parameters around; wait until all have them."""
        if dist.is_initialized():
            dist.barrier()

    def step(self) -> None:
        """Clip, if the policy says so, and step."""
        with self.clock.part("apply", traced="update"):
            if self._most is not None:
                torch.nn.utils.clip_grad_norm_(self._model.parameters(), self._most)
            self.optimizer.step()

    def finish(self) -> None:
        """Nothing is in flight."""

    def close(self) -> None:
        """Wait for the others, so that none loses its peer."""
        if dist.is_initialized():
            dist.barrier()

    def figures(self) -> dict[str, Any]:
        """DDP counts nothing and skips nothing."""
        return {"codec": "", "chain": "", "skipped_rounds": 0, "not_finite": [], "payload_bytes": 0}

    def take_flights(self, steps: int) -> list[dict[str, float]]:
        """The last step's reductions, as one exchange."""
        (started, finished), self._pacer.reduced_s = self._pacer.reduced_s, (0.0, 0.0)
        if not self._crosses or not finished:
            return []
        if self.clock.trace is not None:
            self.clock.trace.reduction(steps - 1, started, finished)
        return [{"fragment": 0, "round": steps - 1, "started_s": started, "finished_s": finished}]


class Hierarchical(Method):
    """DDP inside the site, GeoOptimizer between the sites."""

    collective = "site_collective"

    def __init__(
        self,
        model: nn.Module,
        inner: Optimizer,
        policy: SyncPolicy,
        sites: Sites,
        pacer: Pacer,
        *,
        tokens: TokenPlan,
        data: str,
        timeout_s: float,
        codec: str,
        trace: Recorder | None = None,
    ) -> None:
        self._geo = GeoOptimizer(
            inner, policy, sites, tokens=tokens, data=data, timeout_s=timeout_s, codec=codec, trace=trace
        )
        self._names = sites.names
        self._interval = policy.interval
        self._first_round = 0
        self.optimizer = self._geo
        self.clock = self._geo.clock
        self.wrapped = wrap(model, pacer)

    def ready(self) -> None:
        """Connecting has sent nothing but greetings."""
        self._first_round = self._geo.steps // self._interval

    def step(self) -> None:
        """GeoOptimizer's."""
        self._geo.step()

    def finish(self) -> None:
        """Apply what is in flight."""
        self._geo.finish()

    def close(self) -> None:
        """Part from the other sites."""
        self._geo.close()

    def figures(self) -> dict[str, Any]:
        """Codec, chain hash, rounds skipped and for which sites, bytes sent to each peer."""
        engine = self._geo.engine
        lost = {r: sites for r, sites in engine.skipped.items() if r >= self._first_round}
        return {
            "codec": engine.codec,
            "chain": engine.chain.hex(),
            "skipped_rounds": len(lost),
            "not_finite": [self._names[m] for m in sorted(set().union(*lost.values()))],
            "payload_bytes": engine.payload_bytes,
        }

    def take_flights(self, steps: int) -> list[dict[str, float]]:
        """Rounds applied since the last call, but for those that a checkpoint has brought along."""
        flown, self._geo.engine.flown = self._geo.engine.flown, []
        return [
            {"fragment": f.fragment, "round": f.round, "started_s": f.started_s, "finished_s": f.finished_s}
            for f in flown
            if f.started_s
        ]


def wrap(model: nn.Module, pacer: Pacer) -> nn.Module:
    """The model under DDP over the default group, if it has more than one rank."""
    if not dist.is_initialized() or dist.get_world_size() == 1:
        return model
    wrapped = DistributedDataParallel(model)
    wrapped.register_comm_hook(None, pacer.hook)
    return wrapped


def join_flat(sites: Sites, backend: str, timeout_s: float) -> None:
    """Make torch's default group span all sites, over the sites' store."""
    dist.init_process_group(
        backend, store=sites.store("flat"), rank=sites.place,
        world_size=sites.world, timeout=timedelta(seconds=timeout_s),
    )  # fmt: skip
