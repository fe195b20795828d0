"""Which values of an update travel. Ties go to the lower index, everywhere."""

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from geosim.errors import UsageError
from geosim.spec import ByKind, Spec


def _ratio(value: float) -> float:
    if not 0 < value <= 1:
        raise UsageError("must be above 0 and at most 1 (0.01 keeps 1 %)")
    return value


def _scope(value: object) -> object:
    if isinstance(value, bool) or not (
        value in ("fragment", "piece") or (isinstance(value, int) and 16 <= value <= 1 << 20)
    ):
        raise UsageError("must be 'fragment', 'piece' or a block size from 16 to 1048576")
    return value


Ratio = Annotated[float, AfterValidator(_ratio)]
Scope = Annotated[Literal["fragment", "piece"] | int, AfterValidator(_scope)]


def kept(numel: int, ratio: float) -> int:
    """How many of `numel` values a ratio keeps: rounded half up, at least one of a non-empty set."""
    if numel == 0:
        return 0
    return max(1, min(numel, int(numel * ratio + 0.5)))


class Dense(Spec):
    """Everything travels."""

    kind: Literal["dense"] = "dense"


class TopK(Spec):
    """The largest magnitudes: of the whole fragment, of each piece (one tensor's shard), or of each block.

    A last partial block keeps the same ratio of its own length.
    """

    kind: Literal["topk"] = "topk"
    ratio: Ratio = 0.01
    scope: Scope = "piece"


class RandomK(Spec):
    """As many values at positions drawn from (seed, round, fragment, shard): positions need not travel."""

    kind: Literal["randomk"] = "randomk"
    ratio: Ratio = 0.01
    scope: Scope = "piece"


Select = Annotated[Dense | TopK | RandomK, Field(discriminator="kind"), ByKind]
