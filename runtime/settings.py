"""What an optimizer's settings have to be at all sites, as part of what every header carries."""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

from torch import Tensor
from torch.optim import Optimizer

# How a step is computed and not what it does: a machine's own business.
_IGNORED = frozenset({"params", "param_names", "foreach", "fused", "capturable", "differentiable"})


def with_settings(chain: bytes, optimizer: Optimizer) -> bytes:
    """A chain hash and the optimizer's settings as they stand now (lr, betas, weight decay, ...), 8 bytes.

    Numbers count to six digits: two machines' cosines may differ in the last one.
    """
    digest = blake2b(chain, digest_size=8)
    for group in optimizer.param_groups:
        for name in sorted(group.keys() - _IGNORED):
            digest.update(f"{name}={_plain(group[name])};".encode())
    return digest.digest()


def _plain(value: Any) -> str:
    if isinstance(value, Tensor):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return "(" + ",".join(_plain(item) for item in value) + ")"
    if isinstance(value, bool | str) or value is None:
        return repr(value)
    if isinstance(value, int | float):
        return f"{value:.6g}"
    return type(value).__name__
