"""Training across sites written out plainly in one process, from the design's formulas and policy.maths."""

from __future__ import annotations

from typing import Any

import torch
from geo_cases import backward, flat_parameters, inner_for, make_policy, network, plan
from torch import Tensor, nn

from geosim.params import table
from geosim.policy import make_layout
from geosim.policy.maths import (
    Key,
    aggregate,
    compress_fragment,
    contribution,
    decompress_fragment,
    make_sections,
    outer_step,
    residual,
)


def oracle(
    policy_fields: dict[str, Any],
    *,
    steps: int,
    sites: int = 2,
    inner: str = "sgd",
    lr: float = 0.1,
    tokens: str = "even",
) -> Tensor:
    """Parameters after training `sites` sites of one rank each, one fragment, blocking or delayed."""
    policy = make_policy(policy_fields)
    counts = plan(tokens, sites)
    models = [network() for _ in range(sites)]
    optimizers = [inner_for(inner, model, lr) for model in models]
    named = list(models[0].named_parameters())
    layout = make_layout(table([(name, tuple(p.shape)) for name, p in named]), policy, 1)
    order = layout.fragments[0].tensors  # the fragment's tensors as they travel
    sections = make_sections(layout.pieces(0, 0), policy.codec)
    wait = getattr(policy.overlap, "windows", 0)
    local = policy.update.kind == "local"
    feedback = getattr(policy.codec.residual, "decay", None)
    theta = pack(models[0], order)
    velocity = torch.zeros_like(theta)
    errors = [torch.zeros_like(theta) for _ in range(sites)]
    results: list[Tensor] = []
    for window in range(steps // policy.interval):
        span = range(window * policy.interval, (window + 1) * policy.interval)
        totals = [sum(counts(step)[m] for step in span) for m in range(sites)]
        parts = []
        for m, model in enumerate(models):
            mean = window_of(model, optimizers[m], span, counts, m, totals[m], order, local)
            u = contribution(mean, totals[m] / sum(totals), errors[m] if feedback else None)
            c = decompress_fragment(
                compress_fragment(u, sections, Key(policy.seed, window, 0, 0, m)), sections
            )
            if feedback:
                errors[m] = residual(u, c, feedback)
            parts.append(c)
        results.append(aggregate(parts))
        due = window - wait
        if local:
            if due >= 0:
                theta, velocity = outer_step(policy.update.outer, theta, results[due], velocity)
            for model in models:
                unpack(model, order, theta)
        elif due >= 0:
            for model, optimizer in zip(models, optimizers, strict=True):
                set_gradients(model, order, results[due])
                optimizer.step()
    for due in range(max(0, len(results) - wait), len(results)):
        if local:
            theta, velocity = outer_step(policy.update.outer, theta, results[due], velocity)
            for model in models:
                unpack(model, order, theta)
        else:
            for model, optimizer in zip(models, optimizers, strict=True):
                set_gradients(model, order, results[due])
                optimizer.step()
    return flat_parameters(models[0])


def window_of(
    model: nn.Module, optimizer: torch.optim.Optimizer, span: range, counts: Any, site: int, total: int,
    order: tuple[int, ...], local: bool,
) -> Tensor:  # fmt: skip
    """What one window brings: the mean gradient, or the parameter change after local steps."""
    start = pack(model, order)
    gathered = torch.zeros_like(start)
    for step in span:
        count = counts(step)[site]
        backward(model, step, count, sum(counts(step)[:site]))
        if count == 0:
            continue
        if local:
            optimizer.step()
        else:
            gathered += pack(model, order, gradients=True) * count
    if local:
        return start - pack(model, order)
    return gathered / total if total else gathered


def pack(model: nn.Module, order: tuple[int, ...], gradients: bool = False) -> Tensor:
    """Parameters or gradients end to end in travelling order."""
    params = list(model.parameters())
    return torch.cat([(params[i].grad if gradients else params[i].detach()).reshape(-1) for i in order])


def unpack(model: nn.Module, order: tuple[int, ...], vector: Tensor) -> None:
    """Set all parameters."""
    params, at = list(model.parameters()), 0
    with torch.no_grad():
        for i in order:
            params[i].copy_(vector[at : at + params[i].numel()].view_as(params[i]))
            at += params[i].numel()


def set_gradients(model: nn.Module, order: tuple[int, ...], vector: Tensor) -> None:
    """Set all gradients."""
    params, at = list(model.parameters()), 0
    for i in order:
        params[i].grad = vector[at : at + params[i].numel()].view_as(params[i]).clone()
        at += params[i].numel()
