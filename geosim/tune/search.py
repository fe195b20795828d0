"""The search: screen the whole space with the closed form, run the engine on the front, choose."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from geosim.cost.calibration import Calibration
from geosim.cost.room import check_room, has_room
from geosim.errors import UsageError
from geosim.policy import Codec, SyncPolicy
from geosim.scenario import Scenario
from geosim.sim import Result, simulate
from geosim.sim.simulate import WINDOWS
from geosim.tune.front import first_within, front
from geosim.tune.order import Rank, rank
from geosim.tune.screen import Screen, screen
from geosim.tune.space import candidates, default_base, neighbours, space_around

TOLERANCE = 0.05
_NEAR = 8
_MARGIN = 0.02
_LEAST_GAIN = 0.03


@dataclass(frozen=True)
class Point:
    """One policy that the engine ran: what a site sends another a step, its rank and its result."""

    policy: SyncPolicy
    sent_bytes_per_step: float
    rank: Rank
    result: Result

    @property
    def relative(self) -> float:
        """Throughput over that of the same accelerators in one room."""
        return float(self.result.relative_to_colocated)

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "policy": self.policy.to_dict(),
            "sent_bytes_per_step": self.sent_bytes_per_step,
            "halvings": self.rank[0],
            "relative_to_colocated": self.relative,
            "tokens_per_s": self.result.tokens_per_s,
        }


@dataclass(frozen=True)
class Tuned:
    """What was tried and what was chosen.

    Attributes:
        chosen: the least aggressive point within the tolerance of the best.
        front: from the least aggressive point on; throughput rises strictly, by a gain worth a place, so that
            the fastest point may be missing.
        neighbours: by what is different, points one step less aggressive than the chosen one.
        best: throughput over co-located of the fastest point.
        fastest: that point.
        screened: how many policies the closed form looked at.
        held: fields of the base that were not up for choice.
    """

    chosen: Point
    front: tuple[Point, ...]
    neighbours: Mapping[str, Point]
    best: float
    fastest: Point
    screened: int
    held: tuple[str, ...] = ()


def tune(
    scenario: Scenario,
    base: SyncPolicy | None = None,
    max_interval: int | None = None,
    calibration: Calibration | None = None,
    seeds: int = 3,
    held: Collection[str] = (),
) -> Tuned:
    """The least aggressive policy within 5 % of the best reachable throughput.

    Every engine run draws from the same seeds, so that differences are the policies' and not the draws'.

    Args:
        scenario: with a WAN.
        base: what the search starts from; None: `default_base`.
        max_interval: the largest K; None: as `space_around` has it.
        calibration: measured constants.
        seeds: runs of the engine for each policy.
        held: fields that keep the base's value, as `held_fields` names them.

    Raises:
        UsageError: a scenario without a WAN, a base that leaves nothing to choose, or one for which memory
            has no room.
    """
    if not scenario.wan:
        raise UsageError(f"scenario {scenario.name}: no WAN link joins its sites: there is nothing to tune")
    base = base or default_base()
    space = space_around(base, max_interval, held)
    every = candidates(base, space)
    table = {place: policy for place, policy in every.items() if has_room(scenario, policy)}
    if not table:
        check_room(scenario, next(iter(every.values())))
    places, policies = list(table), list(table.values())
    screened = screen(scenario, policies, calibration)
    dense = float(screen(scenario, [base.model_copy(update={"codec": Codec()})], calibration).window_bytes[0])
    ranks = [rank(p, float(b), dense) for p, b in zip(policies, screened.window_bytes, strict=True)]
    order = sorted(range(len(policies)), key=lambda i: ranks[i])
    known: dict[int, Point] = {}
    reached = np.full(len(policies), np.nan)

    def run(shortlist: Iterable[int]) -> int:
        """Run what is not known yet and return the choice among all that is known."""
        for i in shortlist:
            if i not in known:
                found = simulate(scenario, policies[i], seeds=seeds, windows=WINDOWS, calibration=calibration)
                sent = float(screened.window_bytes[i]) / policies[i].interval
                known[i] = Point(policies[i], sent, ranks[i], found)
                reached[i] = found.relative_to_colocated
        return first_within(reached, [i for i in order if i in known], TOLERANCE)

    chosen, before = run(_shortlist(screened, order)), -1
    near: dict[str, int] = {}
    while chosen != before:
        beside = neighbours(space, places[chosen])
        near = {axis: places.index(place) for axis, place in beside.items() if place in table}
        before, chosen = chosen, run(near.values())
    best = float(np.nanmax(reached))
    line = front(reached, [i for i in order if i in known], _LEAST_GAIN * best, keep=chosen)
    return Tuned(
        chosen=known[chosen],
        front=tuple(known[i] for i in line),
        neighbours={axis: known[i] for axis, i in near.items()},
        best=best,
        fastest=known[int(np.nanargmax(reached))],
        screened=len(policies),
        held=tuple(held),
    )


def _shortlist(screened: Screen, order: Sequence[int]) -> list[int]:
    """What the engine runs: the front, and the first that could qualify were the closed form a little off."""
    best = float(screened.relative.max())
    line = front(screened.relative, order, _LEAST_GAIN * best)
    floor = best * (1 - TOLERANCE - _MARGIN)
    near = [i for i in order if screened.relative[i] >= floor][:_NEAR]
    return list(dict.fromkeys([*line, *near, int(screened.relative.argmax())]))
