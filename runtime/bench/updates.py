"""Real updates: what training a byte-level GPT on the standard library's text asks a codec to send."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor
from torch.nn.utils import parameters_to_vector
from torch.optim import AdamW
from torch.optim.lr_scheduler import LambdaLR

from geosim.params import ParamTable
from geosim.params import table as param_table
from geosim.policy.select import kept
from runtime.data import load
from runtime.job import warmup_cosine
from runtime.models import build

LR = 2e-3
_FEEDBACK_STEPS = 8
_FEEDBACK_RATIO = 0.01
# Tiles begin at different elements and differ in scale, so that blocks differ and few magnitudes are equal.
_SHIFT, _STRETCH = 1009, 2.0**-10


@contextmanager
def one_thread() -> Iterator[None]:
    """Torch on one thread while the block runs: sums then round alike on any number of cores."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class Training:
    """AdamW steps of a model preset, each on the mean gradient of equal sites; a function of its arguments.

    Attributes:
        step: steps done.
        data: what it trains on, and its fingerprint.
        table: the model's tensors.
        tokens_per_step: over all sites.
    """

    def __init__(self, model: str, steps: int, seed: int, *, sites: int = 1, batch_size: int = 4) -> None:
        """Build model and data.

        Args:
            model: a preset of `runtime.models`.
            steps: length of the learning rate's schedule.
            seed: of weights and of the data's order.
            sites: batches a step, each with a gradient of its own.
            batch_size: sequences a batch.

        Raises:
            UsageError: no such preset.
        """
        self.step = 0
        self._model, self._corpus = build(model, seed), load()
        self.data = f"{self._corpus.source}, {self._corpus.fingerprint}"
        self.tokens_per_step = sites * batch_size * self._model.config.sequence
        self._seed, self._sites, self._batch_size = seed, sites, batch_size
        self._optimizer = AdamW(self._model.parameters(), lr=LR, betas=(0.9, 0.95), weight_decay=0.1)
        self._scheduler = LambdaLR(self._optimizer, warmup_cosine(steps))
        self.table: ParamTable = param_table((n, tuple(p.shape)) for n, p in self._model.named_parameters())

    def parameters(self) -> Tensor:
        """A copy of all parameters end to end, fp32 [numel]."""
        return parameters_to_vector(self._model.parameters()).detach().clone()

    def advance(self) -> tuple[list[Tensor], float]:
        """One step; each site's gradient before it, fp32 [numel] in the model's order, and the mean loss."""
        gradients, losses = [], []
        for site in range(self._sites):
            tokens, targets = self._corpus.batch(
                self.step, rank=site, world=self._sites, batch_size=self._batch_size,
                sequence=self._model.config.sequence, seed=self._seed,
            )  # fmt: skip
            self._model.zero_grad()
            loss = self._model.loss(tokens, targets)
            loss.backward()
            losses.append(float(loss.item()))
            gradients.append(torch.cat([_gradient(p) for p in self._model.parameters()]))
        mean = torch.stack(gradients).mean(dim=0)
        at = 0
        for parameter in self._model.parameters():
            parameter.grad = mean[at : at + parameter.numel()].view_as(parameter)
            at += parameter.numel()
        self._optimizer.step()
        self._scheduler.step()
        self.step += 1
        return gradients, sum(losses) / len(losses)


def _gradient(parameter: Tensor) -> Tensor:
    assert parameter.grad is not None
    return parameter.grad.flatten().clone()


def site_updates(
    model: str, steps: int, sites: int, weight: float, seed: int, progress: Callable[[int, float], None]
) -> list[tuple[Tensor, Tensor]]:
    """Each site's last gradient, and the residual that it meets: both fp32 [numel].

    The residual is what sending the largest 1 % of each of the last few steps has kept back.

    Args:
        model, steps, sites, seed: as for `Training`; each site takes one sequence a step.
        weight: a site's share of the tokens.
        progress: called with the steps done and the loss.
    """
    training = Training(model, steps, seed, sites=sites, batch_size=1)
    residuals = [torch.zeros(training.table.numel) for _ in range(sites)]
    gradients: list[Tensor] = []
    with one_thread():
        for _ in range(steps):
            if training.step >= steps - _FEEDBACK_STEPS:
                for gradient, residual in zip(gradients, residuals, strict=False):
                    _keep_back(residual.add_(gradient, alpha=weight))
            gradients, loss = training.advance()
            progress(training.step, loss)
    return list(zip(gradients, residuals, strict=True))


def _keep_back(update: Tensor) -> None:
    update[update.abs().topk(kept(update.numel(), _FEEDBACK_RATIO), sorted=False).indices] = 0


def tile(source: Tensor, out: Tensor) -> None:
    """Fill `out` [N] with copies of `source` [n], each shifted by some elements and stretched a little."""
    for i, part in enumerate(out.split(source.numel())):
        shifted = source.roll(i * _SHIFT)[: part.numel()]
        torch.mul(shifted.to(out.device), 1 + i * _STRETCH, out=part)


def tiled(source: Tensor, numel: int, device: torch.device) -> Tensor:
    """A new fp32 tensor [numel], filled by `tile`."""
    out = torch.empty(numel, device=device)
    tile(source, out)
    return out
