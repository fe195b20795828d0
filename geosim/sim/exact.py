"""Faults without short cuts: the engine runs all of a horizon, from each loss to the next one.

For short horizons, and to hold `goodput` against.
"""

import math

import numpy as np

from geosim.cost.problem import Problem
from geosim.scenario import Scenario
from geosim.scenario.faults import Faults
from geosim.sim.faults import Fault, draw_faults
from geosim.sim.impact import course, patience_of
from geosim.sim.inject import Injected, Slow
from geosim.sim.record import Tracer


def useful_windows(
    scenario: Scenario,
    problem: Problem,
    window_s: float,
    horizon_s: float,
    seed: int,
    tracer: Tracer | None = None,
) -> float:
    """Windows that count at the end of a horizon, in parts of the one under way too.

    The run starts cold, and again after each loss. `on_site_loss` must be `wait`.
    """
    made = scenario.faults or Faults()
    faults = draw_faults(scenario, horizon_s, seed)
    interval = problem.policy.interval
    save_steps = max(1, round(made.checkpoint.interval_s / (window_s / interval)))
    save = save_steps / interval
    saved, now = 0.0, 0.0
    losses = [
        (f.at_s, f.lasts_s + made.restart_s, f.where) for f in faults if f.kind in ("accelerator", "site")
    ]
    while True:
        ahead = [loss for loss in losses if loss[0] >= now]
        until = min(ahead[0][0] if ahead else math.inf, horizon_s)
        view = Injected(
            slow=tuple(_slow(f, now, made) for f in faults if f.kind == "straggler" and _ends(f) > now),
            down=_outages(faults, now),
            patience=patience_of(made),
            save_steps=save_steps,
            save_s=made.checkpoint.time_s,
        )
        count = math.ceil((until - now) / window_s) + 2
        shown = Tracer() if tracer is not None else None
        run = course(problem, seed, count, view, shown)
        failed = now + run.failed_at_s
        end = min(until, failed)
        windows, times = np.arange(len(run.ends_s) + 1), np.concatenate([[0.0], run.ends_s])
        reached = float(np.interp(end - now, times, windows))
        if tracer is not None and shown is not None:
            tracer.spans += [
                (row, track, name, now + a, min(now + b, end))
                for row, track, name, a, b in shown.spans
                if now + a < end
            ]
        if end >= horizon_s:
            return saved + reached
        kept = math.floor(reached / save)
        if kept and np.interp(kept * save, windows, times) + made.checkpoint.time_s > end - now:
            kept -= 1  # it was still being written
        saved += kept * save
        if failed < until:
            back = max(
                [end + made.restart_s, *(_ends(f) for f in faults if f.kind == "link" and f.at_s < end)]
            )
        else:
            back = end + ahead[0][1]
        back = _again(losses, end, back)
        if tracer is not None:
            for site in problem.sites:
                tracer.span(site.name, "faults", "restart", end, min(back, horizon_s))
        now = back
        if now >= horizon_s:
            return saved


def _again(losses: list[tuple[float, float, int]], start: float, back: float) -> float:
    """When a run is back that further losses keep from restarting."""
    for at, down, _ in losses:
        if start < at < back:
            back = max(back, at + down)
    return back


def _ends(fault: Fault) -> float:
    return fault.at_s + fault.lasts_s


def _slow(fault: Fault, origin_s: float, made: Faults) -> tuple[int, Slow]:
    assert made.straggler is not None
    start = max(0.0, fault.at_s - origin_s)
    return fault.where, Slow(start, _ends(fault) - origin_s, made.straggler.slowdown)


def _outages(faults: list[Fault], origin_s: float) -> tuple[tuple[int, float, float], ...]:
    """Outages from an origin on, those of a link that overlap as one."""
    out: list[tuple[int, float, float]] = []
    for fault in sorted((f for f in faults if f.kind == "link"), key=lambda f: (f.where, f.at_s)):
        start, end = max(0.0, fault.at_s - origin_s), _ends(fault) - origin_s
        if end <= 0:
            continue
        if out and out[-1][0] == fault.where and start <= out[-1][2]:
            out[-1] = (fault.where, out[-1][1], max(end, out[-1][2]))
        else:
            out.append((fault.where, start, end))
    return tuple(out)
