"""One rank as a process: a job on its standard input, events as JSON lines; it ends with its parent."""

from __future__ import annotations

import json
import os
import sys
import threading
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TextIO

from runtime.ending import lost_connection, told


@dataclass(frozen=True)
class Post:
    """Where a worker stands.

    Attributes:
        site, rank: which rank of which site.
        rendezvous: HOST:PORT of the sites' store.
        wan_address: what other sites reach this rank by.
        group_fd: a file without a name, through which the ranks of the site find each other.
        wan_interface: the network interface to other sites.
        listen_fd: a listening socket for the store, on the rank that serves it.
    """

    site: str
    rank: int
    rendezvous: str
    wan_address: str
    group_fd: int
    wan_interface: str
    listen_fd: int | None = None


def main() -> None:
    """Carry out the job on standard input; the exit status is 0, or a GeosimError's."""
    order = json.loads(sys.stdin.readline())
    threading.Thread(target=_end_with_parent, args=(sys.stdin,), daemon=True).start()
    events = sys.stdout
    sys.stdout = sys.stderr  # whatever else prints must not look like an event

    def emit(event: dict[str, Any]) -> None:
        events.write(json.dumps(event) + "\n")
        events.flush()

    status = 0
    try:
        emit({"event": "result", "figures": _run(Post(**order["post"]), order["job"], emit)})
    except Exception as error:
        flat = order["job"]["policy"]["topology"]["kind"] == "flat-ring"
        line, status = told(error, flat=flat)
        emit({"event": "error", "message": line, "status": status, "follows": _follows(error)})
    # Threads of groups that failed may never join, so the interpreter's own farewell is skipped.
    events.flush()
    sys.stderr.flush()
    os._exit(status)


def _run(post: Post, job_data: dict[str, Any], emit: Any) -> dict[str, Any]:
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "FATAL")
    import torch
    import torch.distributed as dist

    from runtime.job import Job
    from runtime.sites import Sites
    from runtime.train import Run

    torch.set_num_threads(1)
    job = Job.from_dict(job_data)
    flat = job.policy.is_flat
    os.environ["GLOO_SOCKET_IFNAME"] = post.wan_interface if flat else "lo"
    ranks = job.ranks_of(post.site)
    if not flat and ranks > 1:
        dist.init_process_group(
            "gloo", init_method=f"file:///proc/self/fd/{post.group_fd}", rank=post.rank, world_size=ranks,
            timeout=timedelta(seconds=job.timeout_s),
        )  # fmt: skip
    sites = Sites.connect(
        job.sites, post.site, post.rendezvous, wan_address=post.wan_address, timeout_s=job.timeout_s,
        listen_fd=post.listen_fd, place=(post.rank, ranks), ranks_of=job.all_ranks,
    )  # fmt: skip
    return Run(job, sites, device=torch.device("cpu"), backend="gloo").train(emit)


def _follows(error: BaseException) -> bool:
    """Whether an error tells of another process's end and not of its own cause."""
    from runtime.transfer import PeerLost

    return isinstance(error, PeerLost) or lost_connection(str(error))


def _end_with_parent(stream: TextIO) -> None:
    """The parent holds the other end of standard input for as long as it lives."""
    stream.read()
    os._exit(1)


if __name__ == "__main__":
    main()
