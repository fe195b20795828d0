"""The topologies that are worth trying among some sites: all where they are few, else a stated choice.

Rings: every order of up to six sites. Beyond, from each site to the nearest one left, improved by reversing
stretches while that shortens the way (2-opt; Croes, Operations Research 1958). Trees: every one of up to five
sites (Cayley's M^(M-2), by their Pruefer codes). Beyond, the tree of the shortest links (Prim) and, from each
site, that of the shortest ways (Dijkstra). Hubs: every site. A link is as long as a payload takes over it.
"""

from collections.abc import Iterator
from itertools import permutations, product

from geosim.policy import Direct, Hub, Ring, SyncPolicy, Topology, Tree, make_layout
from geosim.scenario import Scenario

ALL_RINGS = 6
ALL_TREES = 5
_FAR = float("inf")

Lengths = list[list[float]]


def topologies(scenario: Scenario, policy: SyncPolicy) -> list[Topology]:
    """Every topology to try that has a link wherever it sends, the simplest kinds first, none twice."""
    names = [site.name for site in scenario.sites]
    if len(names) < 2:
        return []
    far = lengths(scenario, policy)
    count = len(names)
    out: list[Topology] = []
    if all(far[a][b] < _FAR for a in range(count) for b in range(count) if a != b):
        out.append(Direct())
    if count == 2:
        return out
    for hub in range(count):
        if all(far[hub][a] < _FAR and far[a][hub] < _FAR for a in range(count) if a != hub):
            out.append(Hub(site=names[hub]))
    for order in _rings(far):
        if all(far[a][b] < _FAR for a, b in zip(order, (*order[1:], order[0]), strict=True)):
            out.append(Ring(order=tuple(names[m] for m in order)))
    seen = set()
    for tree in _trees(far):
        links = frozenset(frozenset(pair) for pair in tree)
        star = any(all(m in link for link in links) for m in range(count))
        if links not in seen and not star and all(far[a][b] < _FAR for a, b in tree):
            seen.add(links)
            out.append(Tree(links=tuple((names[a], names[b]) for a, b in tree)))
    return out


def lengths(scenario: Scenario, policy: SyncPolicy) -> Lengths:
    """Seconds that a site's payload takes from site to site; infinite where no link joins them."""
    shards = policy.shards or min(site.ranks for site in scenario.sites)
    layout = make_layout(scenario.workload.model.param_table(), policy, shards)
    size = sum(layout.fragment_bytes(f) for f in range(len(layout.fragments)))
    out = []
    for a in scenario.sites:
        row = []
        for b in scenario.sites:
            link = scenario.link(a.name, b.name) if a is not b else None
            row.append(_FAR if link is None else link.rtt_s / 2 + size / link.bandwidth(a.name))
        out.append(row)
    return out


def _rings(far: Lengths) -> Iterator[tuple[int, ...]]:
    count = len(far)
    if count <= ALL_RINGS:
        yield from ((0, *rest) for rest in permutations(range(1, count)))
        return
    seen = set()
    for first in range(count):
        order = _shortened(_nearest(far, first), far)
        for way in (order, order[::-1]):
            at = way.index(0)
            turned = (*way[at:], *way[:at])
            if turned not in seen:
                seen.add(turned)
                yield turned


def _nearest(far: Lengths, first: int) -> tuple[int, ...]:
    order, left = [first], set(range(len(far))) - {first}
    while left:
        order.append(min(sorted(left), key=lambda m: far[order[-1]][m]))
        left.remove(order[-1])
    return tuple(order)


def _shortened(order: tuple[int, ...], far: Lengths) -> tuple[int, ...]:
    """2-opt: each payload goes all the way round, and the longest link holds up all that follow."""

    def length(way: tuple[int, ...]) -> tuple[float, float]:
        edges = [far[a][b] for a, b in zip(way, (*way[1:], way[0]), strict=True)]
        return max(edges), sum(edges)

    best = length(order)
    while True:
        turned = [
            (*order[:i], *order[i:j][::-1], *order[j:])
            for i in range(1, len(order) - 1)
            for j in range(i + 2, len(order) + 1)
        ]
        found = min(turned, key=length)
        if length(found) >= best:
            return order
        order, best = found, length(found)


def _trees(far: Lengths) -> Iterator[list[tuple[int, int]]]:
    count = len(far)
    if count <= ALL_TREES:
        yield from (_from_code(code, count) for code in product(range(count), repeat=count - 2))
        return
    both = [[max(far[a][b], far[b][a]) for b in range(count)] for a in range(count)]
    yield _grown(both, 0, ways=False)
    yield from (_grown(both, root, ways=True) for root in range(count))
    yield [((a - 1) // 2, a) for a in range(1, count)]


def _from_code(code: tuple[int, ...], count: int) -> list[tuple[int, int]]:
    """The tree of a Pruefer code."""
    degree = [1 + code.count(m) for m in range(count)]
    out = []
    for m in code:
        leaf = degree.index(1)
        out.append((leaf, m))
        degree[leaf] -= 1
        degree[m] -= 1
    a, b = (m for m in range(count) if degree[m] == 1)
    return [*out, (a, b)]


def _grown(both: Lengths, root: int, *, ways: bool) -> list[tuple[int, int]]:
    """A tree grown from a root: always the site that is nearest to it (Prim), or to the root (Dijkstra)."""
    at: dict[int, float] = {root: 0.0}
    out: list[tuple[int, int]] = []
    while len(at) < len(both):
        reach = [
            ((at[a] if ways else 0.0) + both[a][b], a, b) for a in at for b in range(len(both)) if b not in at
        ]
        length, a, b = min(reach)
        at[b] = length
        out.append((a, b))
    return out


def way_words(topology: Topology) -> str:
    """A topology with its sites, in one line."""
    if isinstance(topology, Ring) and topology.order is not None:
        return "ring " + " > ".join((*topology.order, topology.order[0]))
    if isinstance(topology, Hub) and topology.site is not None:
        return f"hub {topology.site}"
    if isinstance(topology, Tree) and topology.links is not None:
        return "tree " + ", ".join(_chains(topology.links))
    return topology.kind


def _chains(links: tuple[tuple[str, str], ...]) -> list[str]:
    """A tree's links, those that follow each other joined, as in "a - b - c, b - d"."""
    left = [tuple(link) for link in links]
    out: list[list[str]] = []
    while left:
        ends = [name for link in left for name in link]
        # From an end of the tree, or where a branch leaves what is written already.
        written = {name for chain in out for name in chain}
        first = min((n for n in ends if (n in written if out else ends.count(n) == 1)), key=ends.index)
        chain = [first]
        while True:
            step = next((link for link in left if chain[-1] in link), None)
            if step is None:
                break
            left.remove(step)
            chain.append(step[1] if step[0] == chain[-1] else step[0])
        out.append(chain)
    return [" - ".join(chain) for chain in out]
