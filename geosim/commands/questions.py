"""`geosim sweep`, `require` and `sensitivity`: what one asks of a scenario and a policy."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from geosim.commands.shared import (
    WINDOWS,
    CalibrationFile,
    Figure,
    Json,
    PolicyName,
    ScenarioName,
    Seeds,
    Settings,
    Windows,
    calibration_of,
    check_figure,
    check_writable,
    print_files,
    print_json,
    print_screen,
    world_of,
)
from geosim.errors import UsageError

if TYPE_CHECKING:
    from geosim.questions.require import Target
    from geosim.questions.sweep import Row, Sweep


def sweep(
    scenario: ScenarioName,
    policy: PolicyName,
    grid: Annotated[
        list[str] | None,
        typer.Option(
            "--grid",
            metavar="FIELD=VALUES",
            help="V1,V2,... or LOW:HIGH:COUNT or LOW:HIGH:COUNTlog; once for each field.",
        ),
    ] = None,
    settings: Settings = None,
    seeds: Seeds = 3,
    windows: Windows = WINDOWS,
    calibration: CalibrationFile = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", help="Write the rows as they come: a .csv or .parquet file."),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with --out; what is in it is not run again.")
    ] = False,
    jobs: Annotated[int, typer.Option("--jobs", min=1, max=1024, help="Processes at once.")] = 1,
    backend: Annotated[
        str, typer.Option("--backend", metavar="loky|dask|ray", help="What joblib runs them on.")
    ] = "loky",
    figure: Figure = None,
    yes: Annotated[bool, typer.Option("--yes", help="Run more than 100,000 points.")] = False,
    as_json: Json = False,
) -> None:
    """Simulate a policy over a grid of any fields of the scenario or the policy.

    For example --grid "wan.0.bandwidth=1 Gbit/s:100 Gbit/s:9log" --grid
    policy.interval=1,4,16. Rows come in grid order and are the same for any
    --jobs.
    """
    from geosim.policy import load_policy
    from geosim.questions.sweep import make_sweep
    from geosim.questions.workers import BACKENDS
    from geosim.report import sweep_figures, sweeps

    if backend not in BACKENDS:
        raise UsageError(f"--backend {backend}: use one of {', '.join(BACKENDS)}")
    if resume and out is None:
        raise UsageError("--resume: needs the file to go on with: add --out FILE")
    world, changes = world_of(scenario, settings)
    known = calibration_of(calibration)
    asked = make_sweep(world, load_policy(policy, changes), grid or (), seeds, windows, known, yes)
    if figure is not None:
        sweep_figures.check_axes(asked)
        check_figure(figure)
    rows = _rows(asked, out, resume, jobs, backend)
    if figure is not None:
        sweep_figures.figure(asked, rows, figure)
    if as_json:
        print_json(sweeps.data(asked, rows))
    else:
        print_screen(sweeps.screen(asked, rows, None if out is None else str(out)))
        if figure is not None:
            typer.echo(f"figure: {figure}" if out is not None else f"\nfigure: {figure}")


def _rows(sweep: "Sweep", out: Path | None, resume: bool, jobs: int, backend: str) -> "list[Row]":
    """All rows of a sweep, those of an earlier run included."""
    from contextlib import closing

    from geosim.questions.rows import RowFile
    from geosim.questions.workers import run_points

    if out is None:
        with closing(run_points(sweep, 0, jobs, backend)) as points:
            return list(_told(points, 0, len(sweep)))
    check_writable(out)
    file = RowFile(out, sweep, resume)
    if file.is_complete:
        return file.rows
    with closing(run_points(sweep, len(file.rows), jobs, backend)) as points, file:
        for row in _told(points, len(file.rows), len(sweep)):
            file.add(row)
    return file.rows


def _told(rows: Any, done: int, total: int) -> Any:
    """Rows as they come, with a line on standard error at every tenth of them."""
    if done:
        print(f"geosim sweep: {done:,} of {total:,} points are there already", file=sys.stderr)
    for row in rows:
        before, done = done, done + 1
        yield row
        if 10 * done // total > 10 * before // total and total >= 10:
            print(f"geosim sweep: {done:,} of {total:,} points", file=sys.stderr)


def require(
    scenario: ScenarioName,
    policy: PolicyName,
    utilization: Annotated[
        str | None, typer.Option("--utilization", metavar="SHARE", help="Compute utilization to reach: 0.95.")
    ] = None,
    relative: Annotated[
        str | None,
        typer.Option(
            "--relative", metavar="SHARE", help="Or throughput, of the same accelerators in one room."
        ),
    ] = None,
    vary: Annotated[
        list[str] | None,
        typer.Option(
            "--vary", metavar="FIELD", help="wan.0.bandwidth, wan.0.rtt or wan.0.loss; * for all links."
        ),
    ] = None,
    settings: Settings = None,
    seeds: Seeds = 3,
    windows: Windows = WINDOWS,
    calibration: CalibrationFile = None,
    as_json: Json = False,
) -> None:
    """Find the least bandwidth, the largest RTT and the highest loss that reach a target.

    One is varied at a time, all else stays as it is. Each answer is run, and
    so is what lies 1 % beyond it.
    """
    from geosim.policy import load_policy
    from geosim.questions.knobs import knobs_for
    from geosim.questions.limits import what_limits
    from geosim.questions.require import Trial
    from geosim.questions.require import require as find
    from geosim.report import requirements

    target = _target(utilization, relative)
    world, changes = world_of(scenario, settings)
    knobs = knobs_for(world, vary or ())
    trial = Trial(world, load_policy(policy, changes), target, seeds, windows, calibration_of(calibration))
    answers = []
    for knob in knobs:
        answer = find(trial, knob)
        # That one link of several is not enough alone needs no further runs to explain.
        asks = answer.found == "none" and (knob.link is None or bool(vary) or len(world.wan) == 1)
        best = knob.turned(world, answer.passes.value)
        answers.append((answer, what_limits(trial, best) if asks else None))
    if as_json:
        print_json(requirements.data(trial, answers))
    else:
        print_screen(requirements.screen(trial, answers))


def _target(utilization: str | None, relative: str | None) -> "Target":
    """The one target that was given."""
    from geosim.questions.require import Target

    if (utilization is None) == (relative is None):
        raise UsageError("--utilization: say what to reach, like --utilization 0.95, or --relative 0.9")
    if utilization is not None:
        return Target("utilization", _share("--utilization", utilization, 1.0))
    assert relative is not None
    return Target("relative", _share("--relative", relative, 10.0))


def _share(option: str, text: str, most: float) -> float:
    """A share from an option's text: "0.95" or "95 %"."""
    from geosim.units import parse_percent

    value = parse_percent(text)
    if value is None:
        try:
            value = float(text)
        except ValueError:
            raise UsageError(f"{option} {text}: is no number: write a share, like 0.95 or '95 %'") from None
    if not 0 < value <= most:
        raise UsageError(f"{option} {text}: must be above 0 and at most {most:g}")
    return value


def sensitivity(
    scenario: ScenarioName,
    policy: PolicyName,
    settings: Settings = None,
    seeds: Seeds = 3,
    windows: Windows = WINDOWS,
    calibration: CalibrationFile = None,
    figure: Figure = None,
    as_json: Json = False,
) -> None:
    """Say what a change is worth in step time and tokens a second.

    One more Gbit/s, one ms less RTT, one more accelerator a site, K + 1 and so
    on: by derivatives of the closed form, checked by differences of the engine.
    """
    from geosim.policy import load_policy
    from geosim.questions.sensitivity import sensitivity as find
    from geosim.report import worths

    world, changes = world_of(scenario, settings)
    chosen = load_policy(policy, changes)
    if figure is not None:
        check_figure(figure)
    found = find(world, chosen, seeds, windows, calibration_of(calibration))
    if figure is not None:
        worths.figure(found, figure)
    if as_json:
        print_json(worths.data(found))
    else:
        print_screen(worths.screen(world, chosen, found))
        print_files(figure=figure)
