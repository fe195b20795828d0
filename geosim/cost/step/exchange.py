"""Bytes that a sync policy keeps on an accelerator between and during exchanges."""

import math

from geosim.policy import Accumulate, Blocking, Local, NoResidual, OuterMomentum, Streaming, SyncPolicy

_FP32 = 4.0


def exchange_parts(policy: SyncPolicy, numel: float, shards: int) -> dict[str, float]:
    """Bytes a WAN rank keeps, beyond what training alone needs, by what they hold.

    A WAN rank owns 1 / shards of every fragment, and keeps for it in fp32: the residual; where gradients
    accumulate their sum, and the momentum if that is sent; with local steps the outer parameters and the
    outer momentum; and for each result in flight the contribution and the sum over sites.

    Args:
        policy: what is exchanged, and how.
        numel: parameters of the model.
        shards: WAN ranks of the site.
    """
    local = policy.update if isinstance(policy.update, Local) else None
    summed = policy.update if isinstance(policy.update, Accumulate) else None
    copies = {
        "summed gradients": 1.0 if summed else 0.0,
        "momentum": 1.0 if summed and summed.send == "momentum" else 0.0,
        "residual": 0.0 if isinstance(policy.codec.residual, NoResidual) else 1.0,
        "outer parameters": 1.0 if local else 0.0,
        "outer momentum": 1.0 if local and isinstance(local.outer, OuterMomentum) else 0.0,
        "in flight": 2 * _in_flight(policy),
    }
    return {name: _FP32 * numel / shards * many for name, many in copies.items() if many}


def exchange_bytes(policy: SyncPolicy, numel: float, shards: int) -> float:
    """All of `exchange_parts`."""
    return sum(exchange_parts(policy, numel, shards).values())


def _in_flight(policy: SyncPolicy) -> float:
    """Shares of the model whose results are awaited at once, at most."""
    if policy.is_flat or isinstance(policy.overlap, Blocking):
        return 1.0
    if isinstance(policy.overlap, Streaming):
        between = policy.interval / policy.overlap.fragments
        at_once = math.ceil((policy.overlap.steps + 1) / between)
        return min(at_once, policy.overlap.fragments) / policy.overlap.fragments
    return float(policy.overlap.windows + 1)
