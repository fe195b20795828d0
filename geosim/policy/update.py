"""What a site sends, and what the sum over sites is used for."""

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from geosim.errors import UsageError
from geosim.spec import ByKind, Spec, positive


def _momentum(value: float) -> float:
    if not 0 <= value < 1:
        raise UsageError("must be at least 0 and below 1")
    return value


class OuterSGD(Spec):
    """theta <- theta - lr d."""

    kind: Literal["sgd"] = "sgd"
    lr: Annotated[float, AfterValidator(positive)] = 1.0


class OuterMomentum(Spec):
    """v <- momentum v + d; theta <- theta - lr v. With `nesterov`: theta <- theta - lr (d + momentum v)."""

    kind: Literal["momentum"] = "momentum"
    lr: Annotated[float, AfterValidator(positive)] = 0.7
    momentum: Annotated[float, AfterValidator(_momentum)] = 0.9
    nesterov: bool = True


Outer = Annotated[OuterSGD | OuterMomentum, Field(discriminator="kind"), ByKind]


class Accumulate(Spec):
    """One global optimizer step a window; parameters are fixed inside it.

    `send` is what travels: the window's mean gradient, or the site's momentum of it
    (1-bit Adam after warm-up, arXiv 2102.02888; DGC, arXiv 1712.01887) with the coefficient `momentum`.
    """

    kind: Literal["accumulate"] = "accumulate"
    send: Literal["gradient", "momentum"] = "gradient"
    momentum: Annotated[float, AfterValidator(_momentum)] = 0.9


class Local(Spec):
    """Local optimizer steps, then an outer step on the mean change (local SGD; DiLoCo, arXiv 2311.08105)."""

    kind: Literal["local"] = "local"
    outer: Outer = OuterMomentum()


Update = Annotated[Accumulate | Local, Field(discriminator="kind"), ByKind]
