"""What faults leave of a policy's throughput over days: a walk from fault to fault.

Between faults a policy goes at its own speed without faults. Each straggler and outage slows it for a time,
by what the engine says that it costs (`impact`); of several at once the worst counts. A loss takes the run
back to its last checkpoint and stops it; a loss while it is stopped starts the restart again. Checkpoints lie
at fixed steps. So more faults are never better.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from geosim.cost.problem import Problem
from geosim.scenario import Scenario
from geosim.scenario.faults import Faults
from geosim.sim.faults import draw_faults
from geosim.sim.impact import Impacts

_TINY = 1e-9  # of a period between two checkpoints, against rounding
PARTS = ("stragglers", "links", "restarts", "checkpoints")


@dataclass(frozen=True)
class Stall:
    """Work goes at `1 - share` of its speed from `start_s` to `end_s`, for the reason `part`."""

    start_s: float
    end_s: float
    share: float
    part: str


@dataclass(frozen=True)
class Loss:
    """At `at_s` all work since the last checkpoint is lost, and nothing runs for `down_s`."""

    at_s: float
    down_s: float


@dataclass(frozen=True)
class Absence:
    """Site `site`, which makes `share` of the tokens, is not there; the others go on."""

    site: int
    start_s: float
    end_s: float
    share: float


@dataclass(frozen=True)
class Spent:
    """Where a horizon went, in seconds; goodput is `useful_s` over the horizon.

    `parts_s`: by `PARTS`. `counts`: faults by kind.
    """

    horizon_s: float
    useful_s: float
    parts_s: dict[str, float]
    counts: dict[str, int]

    @property
    def goodput(self) -> float:
        """Useful time over all time: the speed that is left of the one without faults and checkpoints."""
        return self.useful_s / self.horizon_s


def spend(scenario: Scenario, problem: Problem, window_s: float, horizon_s: float, seed: int) -> Spent:
    """Where the time of a policy goes.

    Args:
        scenario, problem: what is, and the policy in it.
        window_s: mean seconds of a window without faults.
        horizon_s: how long to look.
        seed: of the faults, and of the runs that price them.
    """
    made = scenario.faults or Faults()
    faults = draw_faults(scenario, horizon_s, seed)
    impacts = Impacts(problem, made, seed, window_s)
    stalls: list[Stall] = []
    losses: list[Loss] = []
    absences: list[Absence] = []
    ranks = [site.ranks for site in problem.sites]
    goes_on = made.on_site_loss == "continue" and problem.flat is None and len(ranks) > 1
    for fault in faults:
        if fault.kind in ("accelerator", "site"):
            down = fault.lasts_s + made.restart_s
            if goes_on:
                # Half a window is lost on average, and the next begins half a window later.
                share = ranks[fault.where] / sum(ranks)
                absences.append(Absence(fault.where, fault.at_s, fault.at_s + down + window_s, share))
            else:
                losses.append(Loss(fault.at_s, down))
            continue
        hit = impacts.of(fault)
        part = "links" if fault.kind == "link" else "stragglers"
        if hit.gives_up_after_s < math.inf:
            at = fault.at_s + hit.gives_up_after_s
            stalls.append(Stall(fault.at_s, at, 1.0, part))
            losses.append(Loss(at, max(made.restart_s, fault.at_s + fault.lasts_s - at)))
        elif hit.lost_s > 0:
            length = max(hit.lost_s, fault.lasts_s)
            stalls.append(Stall(fault.at_s, fault.at_s + length, hit.lost_s / length, part))
    step_s = window_s / problem.policy.interval
    every_s = max(1, round(made.checkpoint.interval_s / step_s)) * step_s
    useful, parts = walk(horizon_s, stalls, losses, absences, every_s, made.checkpoint.time_s)
    counts = {
        kind: sum(1 for f in faults if f.kind == kind)
        for kind in ("straggler", "link", "accelerator", "site")
    }
    return Spent(horizon_s, useful, parts, counts)


def walk(
    horizon_s: float,
    stalls: Sequence[Stall],
    losses: Sequence[Loss],
    absences: Sequence[Absence],
    save_every_s: float,
    save_s: float,
) -> tuple[float, dict[str, float]]:
    """Useful seconds of a horizon, and the rest by `PARTS`; together they are the horizon.

    Args:
        absences: of sites whose shares are 1 together, or none. Where all are away, the run is lost.
        save_every_s: work between two checkpoints; each then takes `save_s`.
    """
    edges = np.unique(np.clip([0.0, horizon_s, *_ends(stalls), *_ends(absences)], 0.0, horizon_s))
    lengths = np.diff(edges)
    speed, blame = np.ones(len(lengths)), np.full(len(lengths), -1)
    for stall in sorted(stalls, key=lambda s: s.share):
        hit = slice(*np.searchsorted(edges, (stall.start_s, stall.end_s)))
        speed[hit], blame[hit] = 1 - stall.share, PARTS.index(stall.part)
    away = np.zeros(len(lengths))
    for site in {a.site: a.share for a in absences}.items():
        gone = np.zeros(len(lengths), dtype=bool)
        for absence in absences:
            if absence.site == site[0]:
                gone[slice(*np.searchsorted(edges, (absence.start_s, absence.end_s)))] = True
        away += site[1] * gone
    ends = [*losses, *_nobody(edges, away), Loss(horizon_s, 0.0)]
    done, missed = _integral(edges, speed), _integral(edges, speed * np.minimum(away, 1.0))
    slowed = {p: _integral(edges, (1 - speed) * (blame == PARTS.index(p))) for p in PARTS[:2]}

    parts = dict.fromkeys(PARTS, 0.0)
    period = save_every_s + save_s
    work = absent = up = 0.0
    for loss in sorted(ends, key=lambda k: k.at_s):
        at = min(loss.at_s, horizon_s)
        if at > up:
            work += done(at) - done(up)
            absent += missed(at) - missed(up)
            for part, law in slowed.items():
                parts[part] += law(at) - law(up)
        if loss.at_s >= horizon_s:
            break
        work = math.floor(work / period + _TINY) * period
        up = max(up, loss.at_s + loss.down_s)
    full = math.floor(work / period + _TINY)
    parts["checkpoints"] = full * save_s + max(0.0, work - full * period - save_every_s)
    useful = max(0.0, work - parts["checkpoints"] - absent)
    parts["restarts"] = max(0.0, horizon_s - useful - sum(parts.values()))
    return useful, parts


def _ends(faults: Sequence[Stall] | Sequence[Absence]) -> list[float]:
    return [edge for fault in faults for edge in (fault.start_s, fault.end_s)]


def _nobody(edges: np.ndarray, away: np.ndarray) -> list[Loss]:
    """Losses where all sites are away at once: from the last one's leaving to the first one's return."""
    none = np.concatenate([[False], away > 1 - 1e-9, [False]])
    starts, stops = np.flatnonzero(none[1:] & ~none[:-1]), np.flatnonzero(none[:-1] & ~none[1:])
    return [Loss(float(edges[a]), float(edges[b] - edges[a])) for a, b in zip(starts, stops, strict=True)]


def _integral(edges: np.ndarray, values: np.ndarray) -> Callable[[float], float]:
    """The integral from 0 of what is constant between edges."""
    total = np.concatenate([[0.0], np.cumsum(values * np.diff(edges))])
    return lambda at: float(np.interp(at, edges, total))
