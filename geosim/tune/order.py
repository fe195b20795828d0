"""What "less aggressive" means: a total order of policies by how far they stray from synchronous training.

A policy comes before another if, in this order,

1. it sends more a token, counted in halvings of what dense fp32 every step would send. Two policies
   in the same halving send about the same and the next criterion decides;
2. its interval K is smaller;
3. its results are applied sooner: blocking before delayed by one window, before two;
4. it sends more bytes a token;
5. it needs fewer streams.
"""

import math

from geosim.policy import Blocking, Streaming, SyncPolicy

Rank = tuple[int, int, int, float, int]

# Headers and scales must not push a policy over the edge of a halving.
_SLACK = 0.02


def halvings(sent: float, dense: float) -> int:
    """How often `dense` bytes must be halved to reach `sent` bytes, rounded up; 0 for as much or more."""
    return max(0, math.ceil(math.log2(dense / sent) - _SLACK))


def delay(policy: SyncPolicy) -> int:
    """Windows until a result is applied: 0 for blocking; a streaming fragment waits for a part of one."""
    if isinstance(policy.overlap, Blocking):
        return 0
    return 1 if isinstance(policy.overlap, Streaming) else policy.overlap.windows


def rank(policy: SyncPolicy, window_bytes: float, dense_bytes: float) -> Rank:
    """The sort key of the order; smaller is less aggressive.

    Args:
        policy: the policy.
        window_bytes: what one site sends in one window.
        dense_bytes: what one site would send in one step with dense fp32.
    """
    a_step = window_bytes / policy.interval
    return (halvings(a_step, dense_bytes), policy.interval, delay(policy), -a_step, policy.streams)
