"""What a run of the engine costs: python -m experiments.scale, and `one` for one run.

Its time grows with sites, exchanges and windows. It does not grow with the GPUs of a site, nor with K.
Compiling the kernel, once an installation, and loading it, once a process, are not in it.
"""

import time
from pathlib import Path
from statistics import median
from typing import Annotated

import typer
from rich.table import Table

from experiments.console import console, run_app, write_json
from geosim.cost import build
from geosim.errors import UsageError
from geosim.policy import SyncPolicy, policy_from_dict
from geosim.report.style import BLUE, GREEN, RED, drawing
from geosim.scenario import Fabric, Hop, Scenario, Site, WanLink, Workload
from geosim.scenario.accelerator import accelerators
from geosim.sim import simulate
from geosim.sim.engine import Engine, warm_up

RESULT = Path("experiments/results/engine_scale.json")
FIGURE = Path("docs/figures/engine_scale.png")
_NODE = 8
_STEP_S = 0.5
_GPUS = (8, 64, 512, 4096, 16384)
_INTERVALS = (1, 10, 100, 1000, 10_000)
_SITES = (2, 4, 8, 16, 32, 64)
_COLOURS = {"hub": BLUE, "ring": GREEN, "direct": RED}
_TRANSFERS = 20_000  # of one run of the figure: enough for it to be worked out in one go


def scenario_of(topology: str, sites: int, gpus: int) -> Scenario:
    """Sites alike with 10 Gbit/s and 30 ms between those that a topology joins; steps vary by a tenth."""
    names = [f"s{m}" for m in range(sites)]
    inside = Hop(bandwidth_bytes_per_s=4.5e11, latency_s=3e-6)
    fabric = Fabric(intra_node=inside, inter_node=Hop(bandwidth_bytes_per_s=5e10, latency_s=5e-6))
    device = accelerators()["H100"]
    every = [(a, b) for a in range(sites) for b in range(a + 1, sites)]
    ways = {
        "hub": every[: sites - 1],
        "ring": list(dict.fromkeys(tuple(sorted((m, (m + 1) % sites))) for m in range(sites))),
        "direct": every,
    }
    if topology not in ways:
        raise UsageError(f"topology {topology}: must be one of {', '.join(ways)}")
    return Scenario(
        name="scale",
        sites=tuple(
            Site(name=n, accelerator=device, nodes=gpus // _NODE, accelerators_per_node=_NODE, fabric=fabric)
            for n in names
        ),
        wan=tuple(
            WanLink(between=(names[a], names[b]), bandwidth_bytes_per_s=1.25e9, rtt_s=0.03)
            for a, b in ways[topology]
        ),
        workload=Workload(model="gpt2-1.5b", step_time_s=_STEP_S, step_jitter=0.1),
    )


def policy_of(topology: str, interval: int) -> SyncPolicy:
    """Local steps, INT8, the exchange behind the next window."""
    return policy_from_dict(
        {
            "name": "scale",
            "update": "local",
            "interval": interval,
            "overlap": {"kind": "delayed"},
            "codec": {"quantize": "int8"},
            "topology": topology,
        }
    )


def measure(topology: str, sites: int, gpus: int, interval: int, windows: int) -> float:
    """Seconds of one run with one seed, its scenario made before."""
    scenario, policy = scenario_of(topology, sites, gpus), policy_of(topology, interval)
    simulate(scenario, policy, windows=1, seeds=1)  # what is worked out once is not the engine's
    Engine(build(scenario, policy), 0, 1, at_once=True).run()
    begun = time.perf_counter()
    simulate(scenario, policy, windows=windows, seeds=1)
    return time.perf_counter() - begun


app = typer.Typer(add_completion=False, help=__doc__)


@app.command()
def one(
    topology: Annotated[str, typer.Argument(help="hub, ring or direct")] = "hub",
    sites: Annotated[int, typer.Option(min=2, max=1024)] = 64,
    gpus: Annotated[int, typer.Option(help="a site, by eights", min=8)] = 1024,
    interval: Annotated[int, typer.Option(help="K", min=1)] = 100,
    windows: Annotated[int, typer.Option(min=1)] = 1000,
) -> None:
    """Run once and print seconds and the most memory of this process, in MB."""
    took = measure(topology, sites, gpus, interval, windows)
    peak = next(line for line in Path("/proc/self/status").read_text().splitlines() if "VmHWM" in line)
    print(f"{took:.2f} s, {1024 * float(peak.split()[1]) / 1e6:.0f} MB")


@app.command()
def figure(
    output: Annotated[Path, typer.Option(help="the figure")] = FIGURE,
    result: Annotated[Path, typer.Option(help="its numbers")] = RESULT,
) -> None:
    """Measure over GPUs, K and sites; write the figure and its numbers."""
    found = {
        "gpus": {n: _per_window("hub", 8, n, 100) for n in _GPUS},
        "interval": {k: _per_window("hub", 8, 64, k) for k in _INTERVALS},
        **{name: {n: _per_window(name, n, 64, 100) for n in _SITES} for name in _COLOURS},
    }
    write_json(result, found)
    table = Table("over", "of", "ms a window", box=None, pad_edge=False)
    for over, row in found.items():
        for n, seconds in row.items():
            table.add_row(over, f"{n:,}", f"{1e3 * seconds:.2f}")
    console.print(table)
    _draw(found, output)


def _per_window(topology: str, sites: int, gpus: int, interval: int) -> float:
    problem = build(scenario_of(topology, sites, gpus), policy_of(topology, interval))
    windows = max(100, _TRANSFERS // len(problem.routes))
    took = median(measure(topology, sites, gpus, interval, windows) for _ in range(3))
    return took / (windows + warm_up(problem))


def _draw(found: dict[str, dict[int, float]], output: Path) -> None:
    with drawing(output, 1, 3, (12.0, 3.5)) as (gpus, interval, sites):
        for ax, name, words in ((gpus, "gpus", "GPUs a site"), (interval, "interval", "K, steps a window")):
            ax.plot(list(found[name]), [1e3 * s for s in found[name].values()], marker="o", color=BLUE)
            ax.set(xscale="log", xlabel=words, ylim=(0, 2e3 * max(found[name].values())))
            ax.set_title(f"8 sites, hub: over {words.split(',')[0]}")
        for name, colour in _COLOURS.items():
            values = [1e3 * s for s in found[name].values()]
            sites.plot(list(found[name]), values, marker="o", color=colour, label=name)
        sites.set(xscale="log", yscale="log", xlabel="sites")
        sites.set_xticks(_SITES, [str(n) for n in _SITES])
        sites.minorticks_off()
        sites.set_title("over sites")
        sites.legend()
        gpus.set_ylabel("ms a simulated window")
        for ax in (gpus, interval, sites):
            ax.grid(axis="y")
            ax.set_axisbelow(True)


if __name__ == "__main__":
    run_app(app, "scale")
