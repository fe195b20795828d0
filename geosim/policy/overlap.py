"""When the result of an exchange is applied, relative to the step it left after."""

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from geosim.errors import UsageError
from geosim.spec import ByKind, Spec

Windows = Annotated[int, Field(ge=1, le=1000)]


def _unit_interval(value: float) -> float:
    if not 0 <= value <= 1:
        raise UsageError("must lie between 0 and 1")
    return value


class Blocking(Spec):
    """Wait for the exchange at the window's end."""

    kind: Literal["blocking"] = "blocking"


class Delayed(Spec):
    """At boundary t apply the result of window t - `windows`."""

    kind: Literal["delayed"] = "delayed"
    windows: Windows = 1


class Eager(Spec):
    """Delayed, the site's own fresh contribution standing in for its stale one (arXiv 2502.12996)."""

    kind: Literal["eager"] = "eager"
    windows: Windows = 1


class Streaming(Spec):
    """Fragments of strided layers leave staggered and are applied `steps` later (arXiv 2501.18512).

    `alpha` is the weight of the site's own parameters when a fragment is applied (0: take the global ones).
    """

    kind: Literal["streaming"] = "streaming"
    fragments: Annotated[int, Field(ge=1, le=65536)] = 4
    steps: Annotated[int, Field(ge=0, le=10_000_000)] = 5
    alpha: Annotated[float, AfterValidator(_unit_interval)] = 0.0


Overlap = Annotated[Blocking | Delayed | Eager | Streaming, Field(discriminator="kind"), ByKind]
GroupOverlap = Annotated[Blocking | Delayed, Field(discriminator="kind"), ByKind]


class Group(Spec):
    """A share of the parameter bytes, taken from the largest tensors down, with an overlap of its own."""

    share: Annotated[float, AfterValidator(_unit_interval)]
    overlap: GroupOverlap = Blocking()
