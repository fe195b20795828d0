"""`geosim calibrate`: what measurements say about a scenario."""

from pathlib import Path
from typing import Annotated

import typer

from geosim.commands.shared import Json, check_writable, print_json, print_screen, write_file
from geosim.errors import UsageError


def calibrate(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE...", help="Outputs of the tools, plain or gzipped.")
    ],
    kind: Annotated[
        str | None, typer.Option("--as", metavar="KIND", help="What the files are, if they do not show it.")
    ] = None,
    scenario: Annotated[
        str | None, typer.Option("--scenario", metavar="NAME|FILE", help="Put the values into this one.")
    ] = None,
    link: Annotated[
        str | None,
        typer.Option(
            "--link", metavar="A-B", help="The link measured: the client ran in A, the server in B."
        ),
    ] = None,
    site: Annotated[
        list[str] | None,
        typer.Option("--site", metavar="NAME", help="A site whose fabric was measured; once for each."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Write the new scenario as YAML.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Read measurements into values of a scenario, and say what they could not tell.

    Reads iperf3 -J, ping, nccl-tests, Chrome traces of torch.profiler and
    config.json of Hugging Face. Several files of one link, site or workload go
    together. For more links, go on from the scenario that was written.
    """
    from geosim.calibrate import combine, fill, read_file
    from geosim.report import calibration
    from geosim.scenario import load_scenario

    _check(scenario, link, site, out)
    if len({str(file) for file in files}) != len(files):
        raise UsageError(f"{next(f for f in files if files.count(f) > 1)}: given twice")
    base = None if scenario is None else load_scenario(scenario)
    if out is not None:
        check_writable(out)
    readings = [read_file(file, kind) for file in files]
    combined = combine(readings)
    filled = None if base is None else fill(base, combined.choices, link, site or ())
    if filled is not None and out is not None:
        write_file(out, filled.scenario.to_yaml())
    if as_json:
        print_json(calibration.data(readings, combined, filled))
    else:
        print_screen(calibration.screen(readings, combined, filled))
        if out is not None:
            print_screen(f"\nscenario: {out}")


def _check(scenario: str | None, link: str | None, site: list[str] | None, out: Path | None) -> None:
    """Options that need each other."""
    for option, value in (("--link", link), ("--site", site and site[0]), ("--out", out)):
        if value is not None and scenario is None:
            raise UsageError(
                f"{option} {value}: needs the scenario to put values into: add --scenario NAME|FILE"
            )
    if scenario is not None and out is None:
        raise UsageError(f"--scenario {scenario}: needs a file for the new one: add --out FILE")
