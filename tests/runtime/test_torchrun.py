"""`georun train` under torchrun, two sites of two ranks on loopback: whatever happens, one line a rank."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from pool import free_port
from test_georun import ROOT, TINY, write_text

SITES = ("east", "west")


class Site:
    """One torchrun, its ranks' output in files."""

    def __init__(self, folder, name, port, *options):
        self.logs = folder / name
        argv = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
        argv += [
            "--redirects",
            "3",
            "--log-dir",
            str(self.logs),
            "-m",
            "runtime.cli",
            "train",
            "--site",
            name,
        ]
        argv += ["--rendezvous", f"127.0.0.1:{port}", "--policy", "local-sgd", "--steps", "2000"]
        argv += ["--pace", "30 ms", "--data", write_text(folder), "--set", TINY]
        argv += ["--set", "workload.sequence=16", "--set", "policy.interval=2", *options]
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        with (folder / f"{name}.torchrun").open("w") as said:
            self.process = subprocess.Popen(argv, cwd=ROOT, env=environment, stdout=said, stderr=said)

    def said(self, rank):
        """What a rank has written to standard error."""
        found = list(self.logs.glob(f"*/attempt_0/{rank}/stderr.log"))
        return found[0].read_text() if found else ""

    def rank_ids(self):
        """Process numbers of its ranks."""
        tasks = Path(f"/proc/{self.process.pid}/task").glob("*/children")
        children = [int(child) for task in tasks for child in task.read_text().split()]
        return [c for c in children if b"runtime.cli" in Path(f"/proc/{c}/cmdline").read_bytes()]


@pytest.fixture
def start(tmp_path):
    """Start one torchrun a site; all have ended after the test."""
    port = free_port()
    sites = []

    def begin(options):
        sites.extend(Site(tmp_path, name, port, *more) for name, more in options.items())
        return sites

    yield begin
    for site in sites:
        if site.process.poll() is None:
            site.process.terminate()
            site.process.wait(timeout=40)


def check_lines(site, rank):
    """The only line of a rank."""
    lines = [line for line in site.said(rank).splitlines() if ": step " not in line]
    assert len(lines) == 1, lines
    assert lines[0].startswith("georun: ")
    return lines[0]


def test_a_killed_rank_ends_all(start):
    east, west = start(dict.fromkeys(SITES, ()))
    deadline = time.monotonic() + 40
    while "step" not in east.said(0) or "step" not in west.said(0):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    victim = next(
        pid for pid in west.rank_ids() if b"\0RANK=1\0" in b"\0" + Path(f"/proc/{pid}/environ").read_bytes()
    )
    os.kill(victim, signal.SIGKILL)
    killed = time.monotonic()
    assert [site.process.wait(timeout=20) for site in (east, west)] == [1, 1]
    assert time.monotonic() - killed < 10
    said = [check_lines(site, rank) for site, rank in ((east, 0), (east, 1), (west, 0))]
    assert any("'west' closed its connection" in line for line in said)
    assert west.said(1).count("georun:") == 0


def test_a_peer_that_never_comes(start):
    (east,) = start({"east": ("--timeout", "2")})
    assert east.process.wait(timeout=30) == 1
    for rank in (0, 1):
        line = (
            f"waited 2 s for site 'west' (rank {rank}) and it never came: start it, or look at why it stopped"
        )
        assert check_lines(east, rank) == f"georun: {line}"


@pytest.mark.parametrize("blow", [signal.SIGINT, signal.SIGTERM])
def test_a_rank_that_waits_inside_torch_can_be_stopped(tmp_path, blow):
    port = free_port()
    argv = [sys.executable, "-m", "runtime.cli", "train", "--site", "east", "--rendezvous"]
    argv += [f"127.0.0.1:{port}", "--policy", "ddp", "--steps", "4", "--data", write_text(tmp_path)]
    argv += ["--set", TINY, "--set", "workload.sequence=16"]
    for site in (0, 1):
        argv += ["--set", f"sites.{site}.accelerators_per_node=1"]
    rank = subprocess.Popen(argv, cwd=ROOT, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:  # until it serves the store, and waits there for the other site
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            break
        time.sleep(0.1)
    time.sleep(0.5)
    rank.send_signal(blow)
    try:
        said = rank.communicate(timeout=10)[1]
    finally:
        rank.kill()
    assert rank.returncode == 128 + blow
    assert said == f"georun: site 'east' rank 0: stopped by {blow.name}\n"


def test_sites_with_different_policies(start):
    sites = start({"east": (), "west": ("--set", "policy.interval=4")})
    assert [site.process.wait(timeout=40) for site in sites] == [1, 1]
    for site in sites:
        for rank in (0, 1):
            assert "disagree on the policy" in check_lines(site, rank)
