"""What a site sends of a window, what the sum over sites is, and what is applied of it and when."""

from collections.abc import Sequence

from geosim.policy.maths import backend
from geosim.policy.maths.backend import Array
from geosim.policy.overlap import Blocking, Delayed, Eager


def accumulate(total: Array, gradient: Array, tokens: float | Array) -> Array:
    """Sum over tokens so far, plus a step's mean gradient times its tokens."""
    return total + backend.settle(gradient * backend.constant(gradient, tokens))


def window_mean(total: Array, tokens: float | Array) -> Array:
    """G_m: the mean over the window's tokens, not a mean of means."""
    return backend.divide(total, backend.constant(total, tokens))


def momentum_of(momentum: Array, gradient: Array, mu: float | Array) -> Array:
    """mu m + (1 - mu) g, what `send: momentum` sends in place of g (arXiv 2102.02888, algorithm 1)."""
    mu = backend.constant(gradient, mu)
    return backend.settle(momentum * mu) + backend.settle(gradient * (1 - mu))


def aggregate(parts: Sequence[Array]) -> Array:
    """Sum of the sites' decoded updates in fp32 in the order of site numbers."""
    total = backend.zeros(parts[0], parts[0].shape[0])
    for part in parts:
        total = total + part
    return total


def applied(overlap: Blocking | Delayed | Eager, due: Array, sent: Array, sent_then: Array) -> Array:
    """What a site applies at a boundary.

    Args:
        overlap: the fragment's overlap; static under jit.
        due: d(t - w), the sum that is due; zeros while t < w.
        sent: c_m(t), what the site itself has just sent.
        sent_then: c_m(t - w), its own share of `due`; zeros while t < w.

    Returns:
        d(t - w), or for eager overlap d(t - w) + c_m(t) - c_m(t - w) (arXiv 2502.12996).
    """
    return due + sent - sent_then if isinstance(overlap, Eager) else due


def mix(theta_site: Array, theta_global: Array, alpha: float | Array) -> Array:
    """alpha theta_m + (1 - alpha) theta_global when a streamed fragment is applied (arXiv 2501.18512)."""
    alpha = backend.constant(theta_site, alpha)
    return backend.settle(theta_site * alpha) + backend.settle(theta_global * (1 - alpha))


def is_finite(u: Array) -> Array:
    """Whether all of an update is finite, as a 0-d boolean."""
    xp = backend.namespace(u)
    return xp.all(xp.isfinite(u))


def sum_unless(skipped: bool | Array, total: Array) -> Array:
    """d(t): the sum, or zeros in a round that any site flagged as not finite."""
    xp = backend.namespace(total)
    return xp.where(_flag(total, skipped), xp.zeros_like(total), total)


def residual_after(
    before: Array, after: Array, c: Array, finite: bool | Array, skipped: bool | Array
) -> Array:
    """A site's residual once it is known whether the round counts.

    Args:
        before: e_m before the round.
        after: e_m after encoding, decay * (u - c).
        c: what the site sent, decoded.
        finite: whether this site's own update was finite.
        skipped: whether any site's was not.

    Returns:
        `after`; in a skipped round `after + c` on a healthy site, which takes back what it sent, and
        `before` on the faulty one, which drops its window.
    """
    xp = backend.namespace(before)
    kept = xp.where(_flag(before, skipped), after + c, after)
    return xp.where(_flag(before, finite), kept, before)


def _flag(like: Array, value: bool | Array) -> Array:
    return backend.constant(like, value) != 0
