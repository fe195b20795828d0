"""`geosim`: what is built in, simulate, compare, tune, and what one asks. Commands import when they run."""

import gc
import sys
from pathlib import Path
from typing import Annotated

import typer

from geosim.commands import nccl_env, questions, traces
from geosim.commands.calibrate import calibrate
from geosim.commands.goodput import goodput
from geosim.commands.shared import (
    WINDOWS,
    CalibrationFile,
    DefaultSeeds,
    Figure,
    Json,
    PolicyName,
    ScenarioName,
    Settings,
    Windows,
    calibration_of,
    check_figure,
    check_writable,
    print_files,
    print_json,
    print_screen,
    world_of,
    write_file,
)
from geosim.commands.topology import topology
from geosim.console import run_quietly
from geosim.errors import UsageError

# Objects made before garbage is looked for. Python's 700 takes a tenth of a short command: modules that load
# make tens of thousands, and drop next to none.
_GARBAGE = 50_000

app = typer.Typer(
    name="geosim",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Simulate and tune the training of large models across data centres.",
)


@app.command()
def scenarios(as_json: Json = False) -> None:
    """List the built-in scenarios."""
    from geosim.report import listing, tables
    from geosim.scenario import load_scenario, scenario_names

    loaded = [load_scenario(name) for name in scenario_names()]
    if as_json:
        print_json({"scenarios": [listing.scenario(s) for s in loaded]})
    else:
        print_screen(tables.scenarios_table(loaded))


@app.command()
def policies(as_json: Json = False) -> None:
    """List the built-in policies."""
    from geosim.policy import load_policy, preset_names
    from geosim.report import listing, tables

    loaded = [load_policy(name) for name in preset_names()]
    if as_json:
        print_json({"policies": [listing.policy(p) for p in loaded]})
    else:
        print_screen(tables.policies_table(loaded))


@app.command()
def simulate(
    scenario: ScenarioName,
    policy: PolicyName,
    settings: Settings = None,
    seeds: DefaultSeeds = None,
    windows: Windows = WINDOWS,
    calibration: CalibrationFile = None,
    trace: Annotated[
        Path | None,
        typer.Option("--trace", metavar="FILE", help="Write the first run as a Perfetto (Chrome) trace."),
    ] = None,
    figure: Figure = None,
    as_json: Json = False,
) -> None:
    """Predict what a policy costs: where each millisecond of a step goes, and what each link carries."""
    from geosim.policy import load_policy
    from geosim.report import breakdown, spending
    from geosim.sim import Tracer, simulate

    world, changes = world_of(scenario, settings)
    chosen = load_policy(policy, changes)
    known = calibration_of(calibration)
    if trace is not None:
        check_writable(trace)
    if figure is not None:
        check_figure(figure)
    tracer = None if trace is None else Tracer()
    result = simulate(world, chosen, seeds=seeds, windows=windows, calibration=known, trace=tracer)
    if trace is not None and tracer is not None:
        from geosim.report.trace import write_trace

        write_trace(trace, result, tracer, breakdown.words_of_compute(world))
    if figure is not None:
        from geosim.report.figures import breakdown_figure

        title = f"Where a step goes: {world.name} under {chosen.name}"
        breakdown_figure(breakdown.by_site(world, result.to_dict()), figure, title)
    found = result.to_dict()
    spent = spending.spending(world, chosen, found)
    if as_json:
        print_json({**found, **spent})
    else:
        from geosim.report import tables, verdict

        said = verdict.hiding(chosen, found)
        print_screen(tables.simulation(world, chosen, found, said, spending.lines(world, spent)))
        print_files(trace, figure)


@app.command()
def compare(
    scenario: ScenarioName,
    policy: Annotated[
        list[str],
        typer.Option("--policy", metavar="NAME|FILE", help="A policy; give the option once for each."),
    ],
    settings: Settings = None,
    seeds: DefaultSeeds = None,
    windows: Windows = WINDOWS,
    calibration: CalibrationFile = None,
    as_json: Json = False,
) -> None:
    """Put policies side by side and say what decides between them.

    --set policy.FIELD=VALUE applies to every policy.
    """
    from geosim.policy import load_policy
    from geosim.report import claims, notes, tables
    from geosim.sim import simulate

    world, changes = world_of(scenario, settings)
    chosen = [load_policy(name, changes) for name in policy]
    known = calibration_of(calibration)
    results = []
    for p in chosen:
        try:
            done = simulate(world, p, seeds=seeds, windows=windows, calibration=known)
        except UsageError as error:
            raise UsageError(f"policy {p.name}: {error}") from None
        results.append(done.to_dict())
    said = notes.what_decides(world, chosen, results, known)
    checked = claims.check(world, chosen, results, known)
    if as_json:
        rows = [claim.to_dict() for claim in checked]
        print_json({"scenario": world.name, "results": results, "notes": said, "claims": rows})
        return
    print_screen(tables.comparison(world, results, [p.name for p in chosen]))
    print_screen(tables.listing("What decides it", said))
    if checked:
        print_screen(claims.table(checked))


@app.command()
def tune(
    scenario: ScenarioName,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Write the chosen policy as YAML.")
    ] = None,
    base: Annotated[
        str | None,
        typer.Option("--base", metavar="NAME|FILE", help="Keep this policy's update, topology and so on."),
    ] = None,
    settings: Settings = None,
    max_interval: Annotated[
        int | None,
        typer.Option(
            "--max-interval", min=1, help="The largest K; 64 if gradients accumulate, 512 for local steps."
        ),
    ] = None,
    calibration: CalibrationFile = None,
    as_json: Json = False,
) -> None:
    """Choose the least aggressive policy within 5 % of the best reachable throughput.

    It chooses interval, streams, overlap, codec.select and codec.quantize, adds
    a residual where something is lost, and among three sites or more chooses a
    topology unless --base has another than direct. What --set policy.FIELD=VALUE
    says of one of these is held fixed. All else is as --base has it, and so are
    an eager or streaming overlap and random-k.
    """
    from geosim.policy import SyncPolicy, load_policy, policy_from_dict
    from geosim.report import tuning
    from geosim.report.reason import reason
    from geosim.settings import apply_settings
    from geosim.tune import default_base, held_fields
    from geosim.tune.topology import tune_way

    world, changes = world_of(scenario, settings)
    if base is None:
        start = policy_from_dict(apply_settings(SyncPolicy, default_base().to_dict(), changes))
    else:
        start = load_policy(base, changes)
    known = calibration_of(calibration)
    if out is not None:
        check_writable(out)
    found = tune_way(world, start, max_interval, known, held_fields(changes))
    tuned = found.tuned
    reasons = [*reason(world, tuned, known), *found.reason]
    if out is not None:
        write_file(out, tuned.chosen.policy.to_yaml())
    if as_json:
        print_json(tuning.data(tuned, reasons))
    else:
        print_screen(tuning.screen(world, tuned, reasons))
        if out is not None:
            typer.echo(f"\npolicy: {out}")


@app.command()
def plan(
    scenario: ScenarioName,
    policy: Annotated[
        str | None,
        typer.Option(
            "--policy", metavar="NAME|FILE", help="Leave room for what this policy keeps in memory."
        ),
    ] = None,
    count: Annotated[int, typer.Option("--count", min=1, max=1000, help="Choices listed a site.")] = 5,
    settings: Settings = None,
    as_json: Json = False,
) -> None:
    """List the fastest parallelisms of a step inside each site that fit its memory.

    All degrees are varied but those that --set fixes, like
    --set workload.parallel.tensor=8.
    """
    from geosim.policy import load_policy
    from geosim.report import plans
    from geosim.settings import split_settings

    world, changes = world_of(scenario, settings)
    if policy is None and changes:
        raise UsageError(f"--set policy.{next(iter(changes))}: needs --policy")
    fixed = split_settings(settings or ())[0]
    made = plans.make(world, None if policy is None else load_policy(policy, changes), count, fixed)
    if as_json:
        print_json(plans.data(world, made))
    else:
        print_screen(plans.screen(world, made))


for question in (topology, questions.sweep, questions.require, questions.sensitivity, goodput):
    app.command()(question)
app.command()(traces.trace)
app.command("nccl-env")(nccl_env.nccl_env)
app.command()(calibrate)


def main(arguments: list[str] | None = None) -> None:
    """Entry point of the console script. Ends with 0, 1 (run), 2 (usage) or 130 (Ctrl-C)."""
    gc.set_threshold(_GARBAGE)
    sys.exit(run_quietly(lambda: app(arguments, prog_name="geosim", standalone_mode=False), "geosim"))


if __name__ == "__main__":
    main()
