"""What the emulated WAN carries, what the relay costs, and how a flow ramps, a line each.

    python -m tests.runtime.emulate.measure

Not a test: the numbers depend on the machine.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from runtime.emulate import EmulatedWan, LinkSpec

PROBES = Path(__file__).parent / "probes"
TICK = os.sysconf("SC_CLK_TCK")


def spec(megabits: float, rtt_ms: float) -> LinkSpec:
    return LinkSpec(megabits * 125e3, rtt_ms / 2e3)


def wan(link: LinkSpec, algorithm: str, **sysctls: str) -> EmulatedWan:
    both = {("a", "b"): link, ("b", "a"): link}
    return EmulatedWan(["a", "b"], both, congestion_control=algorithm, sysctls=sysctls)


def start(net: EmulatedWan, site: str, name: str, *arguments: object) -> Any:
    argv = [sys.executable, "-I", str(PROBES / f"{name}.py"), *map(str, arguments)]
    return net.popen(site, argv, stdout=subprocess.PIPE, text=True)


def cpu_s(process: int) -> float:
    user, system = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[11:13]
    return (int(user) + int(system)) / TICK


def throughput(
    megabits: float, rtt_ms: float, algorithm: str, flows: int, seconds: float, **sysctls: str
) -> None:
    """Goodput of the second half of some seconds, and the relay's share of one core in it."""
    with wan(spec(megabits, rtt_ms), algorithm, **sysctls) as net:
        receivers = [start(net, "b", "discard", net.address("b"), 6000 + n) for n in range(flows)]
        for receiver in receivers:
            receiver.stdout.readline()
        for n in range(flows):
            start(net, "a", "flood", net.address("b"), 6000 + n)
        time.sleep(seconds / 2)
        began, work, before = time.monotonic(), cpu_s(net._relay.pid), net.counters()
        time.sleep(seconds / 2)
        after, ended = net.counters(), time.monotonic()
        share = (cpu_s(net._relay.pid) - work) / (ended - began)

    def grown(link: str, field: str) -> int:
        return after[link][field] - before[link][field]

    payload = grown("a->b", "payload_bytes") * 8e-6 / (ended - began)
    wire = grown("a->b", "delivered_bytes") * 8e-6 / (ended - began)
    dropped = grown("a->b", "dropped_queue_segments")
    per_ack = grown("a->b", "delivered_segments") / grown("b->a", "offered_segments")
    print(
        f"{megabits:6.0f} Mbit/s {rtt_ms:3.0f} ms {flows} {algorithm:5}: payload {payload:6.1f}, "
        f"wire {wire:6.1f} Mbit/s, relay {share:5.1%} of a core, {dropped} dropped by the queue, "
        f"{per_ack:.1f} segments an ACK {' '.join(sysctls.values())}"
    )


def ramp(
    megabits: float, rtt_ms: float, algorithm: str, sizes: list[int], gap_s: float, **sysctls: str
) -> None:
    """Transfers one after the other over one connection, idle for `gap_s` before each."""
    with wan(spec(megabits, rtt_ms), algorithm, **sysctls) as net:
        receiver = start(net, "b", "burst_receive", net.address("b"), 6000)
        receiver.stdout.readline()
        sender = start(net, "a", "burst_send", net.address("b"), 6000, gap_s, *sizes)
        times = json.loads(sender.communicate()[0])
        arrived = json.loads(receiver.communicate()[0])
    note = " ".join(f"{k.rsplit('.', 1)[1]}={v}" for k, v in sysctls.items())
    print(f"{megabits:.0f} Mbit/s {rtt_ms:.0f} ms {algorithm}, idle {gap_s} s before each {note}")
    for row, steps in zip(times, arrived, strict=True):
        rtts: list[float] = []
        for at, count in steps:
            index = int(at / (rtt_ms / 1e3))
            rtts.extend([0.0] * (index + 1 - len(rtts)))
            rtts[index] += count / 1448
        print(
            f"  {row['bytes']:9d} bytes: first to last byte {row['first_to_last_s'] * 1e3:7.1f} ms, "
            f"with answer {row['seconds'] * 1e3:7.1f} ms; cwnd {row['cwnd_before']} -> "
            f"{row['cwnd_after']}, ssthresh {row['ssthresh_after']}, "
            f"retransmitted {row['retransmitted']}; segments an RTT: "
            + " ".join(f"{n:.0f}" for n in rtts[:24])
        )


def main() -> None:
    throughput(200, 30, "cubic", 1, 8)
    throughput(1000, 30, "cubic", 1, 12)
    throughput(1000, 30, "cubic", 1, 12, **{"net.ipv4.tcp_wmem": "4096 16384 33554432"})
    throughput(1000, 30, "bbr", 4, 12)
    throughput(100, 30, "cubic", 1, 10)
    throughput(100, 30, "bbr", 1, 10)
    for algorithm in ("cubic", "bbr", "reno"):
        ramp(100, 40, algorithm, [1_000_000, 6_000_000, 1_000_000, 6_000_000], 2.0)
    ramp(100, 40, "cubic", [1_000_000] * 4, 2.0, **{"net.ipv4.tcp_slow_start_after_idle": "0"})
    ramp(100, 40, "cubic", [6_000_000] * 4, 0.02)


if __name__ == "__main__":
    main()
