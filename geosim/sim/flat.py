"""Plain data parallelism over all ranks of all sites: a step ends when its last bucket is reduced.

Sites meet in every bucket, so a step is a recurrence and needs no events: bucket i starts when the slowest
site has its gradients and bucket i - 1 is through.
"""

import numpy as np

from geosim.cost.problem import Problem
from geosim.sim.jitter import SiteJitter
from geosim.sim.record import PARTS, Record, Tracer

WARM_STEPS = 1


def run_flat(problem: Problem, seed: int, windows: int, tracer: Tracer | None = None) -> Record:
    """`windows` steps with one seed."""
    flat = problem.flat
    assert flat is not None
    steps = windows + WARM_STEPS
    compute = np.stack(
        [SiteJitter(seed, m, s.step_s, s.step_cv).draw_each(steps) for m, s in enumerate(problem.sites)]
    )
    update = np.array([site.update_s for site in problem.sites])
    done = 1 - flat.backward_share * (1 - flat.ready)
    ends = np.zeros(steps)
    waits = np.zeros((len(problem.sites), steps))
    now = 0.0
    for i in range(steps):
        duration = [d for at, d in flat.durations if at <= now][-1]
        total = np.cumsum(duration)
        ready = (update[:, None] + compute[:, i, None] * done).max(axis=0)
        starts = np.maximum.accumulate(ready - (total - duration)) + (total - duration)
        took = float(starts[-1] + duration[-1])
        waits[:, i] = took - compute[:, i] - update
        if tracer is not None:
            for site, u, c in zip(problem.sites, update, compute[:, i], strict=True):
                tracer.span(site.name, "train", "update", now, now + u)
                tracer.span(site.name, "train", "compute 1 steps", now + u, now + u + c)
                tracer.span(site.name, "train", "wait", now + u + c, now + took)
            for b, (begin, length) in enumerate(zip(starts, duration, strict=True)):
                tracer.span("ring", "all-reduce", f"bucket {b}", now + begin, now + begin + length)
        now += took
        ends[i] = now
    kept = slice(WARM_STEPS, None)
    parts = dict.fromkeys(PARTS, 0.0)
    parts["compute"] = float(compute[:, kept].mean(axis=0).sum())
    parts["update"] = float(update.mean()) * windows
    parts["wait"] = float(waits[:, kept].mean(axis=0).sum())
    step_s = np.diff(ends)
    last = [d for at, d in flat.durations if at <= now][-1]
    return Record(
        step_s=step_s,
        exchange_s=np.full(windows, float(last.sum())),
        parts_s=parts,
        steps=windows,
        elapsed_s=float(ends[-1] - ends[0]),
        sites_s=tuple(
            (float(c), float(w))
            for c, w in zip(compute[:, kept].sum(axis=1), waits[:, kept].sum(axis=1), strict=True)
        ),
        link_bytes=tuple(windows * flat.payload_bytes * link.wire_per_payload for link in problem.links),
    )
