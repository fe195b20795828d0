"""What makes a WAN link vary: a family of specs, each a random or scheduled process of a link's condition.

A process is a sequence of changes (from second, condition), from 0 s on. Both directions of a link follow
the same draws. Several compose: shares of the bandwidth multiply, losses add up as independent ones do, and a
link is up while all of them say so.
"""

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeVar

from pydantic import AfterValidator, Field

from geosim.spec import Seconds, Spec, within
from geosim.units import TIME

if TYPE_CHECKING:
    import numpy as np

SpecT = TypeVar("SpecT", bound="Variation")
Loss = Annotated[float, Field(ge=0, lt=1)]
Stay = Annotated[Seconds, AfterValidator(within("10 ms", "1000000 h", TIME))]


class Condition(NamedTuple):
    """What a process does to a link for now; None leaves the link's own value."""

    share: float = 1.0
    loss: float = 0.0
    up: bool = True
    bandwidth_bytes_per_s: Any = None
    rtt_s: Any = None
    own_loss: float | None = None


Changes = Iterator[tuple[float, Condition]]


class Variation(Spec):
    """Base of the family."""

    @property
    def is_random(self) -> bool:
        """Whether runs differ by seed."""
        return False

    @property
    def is_constant(self) -> bool:
        """Whether the condition never changes."""
        return False

    @abstractmethod
    def mean(self) -> Condition:
        """The average over a long time."""

    @abstractmethod
    def changes(self, random: "np.random.Generator") -> Changes:
        """The process: times rise from 0, seconds."""

    def scaled(self: SpecT, factor: Any) -> SpecT:
        """The same of a link with `factor` times the bandwidth."""
        return self


def alternate(
    random: "np.random.Generator", states: Sequence[Condition], means_s: Sequence[float]
) -> Changes:
    """States in turn, each for an exponential time; the first one as often as it is there on average."""
    at = 0 if random.random() * (means_s[0] + means_s[1]) < means_s[0] else 1
    now = 0.0
    while True:
        yield now, states[at]
        now += means_s[at] * random.standard_exponential()
        at = 1 - at
