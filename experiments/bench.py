"""Speed and memory of the tools themselves: `make bench`.

Every row is the median of several runs on an otherwise idle machine; ratios are taken within one run.
"""

import argparse
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import median

import numpy as np
import torch
from rich.table import Table

from experiments.console import console
from experiments.exchange_alone.grid import Point
from experiments.exchange_alone.measure import measure
from geosim.cost.transport import payload_share
from geosim.policy import load_policy
from geosim.scenario import load_scenario
from geosim.sim import simulate
from geosim.sim.closed_form import batch_from, steady_state
from geosim.tune import tune
from runtime.bench import summary_rows

_REPEATS = 5
_POLICIES = 1_000_000


def main() -> None:
    """Measure and print."""
    argparse.ArgumentParser("python -m experiments.bench", description=__doc__).parse_args()
    torch.set_num_threads(1)
    table = Table(box=None, pad_edge=False)
    table.add_column("what")
    table.add_column("", justify="right")
    for row in (*simulator(), *summary_rows(), *relay()):
        print(*row, sep=": ", file=sys.stderr, flush=True)
        table.add_row(*row)
    console.print(f"Python {platform.python_version()}, torch {torch.__version__}, {platform.machine()}")
    console.print(table)


def seconds(run: Callable[[], object], repeats: int = _REPEATS) -> float:
    """Median wall-clock seconds of some runs."""
    times = []
    for _ in range(repeats):
        begun = time.perf_counter()
        run()
        times.append(time.perf_counter() - begun)
    return median(times)


_ASK_PEAK = """
import sys
from geosim.cli import main
try:
    main(sys.argv[1:])
finally:
    print(next(line for line in open("/proc/self/status") if line.startswith("VmHWM:")), file=sys.stderr)
"""


def peak_bytes(arguments: list[str]) -> float:
    """Most memory `geosim` holds. It asks itself: rusage of a child counts the parent that it forked from."""
    done = subprocess.run(
        [sys.executable, "-c", _ASK_PEAK, *arguments], check=True, capture_output=True, text=True
    )
    return 1024 * float(done.stderr.split()[1])


def simulator() -> list[tuple[str, str]]:
    """The command, the engine, the closed form and the tuner."""
    arguments = ["simulate", "laptop", "--policy", "hierarchical-efsgd", "--windows", "1000", "--json"]
    command = [str(Path(sys.executable).parent / "geosim"), *arguments]
    whole = seconds(lambda: subprocess.run(command, check=True, stdout=subprocess.DEVNULL))
    peak = peak_bytes(arguments) / 1e6
    scenario, policy = load_scenario("laptop"), load_policy("hierarchical-efsgd")
    engine = seconds(lambda: simulate(scenario, policy, windows=2000))
    batch = batch_from(scenario, [policy]).take(np.zeros(_POLICIES, dtype=int))
    batch = replace(batch, interval=1 + np.arange(_POLICIES) % 1000)
    closed = seconds(lambda: steady_state(batch), 3)
    choose = seconds(lambda: tune(scenario), 3)
    return [
        ("geosim simulate laptop, 1,000 windows, whole process", f"{whole:.2f} s, {peak:.0f} MB"),
        ("engine, two sites", f"{2000 / engine:,.0f} windows/s"),
        ("closed form", f"{_POLICIES / closed / 1e6:.1f} million policies/s"),
        ("tune laptop", f"{choose:.2f} s"),
        *scale(),
    ]


def scale() -> list[tuple[str, str]]:
    """The engine with many sites of 1,024 GPUs and K = 100, in processes of their own."""
    rows = []
    for topology, sites, windows in (("hub", 64, 1000), ("direct", 16, 1000), ("ring", 64, 50)):
        command = [sys.executable, "-m", "experiments.scale", "one", topology]
        options = ["--sites", str(sites), "--windows", str(windows)]
        done = subprocess.run([*command, *options], check=True, capture_output=True, text=True)
        rows.append((f"engine, {sites} sites, {topology}, {windows:,} windows", done.stdout.strip()))
    return rows


def relay() -> list[tuple[str, str]]:
    """What the emulated WAN carries."""
    rows = []
    for mbit in (200, 1000):
        size = int(mbit * 125e3 * payload_share(1500))
        point = Point(mbit, 30, size, flows=4, algorithm="bbr", both=False)
        took = measure(point, lambda done, of: None)["median_s"]
        rate = size * 8 / (took - 0.015) / 1e6
        rows.append(
            (f"emulated WAN, {mbit} Mbit/s, 30 ms, 4 BBR flows, 1 s of payload", f"{rate:.0f} Mbit/s")
        )
    return rows


if __name__ == "__main__":
    main()
