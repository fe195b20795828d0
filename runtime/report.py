"""From what the ranks measured to the figures of a run, under the simulator's keys."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from itertools import accumulate
from statistics import fmean, median
from typing import Any

from geosim.errors import RunError
from geosim.policy.routes import make_routes
from runtime.job import Job
from runtime.measure import PARTS, percentile

_MTU, _HEADERS = 1500, 52  # bytes of a segment, and of its IP and TCP headers with timestamps

Counters = dict[str, dict[str, int]]
Figures = dict[str, Any]


class Traffic:
    """The links' counters at the edges of what is measured."""

    def __init__(self, read: Callable[[], Counters] | None) -> None:
        """`read`: the emulated WAN's counters; None where there is none."""
        self._read = read
        self._marks: dict[str, Counters] = {}

    def mark(self, edge: str) -> None:
        """Read the counters now."""
        if self._read is not None:
            self._marks[edge] = self._read()

    def between(self, source: str, destination: str, begin: str | None, end: str) -> int:
        """Bytes on a link, headers included, from one edge (None: the start) to another."""
        name = f"{source}->{destination}"
        last = self._marks[end].get(name, {}).get("delivered_bytes", 0)
        return last - (0 if begin is None else self._marks[begin].get(name, {}).get("delivered_bytes", 0))


class Losses:
    """The loss of a step over all its samples, as soon as all ranks have done it."""

    def __init__(self, job: Job) -> None:
        self._batch = dict(zip(job.sites, job.batches, strict=True))
        self._ranks = sum(job.all_ranks)
        self._said: dict[int, list[tuple[float, int]]] = {}

    def take(self, site: str, event: Mapping[str, Any]) -> float | None:
        """Take in a rank's step: the step's loss if no rank's is missing any more, else None."""
        step = event["step"]
        said = self._said.setdefault(step, [])
        said.append((event["loss"], self._batch[site]))
        if len(said) < self._ranks:
            return None
        del self._said[step]
        losses, weights = zip(*said, strict=True)
        return fmean(losses, weights)


def assemble(job: Job, ranks: Sequence[Figures], traffic: Traffic, wan: str) -> dict[str, Any]:
    """The figures of a run.

    Times are means over the ranks, percentiles over windows. The first `warmup_steps` are not timed, nor is
    the window with or after a validation or a save, in which an exchange had more time than otherwise.
    `exposed_wan_s_per_step` is the time in which a site is blocked until the last of its ranks has an
    exchange's result (flat: in which a rank is blocked for the reduction after its backward pass); one site
    has no WAN and waits for none.
    `exchange_time_s` is a site's: from its send until all payloads are decoded and summed (flat: from the
    launch of a step's first reduction until the last one is done, whatever backward pass lies between).
    Bytes are of this run's steps, not of those before a resume. `links_from` says what those of the links
    are: "counted" by the emulated WAN; "payloads", what ranks gave to send where no WAN lies between; or
    "computed" there for flat DDP, whose ring passes 2 (N-1)/N of N ranks' gradients over each edge, as
    `payload_bytes` always is for it. `skipped_rounds` of the run's `rounds` were skipped because an update
    of the sites `not_finite` was not.
    `relative_to_colocated` holds the step against one of the same ranks in one room: computation, the
    site's collective and one step of the optimizer. `late_steps`: measured steps in which some rank's
    computation took longer than the declared pace.

    Raises:
        RunError: if the sites ended with different parameters or results.
    """
    hashes = _by_site(job, ranks, "params_hash")
    chains = _chains(job, ranks)
    _check_equal("parameters", hashes)
    _check_equal("results", chains)
    _settle_waits(job, ranks)
    windows = timed_windows(job, ranks[0])
    measured = [i for window in windows for i in window]
    parts = {name: fmean(fmean(r["records"][i][name] for i in measured) for r in ranks) for name in PARTS}
    times = [fmean(fmean(r["records"][i]["seconds"] for i in window) for r in ranks) for window in windows]
    mean = fmean(times)
    links = _links(job, ranks, traffic, wan, mean)
    split = _split(job, ranks, windows)
    optimizer_s = _optimizer_step(job, parts, split)
    return {
        "scenario": job.scenario.name,
        "policy": job.policy.name,
        "codec": ranks[0]["codec"],
        **timing(job, ranks, times, parts),
        "relative_to_colocated": (parts["compute"] + parts["site_collective"] + optimizer_s) / mean,
        "links": links,
        "sites": _sites(job, ranks, measured),
        "wan_bytes_vs_ddp": _against_ddp(job, ranks[0]["parameters"], links, wan),
        "loss": loss_curve(job, ranks),
        "val_loss": ranks[0]["validation"][-1][1],
        "val_curve": ranks[0]["validation"],
        "params_hash": hashes,
        "chain_hash": next(iter(chains.values())),
        "skipped_rounds": max(r["skipped_rounds"] for r in ranks),
        "not_finite": max((r["not_finite"] for r in ranks), key=len),
        "rounds": ranks[0]["rounds"],
        "links_from": _source(job, wan),
        "payload_bytes": _payloads(job, ranks),
        "wan_bytes": _totals(job, traffic, wan),
        "parts": parts,
        "site_parts": _by_site_parts(job, ranks, measured),
        **split,
        "wall_s": _wall(ranks),
        "steps": job.steps,
        "warmup_steps": ranks[0]["warm_step"] - ranks[0]["first_step"],
        "measured_steps": len(measured),
        "late_steps": sum(any(r["records"][i]["late"] for r in ranks) for i in measured),
        "paced": job.is_paced,
        "pace_s": job.pace_s,
        "site_pace_s": dict(job.site_pace_s),
        "batch_per_accelerator": dict(zip(job.sites, job.batches, strict=True)),
        "wan": wan,
        "parameters": ranks[0]["parameters"],
        "seed": job.seed,
    }


def timing(
    job: Job, ranks: Sequence[Figures], times: Sequence[float], parts: dict[str, float]
) -> dict[str, Any]:
    """What follows from the windows' seconds a step (`times`) and the mean seconds of each part of a step."""
    mean, exchanges = fmean(times), exchange_seconds(job, ranks)
    return {
        "step_time_s": {"mean": mean, **{f"p{q}": percentile(times, q / 100) for q in (50, 95, 99)}},
        "compute_utilization": parts["compute"] / mean,
        "exchange_time_s": {
            "mean": fmean(exchanges) if exchanges else 0.0,
            "p95": percentile(exchanges, 0.95),
        },
        "exposed_wan_s_per_step": parts["wait"] if len(job.sites) > 1 else 0.0,
        "tokens_per_s": job.tokens_per_step / mean,
    }


def ring_edges(job: Job, parameters: int) -> dict[tuple[str, str], float]:
    """Of plain data parallelism: payload bytes that a step's reductions pass over each edge between sites."""
    return dict.fromkeys(_ring(job), _crossing(job, parameters)) if job.policy.is_flat else {}


def _settle_waits(job: Job, ranks: Sequence[Figures]) -> None:
    """Count as waiting, not gathering, the time in which a rank has its result and another of its site not.

    The rank that comes last finds the others there: its gather, the site's shortest, is what gathering takes.
    """
    for site in job.sites:
        for records in zip(*(r["records"] for r in _of(ranks, site)), strict=True):
            shortest = min(record["gather"] for record in records)
            for record in records:
                record["wait"] += record["gather"] - shortest
                record["gather"] = shortest


def _by_site_parts(job: Job, ranks: Sequence[Figures], measured: list[int]) -> dict[str, dict[str, float]]:
    """Of each site, seconds a step of each part, mean over its ranks and the measured steps."""
    return {
        site: {
            name: fmean(fmean(r["records"][i][name] for i in measured) for r in _of(ranks, site))
            for name in PARTS
        }
        for site in job.sites
    }


def _split(job: Job, ranks: Sequence[Figures], windows: list[list[int]]) -> dict[str, dict[str, float]]:
    """Median seconds of each part in a step that ends no window, and what a window's end adds to that."""
    inside, of_window = {}, {}
    for name in PARTS:
        within = [r["records"][i][name] for r in ranks for window in windows for i in window[:-1]]
        inside[name] = median(within) if within else 0.0
        ends = median(r["records"][window[-1]][name] for r in ranks for window in windows)
        of_window[name] = max(0.0, ends - inside[name])
    return {"parts_inside": inside, "parts_of_window": of_window}


def _optimizer_step(job: Job, parts: dict[str, float], split: dict[str, dict[str, float]]) -> float:
    """Seconds that one step of the inner optimizer takes.

    Where it acts once a window (accumulate), what the window's end costs; where it acts every step, what a
    step inside a window costs, for its end has the outer step too.
    """
    if job.policy.is_flat:
        return parts["apply"]
    if job.policy.update.kind == "accumulate":
        return parts["apply"] * job.policy.interval
    return split["parts_inside"]["apply"] if job.policy.interval > 1 else parts["apply"]


def _wall(ranks: Sequence[Figures]) -> list[float]:
    """Training seconds until each step's end, mean over the ranks; validation is not in it."""
    rows = [accumulate(record["seconds"] for record in r["records"]) for r in ranks]
    return [fmean(row) for row in zip(*rows, strict=True)]


def timed_windows(job: Job, rank: Figures) -> list[list[int]]:
    """Indices into the records, window by window, of what is measured."""
    interval, first = job.policy.interval, rank["first_step"]
    out: list[list[int]] = []
    spoilt: list[list[int]] = []
    for begin in range(-(-first // interval) * interval, job.steps, interval):
        window = [n - first for n in range(begin, begin + interval)]
        if begin >= rank["warm_step"]:
            paused = any(begin <= step < begin + interval for step in rank["pauses"])
            (spoilt if paused else out).append(window)
    # A run that was resumed inside its last window has only a part of one.
    return out or spoilt or [list(range(job.steps - first))]


def exchange_seconds(job: Job, ranks: Sequence[Figures]) -> list[float]:
    """Seconds of each site's exchanges after warm-up: from its send to the sum on the last of its ranks.

    All processes of a machine read the same monotonic clock.
    """
    warm = ranks[0]["warm_step"] // job.policy.interval
    started: dict[tuple[str, int, int], float] = {}
    finished: dict[tuple[str, int, int], float] = {}
    for rank in ranks:
        for flight in rank["flights"]:
            key = (rank["site"], flight["fragment"], flight["round"])
            started[key] = min(started.get(key, math.inf), flight["started_s"])
            finished[key] = max(finished.get(key, 0.0), flight["finished_s"])
    return [finished[key] - started[key] for key in sorted(started) if key[2] >= warm]


def _links(job: Job, ranks: Sequence[Figures], traffic: Traffic, wan: str, step_s: float) -> dict[str, Any]:
    """By direction, over all steps, for then every round counts whole."""
    count = job.steps - ranks[0]["first_step"]
    edges = ring_edges(job, ranks[0]["parameters"])
    on_ways = _on_ways(job, ranks)
    out = {}
    for link in job.scenario.wan:
        for a, b in (link.between, link.between[::-1]):
            if wan == "tun":
                per_step = traffic.between(a, b, "start", "end") / count
            elif job.policy.is_flat:
                per_step = edges.get((a, b), 0.0)
            else:
                per_step = on_ways.get((a, b), 0) / count
            out[f"{a}->{b}"] = {
                "bytes_per_step": per_step,
                "utilization": per_step / step_s / link.bandwidth(a) if wan == "tun" else 0.0,
            }
    return out


def _source(job: Job, wan: str) -> str:
    """Where the links' bytes come from."""
    if wan == "tun":
        return "counted"
    return "computed" if job.policy.is_flat else "payloads"


def _payloads(job: Job, ranks: Sequence[Figures]) -> dict[str, int]:
    """Bytes that each site has given to send, to all peers together; with what it has passed on."""
    if job.policy.is_flat:
        count = job.steps - ranks[0]["first_step"]
        sent = dict.fromkeys((a for a, _ in _ring(job)), _crossing(job, ranks[0]["parameters"]) * count)
        return {site: round(sent.get(site, 0)) for site in job.sites}
    given = dict.fromkeys(job.sites, 0)
    for (source, _), count in _on_ways(job, ranks).items():
        given[source] += count
    return given


def _on_ways(job: Job, ranks: Sequence[Figures]) -> dict[tuple[str, str], int]:
    """Payload bytes from site to site, as the policy's topology sends and passes them on."""
    of = [sum(int(r["payload_bytes"]) for r in ranks if r["site"] == site) for site in job.sites]
    out: dict[tuple[str, str], int] = {}
    for t in make_routes(job.policy.topology, job.sites):
        way = (job.sites[t.source], job.sites[t.target])
        out[way] = out.get(way, 0) + of[t.origin]
    return out


def _ring(job: Job) -> list[tuple[str, str]]:
    """The edges between sites of gloo's ring over all ranks: each passes to the one before it."""
    sites = job.sites
    return list(zip((*sites[1:], sites[0]), sites, strict=True)) if len(sites) > 1 else []


def _crossing(job: Job, parameters: int, dtype: str | None = None) -> float:
    """Payload bytes of a step's gradients over each edge of the ring; None: in the policy's own dtype."""
    world = job.scenario.ranks
    width = 4 if (dtype or job.policy.codec.quantize.kind) == "fp32" else 2
    return 2 * (world - 1) / world * width * parameters


def _totals(job: Job, traffic: Traffic, wan: str) -> dict[str, int]:
    """Bytes on each link over the whole run, connecting and parting included."""
    if wan != "tun":
        return {}
    ends = [pair for link in job.scenario.wan for pair in (link.between, link.between[::-1])]
    return {f"{a}->{b}": traffic.between(a, b, None, "close") for a, b in ends}


def _against_ddp(job: Job, parameters: int, links: dict[str, Any], wan: str) -> float:
    """Bytes on all links, over those of a flat fp32 ring; 0 for one site.

    Headers count on both sides, or, where no WAN lies between the sites, on neither.
    """
    ring = 0.0
    for a, b in _ring(job):
        link = job.scenario.link(a, b)
        mtu = _MTU if link is None else link.mtu_bytes
        ring += _crossing(job, parameters, "fp32") * (mtu / (mtu - _HEADERS) if wan == "tun" else 1.0)
    return float(sum(link["bytes_per_step"] for link in links.values()) / ring) if ring else 0.0


def _sites(job: Job, ranks: Sequence[Figures], measured: Sequence[int]) -> dict[str, dict[str, float]]:
    """Seconds a step that each site computes and waits, as `geosim.sim.result.SiteTime` has them."""
    seconds = {
        site: {
            name: fmean(fmean(r["records"][i][name] for i in measured) for r in _of(ranks, site))
            for name in ("compute", "wait")
        }
        for site in job.sites
    }
    least = min(row["wait"] for row in seconds.values())
    return {
        site: {"compute_s": row["compute"], "wait_s": row["wait"], "idle_s": row["wait"] - least}
        for site, row in seconds.items()
    }


def loss_curve(job: Job, ranks: Sequence[Figures]) -> list[tuple[int, float]]:
    """Of all samples of each step."""
    first = ranks[0]["first_step"]
    count = len(ranks[0]["records"])
    batch = dict(zip(job.sites, job.batches, strict=True))
    weights = [batch[r["site"]] for r in ranks]
    return [(first + i + 1, fmean((r["records"][i]["loss"] for r in ranks), weights)) for i in range(count)]


def _by_site(job: Job, ranks: Sequence[Figures], key: str) -> dict[str, str]:
    out = {}
    for site in job.sites:
        values = {r[key] for r in ranks if r["site"] == site}
        if len(values) > 1:
            raise RunError(
                f"site '{site}': its ranks ended with different parameters: {', '.join(sorted(values))}"
            )
        out[site] = str(values.pop())
    return out


def _chains(job: Job, ranks: Sequence[Figures]) -> dict[str, str]:
    """One hash a site, over its WAN ranks' chain hashes in the order of their shards."""
    shards = job.policy.shards or min(job.all_ranks)
    out = {}
    for site in job.sites:
        chains = "".join(r["chain"] for r in _of(ranks, site)[:shards])
        out[site] = blake2b(chains.encode(), digest_size=8).hexdigest()
    return out


def _of(ranks: Sequence[Figures], site: str) -> list[Figures]:
    return sorted((r for r in ranks if r["site"] == site), key=lambda r: int(r["rank"]))


def _check_equal(what: str, by_site: dict[str, str]) -> None:
    if len(set(by_site.values())) > 1:
        shown = ", ".join(f"{site} {value}" for site, value in by_site.items())
        raise RunError(f"the sites ended with different {what} ({shown})")
