"""How a step's sequences are dealt over sites: evenly, as each site says, or by how fast sites are."""

from functools import lru_cache

from geosim.errors import UsageError
from geosim.scenario.scenario import Scenario
from geosim.scenario.site import Site
from geosim.scenario.workload import Workload


@lru_cache(maxsize=64)
def site_batches(scenario: Scenario) -> tuple[int, ...]:
    """Sequences an accelerator and step at each site; a site's share of a window's tokens, a_m, follows.

    What a site itself says goes first. By speed, the sequences of all accelerators together (as if all took
    `workload.batch_per_accelerator`, at most) are dealt so that sites take equally long, in whole sequences
    an accelerator, at least one each.

    Raises:
        UsageError: if speeds are asked for that are not known.
    """
    work = scenario.workload
    own = [site.batch_per_accelerator for site in scenario.sites]
    if work.batch == "equal":
        return tuple(work.batch_per_accelerator if batch is None else batch for batch in own)
    speeds = [_speed(work, site) for site in scenario.sites]
    ranks = [site.ranks for site in scenario.sites]
    total = work.batch_per_accelerator * scenario.ranks
    whole = sum(r * v for r, v in zip(ranks, speeds, strict=True))
    dealt = [max(1, int(total * v / whole)) for v in speeds]
    while sum(r * b for r, b in zip(ranks, dealt, strict=True)) > total:
        # One each for slow sites was more than their share: the site that is done last gives back.
        dealt[max((m for m, b in enumerate(dealt) if b > 1), key=lambda m: dealt[m] / speeds[m])] -= 1
    while True:
        left = total - sum(r * b for r, b in zip(ranks, dealt, strict=True))
        open_sites = [m for m, r in enumerate(ranks) if r <= left]
        if not open_sites:
            break
        # The next sequence goes where it is done first.
        dealt[min(open_sites, key=lambda m: (dealt[m] + 1) / speeds[m])] += 1
    return tuple(dealt)


def site_tokens(scenario: Scenario) -> tuple[int, ...]:
    """Tokens of a step at each site; a_m is a site's part of them.

    Not for a workload that states how a site divides a step (`parallel`): that has its own micro-batches.
    """
    batches = site_batches(scenario)
    return tuple(
        site.ranks * batch * scenario.workload.sequence
        for site, batch in zip(scenario.sites, batches, strict=True)
    )


def _speed(work: Workload, site: Site) -> float:
    """Of an accelerator, up to a factor that all sites have in common."""
    step = work.step_time_s if site.step_time_s is None else site.step_time_s
    if step is not None:
        return 1 / step
    try:
        return site.accelerator.peak_flops(work.precision)
    except UsageError as error:
        raise UsageError(f"workload.batch: 'by-speed' needs every site's speed: {error}") from None
