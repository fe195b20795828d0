"""What the tests across sites train: a small network on fixed data, and the same in one process."""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from geosim.policy import SyncPolicy, policy_from_dict
from runtime.optimizer import GeoOptimizer
from runtime.sites import Sites

FEATURES, OUTPUTS = 12, 4


def network(seed: int = 1) -> nn.Sequential:
    """About 500 parameters."""
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Linear(FEATURES, 24), nn.Tanh(), nn.Linear(24, 8), nn.Tanh(), nn.Linear(8, OUTPUTS)
    )


def samples(step: int, count: int, start: int = 0) -> tuple[Tensor, Tensor]:
    """Samples start..start+count of a step: inputs [count, FEATURES] and targets [count, OUTPUTS]."""
    generator = torch.Generator().manual_seed(1000 + step)
    data = torch.randn(256, FEATURES + OUTPUTS, generator=generator)[start : start + count]
    return data[:, :FEATURES], data[:, FEATURES:]


def backward(model: nn.Module, step: int, count: int, start: int = 0) -> None:
    """Gradients of the mean loss over some samples of a step."""
    inputs, targets = samples(step, count, start)
    model.zero_grad()
    if count:
        nn.functional.mse_loss(model(inputs), targets).backward()


def share_of(sites: Sites, step: int, tokens: Any) -> tuple[int, int]:
    """(start, count) of this rank's samples; a site's samples are split over its ranks evenly."""
    counts = tokens(step)
    start, count = sum(counts[: sites.index]), counts[sites.index]
    each = count // sites.ranks
    return start + sites.rank * each, each


def average(model: nn.Module, sites: Sites) -> None:
    """The site's gradient: the mean over its ranks."""
    if sites.ranks > 1:
        for param in model.parameters():
            if param.grad is not None:
                dist.all_reduce(param.grad)
                param.grad /= sites.ranks


def even(sites: int) -> Any:
    """Eight samples a site and step."""
    return lambda step: (8,) * sites


def plan(name: str, sites: int) -> Any:
    """Batch plans by name, as functions do not travel."""
    if name == "even":
        return even(sites)
    table: list[tuple[int, ...]] = [(4, 12), (16, 2), (6, 6), (0, 10), (8, 8), (2, 20)]
    if sites == 3:
        table = [(4, 12, 8), (16, 2, 6), (0, 10, 4)]
    return lambda step: table[step % len(table)]


def inner_for(kind: str, model: nn.Module, lr: float) -> torch.optim.Optimizer:
    """The inner optimizer of a test."""
    if kind == "adamw":
        return torch.optim.AdamW(model.named_parameters(), lr=lr, weight_decay=0.1)
    return torch.optim.SGD(model.named_parameters(), lr=lr, momentum=0.9 if kind == "momentum" else 0.0)


def flat_parameters(model: nn.Module) -> Tensor:
    """All parameters end to end."""
    return torch.cat([param.detach().reshape(-1) for param in model.parameters()])


def digest(model: nn.Module) -> str:
    """A hash of the parameters."""
    return blake2b(flat_parameters(model).numpy().data, digest_size=8).hexdigest()


def train(
    sites: Sites,
    *,
    policy: dict[str, Any],
    steps: int,
    inner: str = "sgd",
    lr: float = 0.1,
    tokens: str = "even",
    faults: tuple[tuple[str, int], ...] = (),
    schedule: bool = False,
    finish: bool = True,
) -> dict[str, Any]:
    """Train and report; `faults` are (site, step) whose gradient becomes NaN in one place."""
    counts = plan(tokens, sites.count)
    model = network()
    geo = GeoOptimizer(inner_for(inner, model, lr), make_policy(policy), sites, tokens=counts, timeout_s=15)
    scheduler = torch.optim.lr_scheduler.LambdaLR(geo, lambda n: 1 / (1 + n)) if schedule else None
    starts = []
    for step in range(steps):
        start, count = share_of(sites, step, counts)
        backward(model, step, count, start)
        average(model, sites)
        if (sites.name, step) in faults:
            next(model.parameters()).grad.view(-1)[3] = torch.nan
        geo.step()
        if scheduler is not None:
            scheduler.step()
        if geo.at_window_start:
            starts.append(digest(model))
    residuals = [r.clone() for r in geo.engine._residuals]
    if finish:
        geo.finish()
    result = {
        "parameters": flat_parameters(model),
        "starts": starts,
        "residuals": residuals,
        "skipped": geo.skipped_rounds,
        "chain": geo.engine.chain.hex(),
        "payload_bytes": geo.engine.payload_bytes,
        "expected_bytes": sum(geo.layout.payload_bytes(f.index, sites.rank) for f in geo.layout.fragments)
        if sites.rank < geo.layout.shards
        else 0,
    }
    geo.close()
    return result


def make_policy(data: dict[str, Any]) -> SyncPolicy:
    """A policy from the fields of a test."""
    return policy_from_dict(data)


def relative(a: Tensor, b: Tensor) -> float:
    """Largest difference over the largest magnitude."""
    return float((a - b).abs().max() / b.abs().max())
