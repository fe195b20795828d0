"""Bytes that a sync policy keeps on an accelerator between and during exchanges."""

import math

from geosim.policy import Accumulate, Blocking, Local, NoResidual, OuterMomentum, Streaming, SyncPolicy

_FP32 = 4.0


def exchange_bytes(policy: SyncPolicy, numel: float, shards: int) -> float:
    """Bytes a WAN rank keeps, beyond what training alone needs.

    A WAN rank owns 1 / shards of every fragment, and keeps for it in fp32: the residual; where gradients
    accumulate their sum, and the momentum if that is sent; with local steps the outer parameters and the
    outer momentum; and for each result in flight the contribution and the sum over sites.

    Args:
        policy: what is exchanged, and how.
        numel: parameters of the model.
        shards: WAN ranks of the site.
    """
    owned = numel / shards
    copies = 0.0 if isinstance(policy.codec.residual, NoResidual) else 1.0
    if isinstance(policy.update, Local):
        copies += 2.0 if isinstance(policy.update.outer, OuterMomentum) else 1.0
    elif isinstance(policy.update, Accumulate):
        copies += 2.0 if policy.update.send == "momentum" else 1.0
    return _FP32 * owned * (copies + 2 * _in_flight(policy))


def _in_flight(policy: SyncPolicy) -> float:
    """Shares of the model whose results are awaited at once, at most."""
    if policy.is_flat or isinstance(policy.overlap, Blocking):
        return 1.0
    if isinstance(policy.overlap, Streaming):
        between = policy.interval / policy.overlap.fragments
        at_once = math.ceil((policy.overlap.steps + 1) / between)
        return min(at_once, policy.overlap.fragments) / policy.overlap.fragments
    return float(policy.overlap.windows + 1)
