"""Who sends to whom. Sites forward payloads unchanged, so the result is the same for every topology."""

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from geosim.errors import UsageError
from geosim.spec import ByKind, Spec

Pair = tuple[str, str]


def _each_once(names: tuple[str, ...] | None) -> tuple[str, ...] | None:
    for name in names or ():
        if (names or ()).count(name) > 1:
            raise UsageError(f"names {name} twice: name each site once")
    return names


def _no_cycle(links: tuple[Pair, ...] | None) -> tuple[Pair, ...] | None:
    group = {name: {name} for link in links or () for name in link}
    for a, b in links or ():
        if b in group[a]:
            raise UsageError(f"{a} and {b} are joined twice: a tree has one way between two sites")
        together = group[a] | group[b]
        group |= dict.fromkeys(together, together)
    return links


class Direct(Spec):
    """Every site sends its payload to every other."""

    kind: Literal["direct"] = "direct"


class Ring(Spec):
    """Payloads travel around the ring of sites, M - 1 hops, in `order`; None: as the scenario lists them."""

    kind: Literal["ring"] = "ring"
    order: Annotated[tuple[str, ...] | None, AfterValidator(_each_once)] = None


class Hub(Spec):
    """All payloads go to one site (by name; the first one by default), which forwards the others' to each."""

    kind: Literal["hub"] = "hub"
    site: str | None = None


class Tree(Spec):
    """Payloads spread along the branches of a tree over the sites, the pairs `links`.

    None: a binary tree over the sites in order.
    """

    kind: Literal["tree"] = "tree"
    links: Annotated[tuple[Pair, ...] | None, AfterValidator(_no_cycle)] = None


class FlatRing(Spec):
    """No hierarchy: one all-reduce ring over the ranks of all sites, every step, as plain DDP does it.

    Buckets leave as the backward pass completes them.
    """

    kind: Literal["flat-ring"] = "flat-ring"


Topology = Annotated[Direct | Ring | Hub | Tree | FlatRing, Field(discriminator="kind"), ByKind]
