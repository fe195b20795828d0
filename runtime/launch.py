"""A whole run on one machine: a process a rank, across an emulated WAN or none, measured and checked."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from geosim.console import make_folder
from geosim.errors import GeosimError, RunError
from geosim.policy import SyncPolicy
from geosim.scenario import Scenario
from runtime.crew import Crew, Member
from runtime.emulate import EmulatedWan
from runtime.inputs import check_inputs
from runtime.job import Job
from runtime.report import Losses, Traffic, assemble, ring_edges
from runtime.saved import only_writer
from runtime.timeline import check_file, write
from runtime.trace import Pack
from runtime.wan import check_connected, emulated_wan, start_traces

Progress = Callable[[int, int, float], None]

_ROOT = Path(__file__).resolve().parents[1]
_WORKER = ("-m", "runtime.worker")
_COMPILE_S = 180  # for codecs' kernels, the first time on a machine that has more to do
_PORT = 29600  # of the sites' store inside an emulated site, where nothing else listens


def emulate(
    scenario: Scenario,
    policy: SyncPolicy,
    steps: int,
    *,
    wan: Literal["tun", "none"] = "tun",
    pace_s: float | None = None,
    site_pace_s: Mapping[str, float] | None = None,
    data: str | None = None,
    seed: int = 0,
    lr: float = 2e-3,
    validations: int = 0,
    timeout_s: float = 60.0,
    save: str | None = None,
    save_every: int = 0,
    resume: str | None = None,
    codec: str = "auto",
    out: Path | None = None,
    trace: Path | None = None,
    progress: Progress | None = None,
    note: Callable[[str], None] | None = None,
    shown: Callable[[dict[str, Any]], None] | None = None,
    on_start: Callable[[Crew], None] | None = None,
) -> dict[str, Any]:
    """Train for real, one process a rank, all on this machine.

    Args:
        scenario: sites, links and workload.
        policy: how the sites exchange; `flat-ring` is torch's own DDP over all ranks.
        steps: a multiple of the policy's interval.
        wan: "tun" puts every site into a network namespace of its own, joined by the scenario's links;
            "none" lets them talk over the loopback interface.
        pace_s: declared step time; None: as fast as the machine computes.
        site_pace_s: of single sites, by name, in place of `pace_s`.
        data: a text file or folder; None: the Python standard library.
        seed: of parameters, data order and links.
        lr: peak learning rate.
        validations: measurements of the validation loss before the last step.
        timeout_s: how long a site, or an exchange, is waited for.
        save, save_every, resume: folders of checkpoints, and after how many steps they are written (0: at
            the end).
        codec: which implementation writes the payloads.
        out: a folder that the caller means to write to afterwards: made once all that is given stands the
            checks, so that a run does not end without a place for its result.
        trace: a file for what happened when, in all sites; None: nobody takes it down.
        progress: called with (step, steps, loss) whenever all ranks have done a step; the loss is theirs.
        shown: called with the figures before the trace is written, so that none is lost where it cannot be.
        note: called with a line on each thing in which a resumed run differs from the one it goes on from.
        on_start: called with the processes once all have started.

    Returns:
        What `runtime.report.assemble` says: plain data, ready for JSON.

    Raises:
        UsageError: for what cannot run, before anything starts.
        RunError: one line naming the site and rank that failed; no process is left.
    """
    job = Job(
        scenario, policy, steps, pace_s=pace_s, data=data, seed=seed, lr=lr, validations=validations,
        timeout_s=timeout_s, save=_absolute(save), save_every=save_every, resume=_absolute(resume),
        codec=codec, trace=trace is not None, site_pace_s=dict(site_pace_s or {}),
    )  # fmt: skip
    job.check()
    if trace is not None:
        check_file("--trace", trace)
    if wan == "tun":
        check_connected(scenario)
    check_inputs(job, [(site, rank) for site in job.sites for rank in range(job.ranks_of(site))])
    with contextlib.ExitStack() as stack:
        network = stack.enter_context(emulated_wan(scenario, seed)) if wan == "tun" else None
        for option, wanted in (("--out", out), ("--save", job.save)):
            if wanted is not None:
                make_folder(option, Path(wanted))
        if job.save is not None:
            stack.enter_context(only_writer(Path(job.save)))
        stall_s = 2 * timeout_s + 10 * (job.longest_pace_s or 1.0) + 30
        crew = stack.enter_context(Crew(stall_s, _COMPILE_S))
        _start(crew, job, network, stack)
        if on_start is not None:
            on_start(crew)
        traffic = Traffic(network.counters if network is not None else None)
        figures, losses = [], Losses(job)
        for member, event in _events(crew, network):
            first = member is crew.members[0]
            if event["event"] == "result":
                figures.append(event["figures"])
            elif first and event["event"] == "traffic":
                if event["edge"] == "start" and network is not None:
                    start_traces(scenario, network)
                traffic.mark(event["edge"])
            elif event["event"] == "step" and progress is not None:
                loss = losses.take(member.site, event)
                if loss is not None:
                    progress(event["step"], steps, loss)
            elif first and event["event"] == "note" and note is not None:
                note(event["line"])
        traffic.mark("close")
    if len(figures) != len(crew.members):
        raise RunError(f"{len(crew.members) - len(figures)} ranks ended without a result")
    result = assemble(job, figures, traffic, wan)
    if shown is not None:
        shown(result)
    if trace is not None:
        write_packs(trace, job, [rank["trace"] for rank in figures], result["parameters"])
    return result


def write_packs(path: Path, job: Job, packs: Sequence[Pack], parameters: int) -> None:
    """What the ranks took down, as a file; `parameters`: how many the model has.

    Raises:
        UsageError: if it cannot be written.
    """
    about = {"scenario": job.scenario.name, "policy": job.policy.name}
    write(path, packs, about, ring_edges(job, parameters))


def _events(crew: Crew, network: EmulatedWan | None) -> Iterator[tuple[Member, dict[str, Any]]]:
    """The crew's; where its network has gone, the ranks' errors are but what follows from that."""

    def check() -> None:
        if network is not None and not network.works:
            raise RunError("the emulated WAN has gone: its relay has ended, or was killed") from None

    try:
        yield from crew.events(check)
    except GeosimError:
        check()
        raise


def _start(crew: Crew, job: Job, network: EmulatedWan | None, stack: contextlib.ExitStack) -> None:
    listener: socket.socket | None = None
    if network is None:
        # Bound here and handed over, so that nobody else can take the port in between.
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        rendezvous = f"127.0.0.1:{listener.getsockname()[1]}"
    else:
        rendezvous = f"{network.address(job.sites[0])}:{_PORT}"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(_ROOT), os.environ.get("PYTHONPATH", "")])}
    environment |= {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
    for site in job.sites:
        # In memory, so that nothing is left on disk however this process ends.
        group_fd = os.memfd_create("georun-group")
        stack.callback(os.close, group_fd)
        for rank in range(job.ranks_of(site)):
            serves = listener is not None and site == job.sites[0] and rank == 0
            post = {
                "site": site, "rank": rank, "rendezvous": rendezvous,
                "wan_address": "127.0.0.1" if network is None else network.address(site),
                "group_fd": group_fd,
                "wan_interface": "lo" if network is None else network.interface,
                "listen_fd": listener.fileno() if serves and listener is not None else None,
            }  # fmt: skip
            kept = (group_fd, listener.fileno()) if serves and listener is not None else (group_fd,)
            options: dict[str, Any] = {
                "stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True,
                "env": environment, "pass_fds": kept,
            }  # fmt: skip
            argv = [sys.executable, *_WORKER]
            if network is None:
                process = subprocess.Popen(argv, process_group=0, **options)
            else:
                process = network.popen(site, argv, **options)
            crew.add(site, rank, process, {"post": post, "job": job.to_dict()})


def _absolute(folder: str | None) -> str | None:
    return None if folder is None else str(Path(folder).resolve())
