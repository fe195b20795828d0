"""Whole runs of `georun emulate --wan tun`: how they end, what they count, and what a window is."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from geosim.policy import load_policy
from geosim.scenario import load_scenario
from runtime.emulate import processes
from runtime.launch import emulate
from runtime.wan import emulated_wan, start_traces

ROOT = Path(__file__).resolve().parents[3]
TINY = {
    "name": "tiny", "layers": 1, "d_model": 16, "heads": 1, "ffn": 64, "gated": False, "vocabulary": 256,
    "tied": True, "positions": 32,
}  # fmt: skip


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    """A small corpus."""
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_text("".join(f"{n} times {n} is {n * n}\n" for n in range(6000)))
    return str(path)


def scenario(**changes):
    """Two sites of two ranks and a tiny model."""
    base = {"workload.model": TINY, "workload.sequence": 16, "workload.batch_per_accelerator": 2}
    return load_scenario("laptop", base | changes)


def descendants(pid):
    """Process numbers of all that came of a process."""
    found = []
    for child in Path(f"/proc/{pid}/task").glob("*/children"):
        for each in map(int, child.read_text().split()):
            found += [each, *descendants(each)]
    return found


def network_of(pid):
    """What tells a process's network namespace from others; 0 if it has gone."""
    try:
        return os.stat(f"/proc/{pid}/ns/net").st_ino
    except OSError:
        return 0


def alive(pid):
    """Whether a process runs."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize(
    ("blow", "status", "words"),
    [
        ("rank", 1, "georun: site 'west' rank 1 was killed by SIGKILL"),
        (signal.SIGINT, 130, "georun: stopped"),
        (signal.SIGTERM, 143, "georun: stopped by SIGTERM"),
        (signal.SIGKILL, -9, ""),
    ],
)
def test_however_a_run_ends_nothing_stays(text, tmp_path, blow, status, words):
    argv = [sys.executable, "-m", "runtime.cli", "emulate", "laptop", "--policy", "local-sgd", "--steps"]
    argv += ["1600", "--data", text, "--pace", "50 ms", "--set", f"workload.model={TINY}"]
    argv += ["--set", "workload.sequence=16"]
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    command = subprocess.Popen(argv, cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True)
    mine = network_of(os.getpid())
    try:
        deadline = time.monotonic() + 60
        ranks = []
        while time.monotonic() < deadline and len(ranks) < 4:
            time.sleep(0.1)
            ranks = [p for p in descendants(command.pid) if network_of(p) not in (mine, 0)]
        assert len(ranks) == 4
        time.sleep(3)  # until they train, as a rule; before that it must hold, too
        spaces = {network_of(p) for p in ranks}
        family = descendants(command.pid)
        assert len(spaces) == 2
        if blow == "rank":
            os.kill(sorted(ranks)[3], signal.SIGKILL)
        else:
            command.send_signal(blow)
        said = command.communicate(timeout=20)[1]
    finally:
        command.kill()
    assert command.returncode == status
    assert [*said.splitlines(), ""][-1 if not words else -2].startswith(words)
    assert not any(path.is_dir() for path in tmp_path.iterdir())
    assert "Traceback" not in said
    deadline = time.monotonic() + 5
    while any(map(alive, family)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(map(alive, family))
    assert not processes.inside(spaces)


def test_flat_ddp_over_the_wan(text):
    result = emulate(scenario(**{"wan.0.rtt": "10 ms"}), load_policy("ddp"), 6, data=text)
    assert len(set(result["params_hash"].values())) == 1
    assert result["step_time_s"]["mean"] > 0.02  # at least two trips along the ring
    # A ring is exactly what it is held against; buckets, barriers and acknowledgements come on top.
    assert 1 < result["wan_bytes_vs_ddp"] < 1.5
    assert result["skipped_rounds"] == 0
    assert result["exchange_time_s"]["mean"] > 0.02
    assert result["links_from"] == "counted"


def test_computed_bytes_of_flat_ddp_are_those_that_the_relay_counts(text):
    """Three sites, so that the ring has a direction: each link carries it one way only."""
    site = {"accelerator": "cpu-core", "nodes": 1, "accelerators_per_node": 1}
    fabric = {"intra_node": {"bandwidth": "2 GB/s", "latency": "50 us"}}
    changes = {
        "sites": [site | {"name": name, "fabric": fabric} for name in "abc"],
        "wan": [
            {"between": list(pair), "bandwidth": "100 Mbit/s", "rtt": "2 ms"} for pair in ("ab", "bc", "ac")
        ],
        "workload.model": dict(TINY, d_model=128, ffn=512),
    }
    counted, computed = (
        emulate(scenario(**changes), load_policy("ddp"), 4, wan=wan, data=text)["links"]
        for wan in ("tun", "none")
    )
    for name, link in computed.items():
        if link["bytes_per_step"]:
            assert 1 < counted[name]["bytes_per_step"] / link["bytes_per_step"] < 1.1
        else:
            assert counted[name]["bytes_per_step"] < 50_000  # acknowledgements
    assert sum(link["bytes_per_step"] > 0 for link in computed.values()) == 3


def test_the_relay_counts_little_more_than_int8_payloads_in_slices_over_streams(text):
    changes = {
        "wan.0.rtt": "10 ms",
        "wan.0.bandwidth": "200 Mbit/s",
        "workload.model": dict(TINY, layers=3, d_model=128, ffn=512),
    }
    policy = load_policy("layerwise-8bit", {"interval": 2, "streams": 2, "chunk": "256 KiB"})
    result = emulate(scenario(**changes), policy, 12, data=text)
    for site, link in (("east", "east->west"), ("west", "west->east")):
        assert result["payload_bytes"][site] / (6 * 2) > 256 * 1024
        counted = result["links"][link]["bytes_per_step"] * 12
        # 52 bytes of IP and TCP header on 1,448 of payload. The other way's acknowledgements come on top:
        # as many as one a segment when the receiver reads each as it comes, few when it reads them in lots;
        # the meetings before and after are the last 0.1 %.
        headers = 52 / 1448
        assert 1 + headers < counted / result["payload_bytes"][site] < 1 + 2 * headers + 0.001


def test_a_window_of_data_is_in_flight_each_round_trip(probe):
    """1 MiB each 100 ms, on a link that would carry twelve times as much."""
    loaded = load_scenario(
        "laptop", {"wan.0.window": "1 MiB", "wan.0.rtt": "100 ms", "wan.0.bandwidth": "1 Gbit/s"}
    )
    with emulated_wan(loaded, 0) as wan:
        arrivals = probe.tcp(wan, "east", "west", 30 << 20)[1]["arrivals"]
    half = [row for row in arrivals if row[1] > 15 << 20]
    rate = (half[-1][1] - half[0][1]) / (half[-1][0] - half[0][0])
    assert rate * 0.1 == pytest.approx(1 << 20, rel=0.12)


def test_a_trace_begins_when_training_does(probe):
    trace = [{"at": "0 s", "bandwidth": "8 Mbit/s"}, {"at": "1 s", "bandwidth": "80 Mbit/s"}]
    loaded = load_scenario("laptop", {"wan.0.trace": trace, "wan.0.rtt": "2 ms"})
    with emulated_wan(loaded, 0) as wan:
        time.sleep(1.2)  # connecting takes its time, and none of the trace's
        start_traces(loaded, wan)
        report = probe.tcp(wan, "east", "west", 2_500_000)[0]
    # About 1 MB in the first second, then ten times as fast.
    assert 0.6 < report["seconds"] < 1.6
