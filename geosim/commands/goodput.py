"""`geosim goodput`: what policies lose to faults."""

from pathlib import Path
from typing import Annotated

import typer

from geosim.commands.shared import (
    WINDOWS,
    CalibrationFile,
    Figure,
    Json,
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
)


def goodput(
    scenario: ScenarioName,
    policy: Annotated[
        list[str] | None,
        typer.Option(
            "--policy", metavar="NAME|FILE", help="A policy; once for each. None: all that are built in."
        ),
    ] = None,
    days: Annotated[float, typer.Option("--days", min=0.001, max=3650, help="How long a run is.")] = 7.0,
    settings: Settings = None,
    seeds: Annotated[int, typer.Option("--seeds", min=1, max=10_000, help="Runs with other faults.")] = 3,
    windows: Windows = WINDOWS,
    calibration: CalibrationFile = None,
    jobs: Annotated[int, typer.Option("--jobs", min=1, max=1024, help="Processes at once.")] = 1,
    figure: Figure = None,
    trace: Annotated[
        Path | None,
        typer.Option(
            "--trace", metavar="FILE", help="Write the first policy's first run, every second, for Perfetto."
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Say what each policy loses to stragglers, link faults and restarts over days.

    The scenario's faults: states failure rates, or --set does, for example
    --set "faults.link.mtbf=100 h". All policies meet the same faults.
    """
    from geosim.policy import load_policy, preset_names
    from geosim.questions.goodput import Asked, traced
    from geosim.questions.goodput import goodput as find
    from geosim.report import goodput as report

    world, changes = world_of(scenario, settings)
    chosen = [load_policy(name, changes) for name in policy or preset_names()]
    if figure is not None:
        check_figure(figure)
    asked = Asked(world, days, seeds, windows, calibration_of(calibration))
    if trace is not None:
        from geosim.report.trace import write_trace
        from geosim.sim import Tracer

        check_writable(trace)
        tracer = Tracer()
        write_trace(trace, traced(asked, chosen[0], tracer), tracer)
    found = find(asked, chosen, jobs)
    if figure is not None:
        report.figure(asked, found, figure)
    if as_json:
        print_json(report.data(asked, found))
    else:
        print_screen(report.screen(asked, found))
        print_files(trace, figure)
