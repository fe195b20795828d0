"""Nothing stays behind: no process, no namespace, however it ends; and errors say what to do."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import runtime
from geosim.errors import RunError
from runtime.emulate import EmulatedWan, LinkSpec, missing, processes

ROOT = str(Path(runtime.__file__).parents[1])
LINK = LinkSpec(12.5e6, 0.001)
SLEEP = ["sleep", "1000"]
PROBES = Path(__file__).parent / "probes"
PYTHON = "/usr/bin/python3"  # one that any user may run


def rootless_is_impossible() -> bool:
    """Whether another user cannot run this: no Python of the system's, or no user namespaces."""
    code = (
        "import ctypes, os, sys; assert sys.version_info >= (3, 11); "
        "os.setresuid(9, 9, 9); sys.exit(ctypes.CDLL(None).unshare(0x10000000))"
    )
    try:
        return subprocess.run([PYTHON, "-c", code], stderr=subprocess.DEVNULL).returncode != 0
    except FileNotFoundError:
        return True


NEEDS_ROOT = pytest.mark.skipif(
    os.geteuid() != 0 or rootless_is_impossible(),
    reason="needs root to become another user, user namespaces, and a Python for all users",
)
ROOTLESS = [PYTHON, "-I", str(PROBES / "rootless.py"), PYTHON, "-I"]

HOLDER = f"""
import json, subprocess, sys, time
sys.path.append({ROOT!r})
from runtime.emulate import EmulatedWan, LinkSpec
link = LinkSpec(1e7, 0.001)
wan = EmulatedWan(["a", "b"], {{("a", "b"): link, ("b", "a"): link}})
shell = ["sh", "-c", "setsid sleep 1000 & echo up; sleep 1000; true"]
program = wan.popen("a", shell, stdout=subprocess.PIPE)
program.stdout.readline()
print(json.dumps([wan._inodes, wan._relay.pid, program.pid]), flush=True)
"""


def until(holds: Callable[[], bool], seconds: float = 5.0) -> bool:
    """Wait for something that takes the kernel a moment."""
    limit = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > limit:
            return False
        time.sleep(0.01)
    return True


def alive(process: int) -> bool:
    """Whether a process exists and is not merely unreaped."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def children() -> set[str]:
    """Processes of which this one is the parent."""
    return set(Path(f"/proc/self/task/{os.getpid()}/children").read_text().split())


def test_close_leaves_nothing(pair):
    before, descriptors = children(), set(os.listdir("/proc/self/fd"))
    with pair(LINK) as wan:
        inodes = wan._inodes
        program = wan.popen("b", SLEEP)
        assert until(lambda: processes.inside(inodes) == [program.pid])
    assert processes.inside(inodes) == []
    assert program.returncode == -signal.SIGKILL
    assert children() == before
    assert set(os.listdir("/proc/self/fd")) == descriptors
    wan.close()  # twice does no harm
    with pytest.raises(RunError, match="closed"):
        wan.counters()


def test_exception_leaves_nothing(pair):
    before = children()
    wan = pair(LINK)

    def fail() -> None:
        with wan:
            wan.popen("a", SLEEP)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert children() == before
    assert processes.inside(wan._inodes) == []


@pytest.mark.parametrize("blow", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_death_of_the_parent_leaves_nothing(blow):
    argv = [sys.executable, "-c", HOLDER + "time.sleep(1000)"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, stderr=subprocess.DEVNULL) as holder:
        assert holder.stdout is not None
        inodes, relay, program = json.loads(holder.stdout.readline())
        try:
            # The shell, its child, and one in a session of its own.
            inside = until(lambda: len(processes.inside(inodes)) == 3)
        finally:
            holder.send_signal(blow)
    assert inside
    assert until(lambda: not processes.inside(inodes))
    assert until(lambda: not alive(relay) and not alive(program))


@pytest.mark.parametrize("python", [[sys.executable], pytest.param(ROOTLESS, marks=NEEDS_ROOT)])
def test_forgetting_to_close_leaves_nothing(python):
    ended = subprocess.run([*python, "-c", HOLDER], stdout=subprocess.PIPE, text=True, check=True)
    inodes, relay, program = json.loads(ended.stdout)
    assert until(lambda: not processes.inside(inodes))
    assert until(lambda: not alive(relay) and not alive(program))


def test_death_of_the_relay_is_told(pair):
    with pair(LINK) as wan:
        program = wan.popen("a", SLEEP)
        os.kill(wan._relay.pid, signal.SIGKILL)
        with pytest.raises(RunError, match="relay has stopped"):
            wan.counters()
    assert not alive(program.pid)


def test_programs_get_their_arguments_and_streams(pair):
    with pair(LINK) as wan:
        code = "import os, sys; print(sys.argv[1:], os.environ['WORD'], os.getcwd())"
        program = wan.popen(
            "a", [sys.executable, "-c", code, "x y", "-z"], stdout=subprocess.PIPE, text=True,
            env=dict(os.environ, WORD="hello"), cwd="/",
        )  # fmt: skip
        assert program.communicate(timeout=10)[0] == "['x y', '-z'] hello /\n"
        assert program.returncode == 0
        absent = wan.popen("a", ["no-such-program"], stderr=subprocess.PIPE, text=True)
        assert "no-such-program: No such file" in absent.communicate(timeout=10)[1]
        assert absent.returncode == 127


def test_sysctls_and_mtu_hold_inside(pair):
    with pair(LINK, mtu=9000, sysctls={"net.ipv4.tcp_slow_start_after_idle": "0"}) as wan:
        argv = [sys.executable, "-I", str(PROBES / "settings.py"), wan.interface]
        program = wan.popen("a", argv, stdout=subprocess.PIPE, text=True)
        assert program.communicate(timeout=10)[0] == "0 9000\n"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"congestion_control": "nonesuch"}, "congestion control 'nonesuch' is not available"),
        ({"sysctls": {"net.ipv4.nonesuch": "1"}}, "sysctl net.ipv4.nonesuch"),
        ({"mtu": 10}, "mtu = 10"),
    ],
)
def test_refusals_are_one_line(pair, options, words):
    before = children()
    with pytest.raises(RunError, match=words) as refusal:
        pair(LINK, **options)
    assert "\n" not in str(refusal.value)
    assert children() == before


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"rate_bytes_per_s": 0.0}, "rate_bytes_per_s"),
        ({"delay_s": -1.0}, "delay_s"),
        ({"loss": 1.5}, "loss"),
        ({"trace": ((1.0, 5.0), (0.5, 5.0))}, "trace"),
        ({"trace": ((0.0, 0.0),), "trace_period_s": 1.0}, "rate above zero"),
        ({"trace_period_s": 1.0}, "trace_period_s"),
    ],
)
def test_specs_refuse_nonsense(fields, words):
    with pytest.raises(RunError, match=words):
        LinkSpec(**({"rate_bytes_per_s": 1.0, "delay_s": 0.0} | fields))


def test_unknown_names_are_errors(pair):
    with pair(LINK) as wan:
        for call in (
            lambda: wan.address("c"),
            lambda: wan.popen("c", SLEEP),
            lambda: wan.set_link("a", "c", up=False),
            lambda: wan.set_link("a", "b", rate=1),
            lambda: wan.set_link("a", "b", loss=2.0),
        ):
            with pytest.raises(RunError):
                call()
        assert wan.counters()["a->b"]["offered_segments"] == 0
    with pytest.raises(RunError):
        EmulatedWan(["a"], {("a", "a"): LINK})


def test_missing_is_quick_and_leaves_nothing():
    before, descriptors = children(), set(os.listdir("/proc/self/fd"))
    started = time.monotonic()
    assert missing() is None
    assert time.monotonic() - started < 2
    assert children() == before
    assert set(os.listdir("/proc/self/fd")) == descriptors


@NEEDS_ROOT
def test_works_without_root():
    ended = subprocess.run(
        [*ROOTLESS, PROBES / "transfer.py", ROOT], capture_output=True, text=True, timeout=50
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout == "user 65534, 300000 bytes\n"
