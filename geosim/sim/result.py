"""What a simulation says: one frozen object whose JSON keys real runs share."""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from geosim.cost.problem import Problem
from geosim.sim.record import PARTS, Record


@dataclass(frozen=True)
class Spread:
    """Mean and percentiles of seconds."""

    mean: float
    p50: float
    p95: float
    p99: float


@dataclass(frozen=True)
class ExchangeTime:
    """Seconds of one WAN round, from its start in the background until its sum is ready."""

    mean: float
    p95: float


@dataclass(frozen=True)
class LinkUse:
    """One direction of a link: bytes on the wire a step (headers included), and the share of its capacity."""

    bytes_per_step: float
    utilization: float


@dataclass(frozen=True)
class SiteTime:
    """Seconds a step that a site computes, and that it waits; `idle_s`: of that, more than the site which
    waits least, so for slower ones and not for the wire."""

    compute_s: float
    wait_s: float
    idle_s: float


@dataclass(frozen=True)
class Result:
    """A policy in a scenario, simulated.

    Attributes:
        scenario, policy: names.
        step_time_s: over windows and seeds, seconds a step.
        compute_utilization: compute time over total time, mean over sites.
        exchange_time_s: of one WAN round.
        exposed_wan_s_per_step: what training waits for the WAN, seconds a step.
        tokens_per_s: of all sites together.
        relative_to_colocated: throughput over that of plain data parallelism of the same ranks in one room.
        links: by name, "from->to".
        sites: by name, what each does with a step.
        wan_bytes_vs_ddp: bytes on all links over those of plain fp32 data parallelism over all ranks.
        parts: seconds a step by what they went to, mean over sites.
        site_parts: the same of each site; they add up to its time a step.
        seeds, windows: how much was simulated.
    """

    scenario: str
    policy: str
    step_time_s: Spread
    compute_utilization: float
    exchange_time_s: ExchangeTime
    exposed_wan_s_per_step: float
    tokens_per_s: float
    relative_to_colocated: float
    links: dict[str, LinkUse]
    wan_bytes_vs_ddp: float
    parts: dict[str, float]
    site_parts: dict[str, dict[str, float]]
    sites: dict[str, SiteTime]
    seeds: int
    windows: int

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return asdict(self)


def summarize(problem: Problem, records: list[Record], windows: int) -> Result:
    """One result from the records of all seeds."""
    steps = sum(r.steps for r in records)
    elapsed = sum(r.elapsed_s for r in records)
    step = elapsed / steps
    each = np.concatenate([r.step_s for r in records])
    exchanges = np.concatenate([r.exchange_s for r in records])
    p50, p95, p99 = _percentiles(each, 50, 95, 99)
    exchange = ExchangeTime(0.0, 0.0)
    if len(exchanges):
        exchange = ExchangeTime(float(exchanges.mean()), *_percentiles(exchanges, 95))
    sent = np.sum([r.link_bytes for r in records], axis=0)
    links = {
        link.name: LinkUse(float(b) / steps, float(b) / elapsed / link.path.rate_bytes_per_s)
        for link, b in zip(problem.links, sent, strict=True)
    }
    wan = sum(use.bytes_per_step for use in links.values())
    site_parts = {
        site.name: {p: sum(r.site_parts_s[m][p] for r in records) / steps for p in PARTS}
        for m, site in enumerate(problem.sites)
    }
    least = min(mine["wait"] for mine in site_parts.values())
    sites = {
        name: SiteTime(mine["compute"], mine["wait"], mine["wait"] - least)
        for name, mine in site_parts.items()
    }
    parts = {p: sum(r.parts_s[p] for r in records) / steps for p in PARTS}
    return Result(
        scenario=problem.scenario,
        policy=problem.policy.name,
        step_time_s=Spread(step, p50, p95, p99),
        compute_utilization=parts["compute"] / step,
        exchange_time_s=exchange,
        exposed_wan_s_per_step=parts["wait"],
        tokens_per_s=problem.tokens_per_step / step,
        relative_to_colocated=problem.colocated_step_s / step,
        links=links,
        wan_bytes_vs_ddp=wan / problem.ddp_wan_bytes if problem.ddp_wan_bytes else 0.0,
        parts=parts,
        site_parts=site_parts,
        sites=sites,
        seeds=len(records),
        windows=windows,
    )


def _percentiles(values: np.ndarray, *percents: float) -> list[float]:
    """As `np.percentile`, which imports masked arrays for it: 20 ms of every command."""
    at = np.array(percents) / 100 * (len(values) - 1)
    return [float(v) for v in np.interp(at, np.arange(len(values)), np.sort(values))]
