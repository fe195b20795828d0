"""Who sends what to whom in one exchange: a topology as a list of transfers with what each waits for.

A site that has itself entered the exchange passes payloads on unchanged, slice by slice as they come. Those
that leave over one link go in the order in which they become ready, which the engine prices as one after
another.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from heapq import heappop, heappush

from geosim.errors import UsageError
from geosim.policy.topology import Direct, FlatRing, Hub, Ring, Topology, Tree


@dataclass(frozen=True)
class Transfer:
    """The payload of site `origin` from one site to another, sites by number.

    `need`: index of the transfer that brings it to `source`; None where `source` is the origin.
    """

    source: int
    target: int
    origin: int
    need: int | None = None


Onward = Callable[[int, int, int], Iterable[int]]


def make_routes(topology: Topology, names: tuple[str, ...]) -> tuple[Transfer, ...]:
    """The transfers after which every site has every other site's payload, each once.

    Sites by index into `names`. A transfer comes after the one that it needs.

    Raises:
        UsageError: if the hub is no site, or a ring or tree does not name every site.
    """
    sites = len(names)
    if sites == 1 or isinstance(topology, FlatRing):
        return ()
    if isinstance(topology, Direct):
        everyone = range(sites)
        return _spread(sites, lambda origin, site, _: everyone if site == origin else ())
    if isinstance(topology, Ring):
        order = _ring(topology, names)
        after = dict(zip(order, (*order[1:], order[0]), strict=True))
        return _spread(sites, lambda _origin, site, _before: (after[site],))
    beside: list[list[int]] = [[] for _ in names]
    for a, b in _branches(topology, names):
        beside[a].append(b)
        beside[b].append(a)
    return _spread(sites, lambda _origin, site, before: (b for b in beside[site] if b != before))


def _spread(sites: int, onward: Onward) -> tuple[Transfer, ...]:
    """All payloads from hop to hop; `onward`: (origin, site, where it came from) -> where it goes next."""
    out: list[Transfer] = []
    here: list[tuple[int, int, int, int | None]] = [(m, m, m, None) for m in range(sites)]
    while here:
        there: list[tuple[int, int, int, int | None]] = []
        for origin, site, before, need in here:
            for target in onward(origin, site, before):
                if target != origin:
                    there.append((origin, target, site, len(out)))
                    out.append(Transfer(site, target, origin, need))
        here = there
    return tuple(out)


def _ring(topology: Ring, names: tuple[str, ...]) -> list[int]:
    if topology.order is None:
        return list(range(len(names)))
    _check_all("topology.order", topology.order, names)
    return [names.index(name) for name in topology.order]


def _branches(topology: Hub | Tree, names: tuple[str, ...]) -> list[tuple[int, int]]:
    """The pairs of sites that a hub or tree joins."""
    if isinstance(topology, Hub):
        if topology.site is not None and topology.site not in names:
            raise UsageError(
                f"topology.site: no site is called '{topology.site}': sites are {', '.join(names)}"
            )
        hub = names.index(topology.site) if topology.site else 0
        return [(hub, a) for a in range(len(names)) if a != hub]
    if topology.links is None:
        return [((a - 1) // 2, a) for a in range(1, len(names))]
    _check_all("topology.links", [name for link in topology.links for name in link], names)
    if len(topology.links) != len(names) - 1:
        raise UsageError(
            f"topology.links: {len(topology.links)} links leave sites apart: {len(names)} sites need "
            f"{len(names) - 1}"
        )
    return [(names.index(a), names.index(b)) for a, b in topology.links]


def _check_all(field: str, given: Iterable[str], names: tuple[str, ...]) -> None:
    given = list(given)
    for name in given:
        if name not in names:
            raise UsageError(f"{field}: no site is called '{name}': sites are {', '.join(names)}")
    for name in names:
        if name not in given:
            raise UsageError(f"{field}: leaves out site {name}: name all of {', '.join(names)}")


def forwarders(routes: tuple[Transfer, ...], origin: int, target: int) -> tuple[int, ...]:
    """The sites that pass on an origin's payload until it reaches `target`, in order."""
    here = next(t for t in routes if (t.origin, t.target) == (origin, target))
    out: list[int] = []
    while here.need is not None:
        out.append(here.source)
        here = routes[here.need]
    return tuple(reversed(out))


@lru_cache(maxsize=64)
def payload_times(routes: tuple[Transfer, ...]) -> int:
    """How long an exchange takes on links alike, without delays, in times that one payload takes a link."""
    later: list[list[int]] = [[] for _ in routes]
    for k, t in enumerate(routes):
        if t.need is not None:
            later[t.need].append(k)
    ready = [(0, k) for k, t in enumerate(routes) if t.need is None]
    free: dict[tuple[int, int], int] = {}
    last = 0
    while ready:
        at, k = heappop(ready)
        way = (routes[k].source, routes[k].target)
        free[way] = done = max(at, free.get(way, 0)) + 1
        last = max(last, done)
        for following in later[k]:
            heappush(ready, (done, following))
    return last


def pairs(topology: Topology, routes: tuple[Transfer, ...], sites: int) -> tuple[tuple[int, int], ...]:
    """The directed pairs of sites that a topology sends over, in order of first use."""
    if isinstance(topology, FlatRing) and sites > 1:
        return tuple((a, (a + 1) % sites) for a in range(sites))
    return tuple(dict.fromkeys((t.source, t.target) for t in routes))
