"""Outer optimizer steps on the sum d of the sites' decoded changes; d points from new to old parameters."""

from geosim.policy.maths import backend
from geosim.policy.maths.backend import Array
from geosim.policy.update import OuterMomentum, OuterSGD


def sgd(theta: Array, d: Array, lr: float | Array) -> Array:
    """theta - lr d."""
    return theta - _times(lr, d)


def momentum(
    theta: Array, d: Array, velocity: Array, lr: float | Array, mu: float | Array, nesterov: bool
) -> tuple[Array, Array]:
    """v <- mu v + d; theta <- theta - lr v, or with `nesterov` theta - lr (d + mu v).

    As torch.optim.SGD without dampening (Sutskever et al. 2013, in the form with lr outside the velocity).

    Returns:
        (theta, velocity), shaped as given.
    """
    velocity = _times(mu, velocity) + d
    direction = d + _times(mu, velocity) if nesterov else velocity
    return sgd(theta, direction, lr), velocity


def outer_step(
    outer: OuterSGD | OuterMomentum,
    theta: Array,
    d: Array,
    velocity: Array,
    lr: float | Array | None = None,
    mu: float | Array | None = None,
) -> tuple[Array, Array]:
    """One step of a policy's outer optimizer.

    Args:
        outer: which one; static under jit.
        theta, d, velocity: fp32, one shape; velocity is zeros at the start and unused by plain SGD.
        lr, mu: instead of the policy's own, for sweeps that compile once.

    Returns:
        (theta, velocity).
    """
    rate = outer.lr if lr is None else lr
    if isinstance(outer, OuterSGD):
        return sgd(theta, d, rate), velocity
    return momentum(theta, d, velocity, rate, outer.momentum if mu is None else mu, outer.nesterov)


def _times(factor: float | Array, x: Array) -> Array:
    return backend.settle(x * backend.constant(x, factor))
