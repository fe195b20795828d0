"""The closed loop in one command: measure, choose by simulation, train over an emulated WAN, compare.

    python -m experiments.closed_loop laptop

Three real runs see the same tokens: flat DDP over the WAN (torch's own, one group that spans the sites), the
same ranks co-located (no WAN between them), and the chosen policy over the WAN. Leaves a figure, a trace,
`policy.yaml`, `calibration.yaml` and `summary.json` in the output folder.
"""

import json
import time
from pathlib import Path
from statistics import median
from typing import Annotated, Any, Literal

import typer
from rich.table import Table

from experiments.calibrate import REPEATS, Calibrated, Kind, calibrate
from experiments.console import console, pace_seconds, progress_of, run_app, write_json
from geosim.console import make_folder
from geosim.errors import UsageError
from geosim.policy import SyncPolicy, load_policy
from geosim.report.figures import closed_loop_figure
from geosim.report.reason import reason
from geosim.report.trace import write_trace
from geosim.report.words import policy_line
from geosim.scenario import Scenario, Site, load_scenario
from geosim.settings import split_settings
from geosim.sim import Tracer, simulate
from geosim.tune import Tuned, default_base, tune
from geosim.units import SIZE, TIME, show
from runtime.launch import emulate

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
TITLES = {
    "flat-ddp": "flat DDP over the WAN",
    "co-located": "co-located, no WAN",
    "chosen": "chosen policy over the WAN",
}


@app.command()
def closed_loop(
    scenario: Annotated[str, typer.Argument(help="name or YAML file")] = "laptop",
    steps: Annotated[int, typer.Option(min=1, help="steps of each run, rounded up to whole windows")] = 64,
    pace: Annotated[str, typer.Option(help="declared step time; 'none': as fast as it computes")] = "250 ms",
    settings: Annotated[list[str] | None, typer.Option("--set", help="scenario field, key=value")] = None,
    data: Annotated[str | None, typer.Option(help="text file or folder")] = None,
    out: Annotated[Path, typer.Option(help="where the results go")] = Path("out/closed_loop"),
    seed: Annotated[int, typer.Option(help="of parameters and data order")] = 0,
    repeats: Annotated[
        int, typer.Option(min=1, help="co-located runs to measure; more if disturbed")
    ] = REPEATS,
    as_json: Annotated[bool, typer.Option("--json", help="print the summary as JSON")] = False,
) -> None:
    """Simulate, choose, train for real over an emulated WAN, compare."""
    begun = time.perf_counter()
    changes, policy_changes = split_settings(settings or [])
    if policy_changes:
        field = next(iter(policy_changes))
        raise UsageError(f"--set policy.{field}: the loop chooses the policy: set scenario fields only")
    world = load_scenario(scenario, changes)
    base = default_base()
    pace_s = pace_seconds(pace)
    make_folder("--out", out)
    common: dict[str, Any] = {"data": data, "seed": seed}

    with progress_of("1/5 measure compute, co-located") as progress:
        (measured,) = calibrate([Kind(world, base, pace_s)], repeats=repeats, progress=progress, **common)
    (out / "calibration.yaml").write_text(measured.calibration.to_yaml())
    _say_calibration(measured)

    with progress_of("2/5 choose a policy by simulation"):
        tuned = tune(measured.scenario, base, calibration=measured.calibration)
        chosen = tuned.chosen.policy.model_copy(update={"name": "chosen"})
    (out / "policy.yaml").write_text(chosen.to_yaml())
    _say_choice(tuned, measured)

    ddp = load_policy("ddp")
    whole = -(-steps // chosen.interval) * chosen.interval
    runs: dict[str, dict[str, Any]] = {}
    plan: list[tuple[str, SyncPolicy, Literal["tun", "none"]]] = [
        ("co-located", ddp, "none"),
        ("chosen", chosen, "tun"),
        ("flat-ddp", ddp, "tun"),
    ]
    for i, (name, policy, wan) in enumerate(plan, start=3):
        with progress_of(f"{i}/5 train: {TITLES[name]}") as progress:
            run = emulate(
                world, policy, whole, wan=wan, validations=4, progress=progress, pace_s=pace_s, **common
            )
        runs[name] = {"measured": run, "loss": _curve(run, world)}
    _predict(runs, measured, chosen, out / "trace.json")
    _settle_room(runs["co-located"])
    _relate(runs)
    summary = {
        "title": f"{world.name}: {_link_words(world)}" + (f", compute paced to {pace}" if pace_s else ""),
        "scenario": world.to_dict(),
        "policy": chosen.to_dict(),
        "calibration": measured.calibration.to_dict(),
        "steps": whole,
        "paced": pace_s is not None,
        "seconds": time.perf_counter() - begun,
        "runs": runs,
        "against_colocated": runs["chosen"]["measured"]["relative_to_colocated"],
        "against_flat_ddp": _ratio(runs),
    }
    write_json(out / "summary.json", summary)
    closed_loop_figure(summary, out / "closed_loop.png")
    if as_json:
        typer.echo(json.dumps(summary))
        return
    _say_result(summary, out)


def merged(scenario: Scenario) -> Scenario:
    """The same accelerators in one room: one site of all ranks on the first site's fabric."""
    first = scenario.sites[0]
    room = Site(
        name="room",
        accelerator=first.accelerator,
        nodes=1,
        accelerators_per_node=scenario.ranks,
        fabric=first.fabric,
    )
    return scenario.model_copy(update={"sites": (room,), "wan": ()})


def _predict(runs: dict[str, dict[str, Any]], measured: Calibrated, chosen: SyncPolicy, trace: Path) -> None:
    """What the simulator says of the three runs; it has seen the calibration run and none of them."""
    known, world = measured.calibration, measured.scenario
    ddp = load_policy("ddp")
    runs["flat-ddp"]["predicted"] = simulate(world, ddp, calibration=known).to_dict()
    runs["co-located"]["predicted"] = simulate(merged(world), ddp, calibration=known).to_dict()
    tracer = Tracer()
    result = simulate(world, chosen, calibration=known, trace=tracer)
    write_trace(trace, result, tracer)
    runs["chosen"]["predicted"] = result.to_dict()


def _settle_room(room: dict[str, Any]) -> None:
    """In one room nothing is the WAN's: what a step waits for is the collective, and links carry nothing."""
    for result in (room["predicted"], room["measured"]):
        result["parts"]["site_collective"] += result["parts"]["wait"]
        result["parts"]["wait"] = result["exposed_wan_s_per_step"] = 0.0
        result["links"] = {}


def _relate(runs: dict[str, dict[str, Any]]) -> None:
    """Throughput relative to the co-located run: measured against measured, predicted against predicted."""
    for kind in ("predicted", "measured"):
        room = runs["co-located"][kind]["tokens_per_s"]
        for run in runs.values():
            run[kind]["relative_to_colocated"] = run[kind]["tokens_per_s"] / room


def _ratio(runs: dict[str, dict[str, Any]]) -> float:
    return float(runs["chosen"]["measured"]["tokens_per_s"] / runs["flat-ddp"]["measured"]["tokens_per_s"])


def _curve(run: dict[str, Any], scenario: Scenario) -> list[tuple[float, float, float]]:
    """(tokens, seconds, training loss) a step."""
    work = scenario.workload
    tokens = work.sequence * work.batch_per_accelerator * scenario.ranks
    return [
        (step * tokens, seconds, loss)
        for (step, loss), seconds in zip(run["loss"], run["wall_s"], strict=True)
    ]


def _link_words(scenario: Scenario) -> str:
    link = scenario.wan[0]
    rate = link.bandwidth_bytes_per_s * 8 / 1e6
    sites = f"{len(scenario.sites)} sites of {scenario.sites[0].ranks} ranks"
    return f"{sites}, {rate:g} Mbit/s, {show(link.rtt_s, TIME)} RTT"


def _say_calibration(measured: Calibrated) -> None:
    known, step = measured.calibration, measured.scenario.workload.step_time_s or 0.0
    encode_s = median(run["parts_of_window"]["encode"] for run in measured.runs)
    console.print(
        f"  compute {show(step, TIME)} a step, site collective {show(known.site_collective_s or 0, TIME)}, "
        f"encode {show(encode_s, TIME)} and apply "
        f"{show(known.optimizer_s or 0, TIME)} a window"
    )


def _say_choice(tuned: Tuned, measured: Calibrated) -> None:
    console.print(f"  chosen: [bold]{policy_line(tuned.chosen.policy)}[/bold]")
    for line in reason(measured.scenario, tuned, measured.calibration):
        console.print(f"  - {line}")


def _say_result(summary: dict[str, Any], out: Path) -> None:
    table = Table(title=summary["title"], title_justify="left", box=None, pad_edge=False)
    table.add_column("")
    for head in (
        "step\npredicted",
        "step\nmeasured",
        "exposed\npredicted",
        "exposed\nmeasured",
        "WAN bytes\na step",
        "of\nco-located",
        "validation\nloss",
    ):
        table.add_column(head, justify="right")
    for name in ("co-located", "chosen", "flat-ddp"):
        run = summary["runs"][name]
        said, was = run["predicted"], run["measured"]
        table.add_row(
            name.replace("-ddp", " DDP"),
            show(said["step_time_s"]["mean"], TIME),
            show(was["step_time_s"]["mean"], TIME),
            show(said["exposed_wan_s_per_step"], TIME),
            show(was["exposed_wan_s_per_step"], TIME),
            show(sum(link["bytes_per_step"] for link in was["links"].values()), SIZE),
            f"{100 * was['relative_to_colocated']:.1f} %",
            f"{was['val_loss']:.3f}",
        )
    console.print()
    console.print(table)
    console.print(
        f"\nThe chosen policy reaches {100 * summary['against_colocated']:.1f} % of co-located throughput "
        f"and {summary['against_flat_ddp']:.1f} times flat DDP. All three saw the same tokens."
    )
    if summary["paced"]:
        console.print("Compute is paced: ranks compute for real, then sleep to the declared step time.")
    names = ", ".join(sorted(path.name for path in out.iterdir()))
    console.print(f"In {out}/: {names} ({summary['seconds']:.0f} s in all)")


def main() -> None:
    """Console entry."""
    run_app(app, "closed_loop")


if __name__ == "__main__":
    main()
