"""When things fail: the faults of a horizon, drawn so that more of them are always the same ones and further.

A Poisson process of rate r is the part below r of one in the plane of time and rate (thinning; Lewis and
Shedler 1979). So a shorter time between failures, or more accelerators, adds faults and moves none, and two
policies meet the same faults.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from geosim.scenario import Scenario

Kind = Literal["accelerator", "site", "link", "straggler"]
KINDS: tuple[Kind, ...] = ("accelerator", "site", "link", "straggler")
_STREAM = 3  # of random numbers
_LEAST_RATE = 1e-12  # per second


@dataclass(frozen=True)
class Fault:
    """One fault.

    Attributes:
        kind: what fails. where: number of the site, or of the link in the scenario.
        at_s, lasts_s: when and how long; an accelerator's loss is all in the restart.
        phase: where in a window it falls, 0 to 1.
    """

    kind: Kind
    where: int
    at_s: float
    lasts_s: float
    phase: float


def draw_faults(scenario: Scenario, horizon_s: float, seed: int) -> list[Fault]:
    """All faults of a horizon, by time; none without `scenario.faults`."""
    made = scenario.faults
    out: list[Fault] = []
    if made is None:
        return out
    ranks = [site.ranks for site in scenario.sites]
    if made.accelerator is not None:
        for m, n in enumerate(ranks):
            out += _process("accelerator", m, n / made.accelerator.mtbf_s, 0.0, horizon_s, seed)
    if made.site is not None:
        for m in range(len(ranks)):
            out += _process("site", m, 1 / made.site.mtbf_s, made.site.lasts_s, horizon_s, seed)
    if made.link is not None:
        for i in range(len(scenario.wan)):
            out += _process("link", i, 1 / made.link.mtbf_s, made.link.lasts_s, horizon_s, seed)
    if made.straggler is not None:
        for m, n in enumerate(ranks):
            slow = made.straggler
            out += _process("straggler", m, n / slow.mtbf_s, slow.lasts_s, horizon_s, seed)
    return sorted(out, key=lambda fault: (fault.at_s, KINDS.index(fault.kind), fault.where))


def _process(
    kind: Kind, where: int, rate: float, lasts_s: float, horizon_s: float, seed: int
) -> Iterator[Fault]:
    """The faults of one thing: bands of the plane, each twice as high as the one below, with own draws."""
    low, high, band = 0.0, _LEAST_RATE, 0
    while low < rate:
        random = np.random.default_rng([seed, _STREAM, KINDS.index(kind), where, band])
        number = int(random.poisson((high - low) * horizon_s))
        heights = low + (high - low) * random.random(number)
        times, phases = horizon_s * random.random(number), random.random(number)
        lasting = lasts_s * random.standard_exponential(number)
        for i in np.flatnonzero(heights < rate):
            yield Fault(kind, where, float(times[i]), float(lasting[i]), float(phases[i]))
        low, high, band = high, 2 * high, band + 1
