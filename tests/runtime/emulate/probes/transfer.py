"""Make a WAN, move bytes across it, close with a program running: argument, the tree's root."""

import os
import subprocess
import sys
from pathlib import Path

sys.path.append(sys.argv[1])
from runtime.emulate import EmulatedWan, LinkSpec, processes

COUNT = 300_000
link = LinkSpec(12.5e6, 0.002)
probes = Path(__file__).parent


def probe(wan: EmulatedWan, site: str, name: str, *arguments: object) -> subprocess.Popen[str]:
    argv = [sys.executable, "-I", str(probes / f"{name}.py"), *map(str, arguments)]
    return wan.popen(site, argv, stdout=subprocess.PIPE, text=True)


with EmulatedWan(
    ["a", "b"], {("a", "b"): link, ("b", "a"): link}, congestion_control="reno",
    sysctls={"net.ipv4.tcp_slow_start_after_idle": "0"},
) as wan:  # fmt: skip
    receiver = probe(wan, "b", "tcp_receive", wan.address("b"), 5201)
    assert receiver.stdout is not None
    receiver.stdout.readline()
    sender = probe(wan, "a", "tcp_send", wan.address("b"), 5201, COUNT, 1)
    sender.communicate(timeout=20)
    receiver.communicate(timeout=20)
    stays = wan.popen("a", ["sleep", "1000"])
    received = wan.counters()["a->b"]["payload_bytes"]
    inodes = wan._inodes
assert processes.inside(inodes) == []
assert stays.returncode == -9
print(f"user {os.geteuid()}, {received} bytes")
