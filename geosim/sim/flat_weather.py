"""Plain data parallelism while links vary and things fail: the recurrence of `flat`, bucket by bucket.

A bucket's all-reduce gets on at the pace that the links allow at each moment: what takes d seconds under the
links of now is done by dt / d in dt. Trunks and sites' ways out and in are shared as over steady links. A
link that is down stops the ring.
"""

import math
from dataclasses import dataclass, replace

import numpy as np
import simpy

from geosim.cost.flat import shared_limits
from geosim.cost.problem import LinkPlan, Problem
from geosim.sim.flat import WARM_STEPS
from geosim.sim.inject import Injected, stretched
from geosim.sim.jitter import SiteJitter
from geosim.sim.record import PARTS, Record, Tracer
from geosim.sim.weather import Weather


@dataclass(frozen=True)
class FlatRun:
    """Steps of plain data parallelism.

    Attributes:
        ends_s: of each step. compute_s, waits_s: of each site and step. last_s: the all-reduce of a step at
            the end. again_bytes: sent in vain over each link. failed_at_s: as in `Weather`.
    """

    ends_s: np.ndarray
    compute_s: np.ndarray
    waits_s: np.ndarray
    last_s: float
    again_bytes: tuple[float, ...]
    failed_at_s: float


class _Clock:
    """The links of a ring in time, as durations of its buckets."""

    def __init__(self, problem: Problem, seed: int, injected: Injected, tracer: Tracer | None) -> None:
        self._problem = problem
        self._env = simpy.Environment()
        self._plans = list(problem.links)
        self._rates = [link.path.rate_bytes_per_s for link in problem.links]
        self._limits = shared_limits(problem.links, problem.sites, problem.trunks)
        self._made: np.ndarray | None = None
        self._known: dict[tuple[object, ...], np.ndarray] = {}
        self.restarts = 0
        names = tuple(site.name for site in problem.sites)
        self.weather = Weather(self._env, problem.links, names, seed, self, tracer)
        injected.into(self.weather, 1 + max((link.number for link in problem.links), default=-1))

    def set_rate(self, link: int, bytes_per_s: float) -> None:
        self._rates[link], self._made = bytes_per_s, None

    def set_plan(self, link: int, plan: LinkPlan) -> None:
        self._plans[link], self._made = plan, None

    def is_busy(self, link: int) -> bool:
        return True

    def restart(self, link: int) -> None:
        self.restarts += 1

    def forward(self, now: float) -> None:
        """Let all happen that happens until `now`."""
        while self._env.peek() <= now:
            self._env.step()

    @property
    def next_s(self) -> float:
        """When the links change next."""
        return float(self._env.peek())

    def durations(self) -> np.ndarray:
        """Seconds of each bucket as the links are; infinite while one is down."""
        if self._made is None:
            flat = self._problem.flat
            assert flat is not None
            if flat.made is None:
                return flat.durations[0][1]
            crossings = [
                (replace(plan.path, rate_bytes_per_s=rate), limit, plan.wire_per_payload)
                for plan, rate, limit in zip(self._plans, self._rates, self._limits, strict=True)
            ]
            key = tuple(crossings)
            if key not in self._known:
                down = min(self._rates) == 0
                self._known[key] = np.full(len(flat.ready), math.inf) if down else flat.made.times(crossings)
            self._made = self._known[key]
        return self._made


def run(
    problem: Problem, seed: int, steps: int, injected: Injected | None = None, tracer: Tracer | None = None
) -> FlatRun:
    """`steps` steps with one seed."""
    flat, made = problem.flat, injected or Injected()
    assert flat is not None
    clock = _Clock(problem, seed, made, tracer)
    sites = problem.sites
    compute = np.stack(
        [SiteJitter(seed, m, s.step_s, s.step_cv).draw_each(steps) for m, s in enumerate(sites)]
    )
    slow = [made.site(m) for m in range(len(sites))]
    update = np.array([site.update_s for site in sites])
    done = 1 - flat.backward_share * (1 - flat.ready)
    ends, waits = np.zeros(steps), np.zeros((len(sites), steps))
    now, again = 0.0, 0.0
    for i in range(steps):
        pause = made.saves(i, i + 1) * made.save_s
        for m, faults in enumerate(slow):
            if faults:
                compute[m, i] = stretched(compute[m, i], now + pause + update[m], faults)
        ready = now + pause + (update[:, None] + compute[:, i, None] * done).max(axis=0)
        end, more = _reduce(clock, ready, flat.made.buckets if flat.made else np.zeros(len(ready)))
        again += more
        waits[:, i] = end - now - pause - compute[:, i] - update
        if tracer is not None:
            for site, u, c in zip(sites, update, compute[:, i], strict=True):
                begun = now + pause
                tracer.span(site.name, "train", "update", begun, begun + u)
                tracer.span(site.name, "train", "compute 1 steps", begun + u, begun + u + c)
                tracer.span(site.name, "train", "wait", begun + u + c, end)
        now = ends[i] = end
    waste = flat.made.crossing(again) if flat.made else ()
    last = clock.durations()
    total = float(last.sum()) if np.isfinite(last).all() else 0.0
    return FlatRun(ends, compute, waits, total, waste, clock.weather.failed_at_s)


def _reduce(clock: _Clock, ready: np.ndarray, size_bytes: np.ndarray) -> tuple[float, float]:
    """When the last bucket of a step is reduced, and the bytes of buckets that went in vain."""
    clock.forward(float(ready[0]))
    duration = clock.durations()
    total = np.cumsum(duration)
    if np.isfinite(total[-1]):
        starts = np.maximum.accumulate(ready - (total - duration)) + (total - duration)
        end = float(starts[-1] + duration[-1])
        if end <= clock.next_s:
            return end, 0.0
    now, again = 0.0, 0.0
    for b in range(len(ready)):
        now, left, before = max(now, float(ready[b])), 1.0, clock.restarts
        while True:
            clock.forward(now)
            if clock.restarts > before:
                again += (1 - left) * float(size_bytes[b])
                left, before = 1.0, clock.restarts
            each, until = float(clock.durations()[b]), clock.next_s
            if now + left * each <= until:
                now += left * each
                break
            left -= (until - now) / each
            now = until
    return now, again


def run_varying(problem: Problem, seed: int, windows: int, tracer: Tracer | None = None) -> Record:
    """What `flat.run_flat` gives, over links that vary."""
    flat = problem.flat
    assert flat is not None
    made = run(problem, seed, windows + WARM_STEPS, None, tracer)
    kept = slice(WARM_STEPS, None)
    by_site = tuple(
        dict.fromkeys(PARTS, 0.0)
        | {"compute": float(c.sum()), "update": site.update_s * windows, "wait": float(w.sum())}
        for c, site, w in zip(made.compute_s[:, kept], problem.sites, made.waits_s[:, kept], strict=True)
    )
    parts = {part: float(np.mean([mine[part] for mine in by_site])) for part in PARTS}
    sent = [windows * p + w for p, w in zip(flat.payload_bytes, made.again_bytes, strict=True)]
    return Record(
        step_s=np.diff(made.ends_s),
        exchange_s=np.full(windows, made.last_s),
        parts_s=parts,
        steps=windows,
        elapsed_s=float(made.ends_s[-1] - made.ends_s[0]),
        site_parts_s=by_site,
        link_bytes=tuple(s * link.wire_per_payload for s, link in zip(sent, problem.links, strict=True)),
    )
