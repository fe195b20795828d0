"""Speed and memory of the tools themselves: `make bench`, or `python -m experiments.bench SECTION...`.

Every row is the median of several runs on an otherwise idle machine; ratios are taken within one run. What
is asked for stands beside it where something is.
"""

import argparse
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from statistics import median

import numpy as np
import torch
from rich.table import Table

from experiments.console import console
from experiments.exchange_alone.grid import Point
from experiments.exchange_alone.measure import measure
from geosim.cost.transport import payload_share
from geosim.policy import load_policy, preset_names
from geosim.scenario import load_scenario, scenario_names
from geosim.sim import simulate
from geosim.sim.closed_form import batch_from, steady_state
from geosim.tune import tune
from runtime.bench import summary_rows

_REPEATS = 5
_POLICIES = 1_000_000

Row = tuple[str, ...]  # what, what was found, and what is asked for where something is


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser("python -m experiments.bench", description=__doc__)
    parser.add_argument("sections", nargs="*", help=f"of {', '.join(_SECTIONS)}; all by default")
    chosen = parser.parse_args().sections or list(_SECTIONS)
    for name in chosen:
        if name not in _SECTIONS:
            parser.error(f"{name}: must be one of {', '.join(_SECTIONS)}")
    torch.set_num_threads(1)
    table = Table(box=None, pad_edge=False)
    table.add_column("what", max_width=58)
    table.add_column("", justify="right")
    table.add_column("asked for", justify="right")
    for name in chosen:
        for what, found, *bar in _SECTIONS[name]():
            print(what, found, sep=": ", file=sys.stderr, flush=True)
            table.add_row(what, found, *bar)
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


def simulator() -> Iterator[Row]:
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
    yield "geosim simulate laptop, 1,000 windows, whole process", f"{whole:.2f} s, {peak:.0f} MB"
    slow, name, pairs = slowest()
    yield f"geosim simulate, slowest of {pairs} built-in pairs ({name})", f"{slow:.2f} s", "0.7 s"
    yield "engine, two sites", f"{2000 / engine:,.0f} windows/s"
    rate = f"{_POLICIES / closed / 1e6:.1f} million policies/s"
    yield "closed form, a million rows at once, K from 1 to 1,000", rate, "5.0 million/s"
    yield "tune laptop", f"{choose:.2f} s"


def slowest() -> tuple[float, str, int]:
    """Seconds of `geosim simulate` of the built-in scenario and policy, slowest of all; which; how many."""
    geosim = str(Path(sys.executable).parent / "geosim")

    def took(pair: tuple[str, str], repeats: int = 1) -> float:
        command = [geosim, "simulate", pair[0], "--policy", pair[1]]
        return seconds(lambda: subprocess.run(command, check=True, stdout=subprocess.DEVNULL), repeats)

    pairs = list(product(scenario_names(), preset_names()))
    once = sorted(pairs, key=took)
    several = {pair: took(pair, _REPEATS) for pair in once[-3:]}
    most = max(several, key=lambda pair: several[pair])
    return several[most], f"{most[0]}, {most[1]}", len(pairs)


def scale() -> Iterator[Row]:
    """The engine with many sites of 1,024 GPUs and K = 100, in processes of their own."""
    for topology, sites in (("hub", 64), ("ring", 64), ("direct", 16), ("direct", 64)):
        command = [sys.executable, "-m", "experiments.scale", "one", topology, "--sites", str(sites)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        bar = "" if (topology, sites) == ("direct", 64) else "10 s, 500 MB"
        yield f"engine, {sites} sites, {topology}, 1,000 windows", done.stdout.strip(), bar


def relay() -> Iterator[Row]:
    """What the emulated WAN carries."""
    for mbit in (200, 1000):
        size = int(mbit * 125e3 * payload_share(1500))
        point = Point(mbit, 30, size, flows=4, algorithm="bbr", both=False)
        took = measure(point, lambda done, of: None)["median_s"]
        rate = size * 8 / (took - 0.015) / 1e6
        yield f"emulated WAN, {mbit} Mbit/s, 30 ms, 4 BBR flows, 1 s of payload", f"{rate:.0f} Mbit/s"


_SECTIONS: dict[str, Callable[[], Iterable[Row]]] = {
    "simulator": simulator,
    "scale": scale,
    "codec": summary_rows,
    "relay": relay,
}

if __name__ == "__main__":
    main()
