"""What one rank can say of a run by itself: no other rank's figures are at hand on real machines."""

from __future__ import annotations

from statistics import fmean
from typing import Any

from runtime.job import Job
from runtime.measure import PARTS
from runtime.report import Figures, loss_curve, timed_windows, timing


def of_rank(job: Job, rank: Figures) -> dict[str, Any]:
    """What one rank's own figures say of a run, under the keys of `assemble`.

    Links: payload bytes that it has given to send to each peer; for plain data parallelism none.
    """
    windows = timed_windows(job, rank)
    measured = [i for window in windows for i in window]
    parts = {name: fmean(rank["records"][i][name] for i in measured) for name in PARTS}
    times = [fmean(rank["records"][i]["seconds"] for i in window) for window in windows]
    count = job.steps - rank["first_step"]
    peers = [] if job.policy.is_flat else [site for site in job.sites if site != rank["site"]]
    return {
        "scenario": job.scenario.name,
        "policy": job.policy.name,
        "site": rank["site"],
        "codec": rank["codec"],
        **timing(job, [rank], times, parts),
        "links": {
            f"{rank['site']}->{site}": {"bytes_per_step": rank["payload_bytes"] / count} for site in peers
        },
        "loss": loss_curve(job, [rank]),
        "val_loss": rank["validation"][-1][1],
        "skipped_rounds": rank["skipped_rounds"],
        "rounds": rank["rounds"],
        "parts": parts,
        "steps": job.steps,
        "measured_steps": len(measured),
        "late_steps": sum(bool(rank["records"][i]["late"]) for i in measured),
        "paced": job.pace_of(rank["site"]) is not None,
        "pace_s": job.pace_of(rank["site"]),
        "site_pace_s": {},
    }
