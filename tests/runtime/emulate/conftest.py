"""Probes that share no code with the relay, run inside the namespaces."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from runtime.emulate import EmulatedWan, LinkSpec, missing

PROBES = Path(__file__).parent / "probes"
PORT = 5201


@pytest.fixture(scope="session", autouse=True)
def possible() -> None:
    """Skip only where the kernel refuses."""
    reason = missing()
    if reason is not None:
        pytest.skip(reason)


@pytest.fixture
def pair() -> Callable[..., EmulatedWan]:
    """Make two sites, "a" and "b", from the specs of both directions."""

    def make(forth: LinkSpec, back: LinkSpec | None = None, **options: Any) -> EmulatedWan:
        return EmulatedWan(["a", "b"], {("a", "b"): forth, ("b", "a"): back or forth}, **options)

    return make


class Probe:
    """Starts probe scripts in sites and reads their reports."""

    def start(self, wan: EmulatedWan, site: str, name: str, *arguments: object) -> Any:
        """Start a probe without waiting for it."""
        argv = [sys.executable, "-I", str(PROBES / f"{name}.py"), *map(str, arguments)]
        return wan.popen(site, argv, stdout=subprocess.PIPE, text=True)

    def start_ready(self, wan: EmulatedWan, site: str, name: str, *arguments: object) -> Any:
        """Start a probe that says when it listens, and wait until it does."""
        program = self.start(wan, site, name, *arguments)
        assert program.stdout.readline() == "ready\n"
        return program

    def report(self, program: Any) -> Any:
        """Wait for a probe and read what it printed."""
        text, _ = program.communicate(timeout=50)
        assert program.returncode == 0
        return json.loads(text) if text else None

    def udp(
        self, wan: EmulatedWan, source: str, to: str, count: int, size: int, interval: float = 0.0,
        silence: float = 0.5,
    ) -> list[tuple[int, float, float]]:  # fmt: skip
        """Datagrams from one site to another: (number, sent, arrived) of those that came."""
        receiver = self.start_ready(wan, to, "udp_receive", wan.address(to), PORT, silence)
        sender = self.start(wan, source, "udp_send", wan.address(to), PORT, count, size, interval)
        self.report(sender)
        return self.report(receiver)  # type: ignore[no-any-return]

    def tcp(
        self, wan: EmulatedWan, source: str, to: str, count: int, seed: int = 1
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """One TCP transfer: the sender's report and the receiver's."""
        receiver = self.start_ready(wan, to, "tcp_receive", wan.address(to), PORT)
        sender = self.start(wan, source, "tcp_send", wan.address(to), PORT, count, seed)
        return self.report(sender), self.report(receiver)

    def ping(self, wan: EmulatedWan, site: str, to: str, count: int, interval: float) -> Any:
        """Round trips in seconds of those that came back."""
        if os.geteuid() != 0:
            pytest.skip("a raw ICMP socket needs root")
        return self.report(self.start(wan, site, "ping", wan.address(to), count, interval))

    def kernel(self, wan: EmulatedWan, site: str) -> dict[str, int]:
        """The site's own kernel's counters of its WAN interface."""
        program = wan.popen(site, ["cat", "/proc/net/dev"], stdout=subprocess.PIPE, text=True)
        text, _ = program.communicate(timeout=10)
        line = next(row for row in text.splitlines() if wan.interface in row)
        numbers = list(map(int, line.split(":")[1].split()))
        return {
            "rx_bytes": numbers[0], "rx_packets": numbers[1],
            "tx_bytes": numbers[8], "tx_packets": numbers[9], "tx_dropped": numbers[11],
        }  # fmt: skip


@pytest.fixture
def probe() -> Probe:
    """The probes."""
    return Probe()


@pytest.fixture
def conserved() -> Callable[[dict[str, int]], None]:
    """Check that what was offered to a link was delivered, dropped or is under way."""

    def check(link: dict[str, int]) -> None:
        for unit in ("segments", "bytes"):
            ends = ("delivered", "dropped_loss", "dropped_queue", "dropped_down", "in_flight")
            assert link[f"offered_{unit}"] == sum(link[f"{end}_{unit}"] for end in ends)

    return check
