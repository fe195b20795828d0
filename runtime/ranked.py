"""One rank of a run on real machines, started by torchrun."""

from __future__ import annotations

import os
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from geosim.errors import GeosimError, UsageError
from runtime.ending import LastWord, told
from runtime.job import Job
from runtime.sites import Sites
from runtime.timeline import check_file, collect
from runtime.trace import Pack
from runtime.train import Run

_SHOW_EVERY_S = 2.0


def place() -> tuple[int, int]:
    """This process's rank in its site and their number, as torchrun tells them; (0, 1) without it.

    Raises:
        UsageError: if they are no such numbers.
    """
    said = os.environ.get("RANK", "0"), os.environ.get("WORLD_SIZE", "1")
    if not all(text.isdigit() for text in said) or not int(said[0]) < int(said[1]):
        raise UsageError(
            f"RANK={said[0]} and WORLD_SIZE={said[1]} in the environment: start the site's ranks with "
            "torchrun, or unset both"
        )
    return int(said[0]), int(said[1])


def run_rank(
    job: Job, site: str, rendezvous: str, wan_address: str | None, *, quiet: bool, trace: Path | None = None
) -> tuple[dict[str, Any] | None, list[Pack] | None]:
    """Train this rank's part; rank 0 of the site gets the site's figures, others None.

    `trace`: a file that the first site's rank 0 means to write what all have taken down to; it gets that too.

    Where anything goes wrong the process ends here, with one line and a status: 2 for a site that is none,
    or ranks that torchrun has started too many or too few of; 1 if the sites disagree, one does not come, or
    an exchange fails.
    """
    last_word = LastWord("georun")
    rank, ranks = place()
    last_word.watch_signals(f"site '{site}' rank {rank}")
    try:
        return _run(job, site, rendezvous, wan_address, (rank, ranks), quiet, trace)
    except Exception as error:
        line, status = told(error, flat=job.policy.is_flat)
        last_word.leave(
            line if isinstance(error, GeosimError) else f"site '{site}' rank {rank}: {line}", status
        )


def _run(
    job: Job,
    site: str,
    rendezvous: str,
    wan_address: str | None,
    where: tuple[int, int],
    quiet: bool,
    trace: Path | None,
) -> tuple[dict[str, Any] | None, list[Pack] | None]:
    rank, ranks = where
    if site not in job.sites:
        raise UsageError(f"--site {site}: no such site: use one of {', '.join(job.sites)}")
    if ranks != job.ranks_of(site):
        raise UsageError(
            f"site '{site}' has {job.ranks_of(site)} ranks and torchrun started {ranks}: use "
            "--nproc-per-node or --set"
        )
    if trace is not None and (site, rank) == (job.sites[0], 0):
        check_file("--trace", trace)
    device, backend = _device()
    if ranks > 1 and not job.policy.is_flat:
        dist.init_process_group(backend, timeout=timedelta(seconds=job.timeout_s))
    sites = Sites.connect(
        job.sites,
        site,
        rendezvous,
        wan_address=wan_address,
        timeout_s=job.timeout_s,
        place=where,
        ranks_of=job.all_ranks,
    )
    shown = 0.0

    def tell(event: dict[str, Any]) -> None:
        nonlocal shown
        if event["event"] == "note" and rank == 0:
            print(f"georun: {event['line']}", file=sys.stderr)
        if event["event"] == "step" and rank == 0 and not quiet and time.monotonic() - shown > _SHOW_EVERY_S:
            shown = time.monotonic()
            print(f"{site}: step {event['step']}/{job.steps}, loss {event['loss']:.3f}", file=sys.stderr)

    figures = Run(job, sites, device=device, backend=backend).train(tell)
    packs = None if trace is None else collect(sites, figures.pop("trace"), job.timeout_s)
    if dist.is_initialized():
        dist.destroy_process_group()
    return None if rank else figures, packs


def _device() -> tuple[torch.device, str]:
    """Where to compute, and what the site's ranks talk over."""
    if not torch.cuda.is_available():
        return torch.device("cpu"), "gloo"
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0)))
    torch.cuda.set_device(device)
    return device, "cpu:gloo,cuda:nccl"
