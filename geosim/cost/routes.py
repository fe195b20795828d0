"""Who sends what to whom in one exchange: a topology as a list of transfers with what each waits for."""

from dataclasses import dataclass

from geosim.errors import UsageError
from geosim.policy import Direct, FlatRing, Hub, Ring, Topology, Tree


@dataclass(frozen=True)
class Transfer:
    """`payloads` payloads from one site to another, once the transfers `needs` have arrived at the source."""

    source: int
    target: int
    payloads: int
    needs: tuple[int, ...] = ()


def make_routes(topology: Topology, names: tuple[str, ...]) -> tuple[Transfer, ...]:
    """The transfers after which every site has every other site's payload. Sites by index into `names`.

    Raises:
        UsageError: if the hub is not a site.
    """
    sites = len(names)
    if sites == 1 or isinstance(topology, FlatRing):
        return ()
    if isinstance(topology, Ring):
        return _ring(sites)
    if isinstance(topology, Hub):
        if topology.site is not None and topology.site not in names:
            raise UsageError(
                f"topology.site: no site is called '{topology.site}': sites are {', '.join(names)}"
            )
        return _hub(sites, names.index(topology.site) if topology.site else 0)
    if isinstance(topology, Tree):
        return _tree(sites)
    assert isinstance(topology, Direct)
    return tuple(Transfer(a, b, 1) for a in range(sites) for b in range(sites) if a != b)


def _ring(sites: int) -> tuple[Transfer, ...]:
    """In each of M - 1 hops a site passes on what it has just received."""
    out = [Transfer(a, (a + 1) % sites, 1) for a in range(sites)]
    for hop in range(1, sites - 1):
        out += [Transfer(a, (a + 1) % sites, 1, ((hop - 1) * sites + (a - 1) % sites,)) for a in range(sites)]
    return tuple(out)


def _hub(sites: int, hub: int) -> tuple[Transfer, ...]:
    """All payloads go to the hub, which sends each site the others' in one message."""
    leaves = [a for a in range(sites) if a != hub]
    up = [Transfer(a, hub, 1) for a in leaves]
    everything = tuple(range(len(up)))
    return tuple(up + [Transfer(hub, a, sites - 1, everything) for a in leaves])


def _tree(sites: int) -> tuple[Transfer, ...]:
    """A binary heap over the sites: subtrees' payloads go up, and what a subtree lacks comes down."""
    below = [1] * sites
    for a in range(sites - 1, 0, -1):
        below[(a - 1) // 2] += below[a]
    out: list[Transfer] = []
    up: dict[int, int] = {}

    def children(a: int) -> list[int]:
        return [b for b in (2 * a + 1, 2 * a + 2) if b < sites]

    for a in range(sites - 1, 0, -1):
        up[a] = len(out)
        out.append(Transfer(a, (a - 1) // 2, below[a], tuple(up[b] for b in children(a))))
    down: dict[int, int] = {}
    for a in range(sites):
        needs = tuple(up[b] for b in children(a)) + ((down[a],) if a else ())
        for b in children(a):
            down[b] = len(out)
            out.append(Transfer(a, b, sites - below[b], needs))
    return tuple(out)


def pairs(topology: Topology, routes: tuple[Transfer, ...], sites: int) -> tuple[tuple[int, int], ...]:
    """The directed pairs of sites that a topology sends over, in order of first use."""
    if isinstance(topology, FlatRing) and sites > 1:
        return tuple((a, (a + 1) % sites) for a in range(sites))
    return tuple(dict.fromkeys((t.source, t.target) for t in routes))
