"""What one would write in plain torch: the yardstick of the codecs' speed."""

from __future__ import annotations

import torch
from torch import Tensor

from geosim.policy.select import kept

_LEVEL = 127


def encode(gradient: Tensor, weight: float, residual: Tensor, ratio: float, width: int, group: int) -> None:
    """Top-k of rows, INT8 with a scale a group, and the residual; positions are not even packed.

    Args:
        gradient: fp32 [numel].
        weight: of it in the update.
        residual: fp32 [numel], updated in place.
        ratio: share of each row that is kept.
        width: elements a row; a last shorter one keeps the same share.
        group: values a scale.
    """
    update = residual.add_(gradient, alpha=weight)
    whole = update.numel() // width * width
    for rows in (update[:whole].view(-1, width), update[whole:].view(1, -1)):
        if rows.numel():
            _encode_rows(rows, kept(rows.shape[1], ratio), group)


def _encode_rows(rows: Tensor, count: int, group: int) -> None:
    found = rows.abs().topk(count, dim=1, sorted=False).indices
    values = rows.gather(1, found)
    _, decoded = _quantize(values.flatten(), group)
    rows.scatter_add_(1, found, -decoded.view_as(values))


def _quantize(values: Tensor, group: int) -> tuple[Tensor, Tensor]:
    """INT8 levels, and what they stand for; the last group is filled up with zeros."""
    short = -values.numel() % group
    grouped = torch.nn.functional.pad(values, (0, short)).view(-1, group)
    scale = grouped.abs().amax(dim=1, keepdim=True).div_(_LEVEL)
    levels = (grouped / scale.clamp(min=torch.finfo(torch.float32).tiny)).round_().to(torch.int8)
    return levels, (levels * scale).flatten()[: values.numel()]
