"""Who sends to whom. Hubs forward payloads unchanged, so the result is the same for every topology."""

from typing import Annotated, Literal

from pydantic import Field

from geosim.spec import ByKind, Spec


class Direct(Spec):
    """Every site sends its payload to every other."""

    kind: Literal["direct"] = "direct"


class Ring(Spec):
    """Payloads travel around the ring of sites, M - 1 hops."""

    kind: Literal["ring"] = "ring"


class Hub(Spec):
    """All payloads go to one site (by name; the first one by default), which forwards the others' to each."""

    kind: Literal["hub"] = "hub"
    site: str | None = None


class Tree(Spec):
    """A binary tree over the sites in order: payloads go up to the root and down to all."""

    kind: Literal["tree"] = "tree"


class FlatRing(Spec):
    """No hierarchy: one all-reduce ring over the ranks of all sites, every step, as plain DDP does it.

    Buckets leave as the backward pass completes them.
    """

    kind: Literal["flat-ring"] = "flat-ring"


Topology = Annotated[Direct | Ring | Hub | Tree | FlatRing, Field(discriminator="kind"), ByKind]
