"""What all commands share: options, how a scenario is found, where they print and write."""

import errno
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from geosim.errors import UsageError
from geosim.files import whole_file

if TYPE_CHECKING:
    from rich.console import RenderableType

    from geosim.cost.calibration import Calibration
    from geosim.scenario import Scenario


ScenarioName = Annotated[str, typer.Argument(metavar="SCENARIO", help="A built-in scenario or a YAML file.")]
PolicyName = Annotated[
    str, typer.Option("--policy", metavar="NAME|FILE", help="A built-in policy or a YAML file.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, and nothing else.")]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="KEY=VALUE", help='Set a field by its path: wan.0.rtt="80 ms", policy.interval=8.'
    ),
]
Seeds = Annotated[int, typer.Option("--seeds", min=1, max=10_000, help="Simulated runs.")]
WINDOWS = 60  # as `sim.simulate.WINDOWS`, which takes longer to load
Windows = Annotated[
    int, typer.Option("--windows", min=1, max=1_000_000, help="Windows measured in each run.")
]
DefaultSeeds = Annotated[
    int | None,
    typer.Option(
        "--seeds", min=1, max=10_000,
        help="Simulated runs. Default: 3, fewer where they are long, 1 where nothing is random.",
    ),
]  # fmt: skip
CalibrationFile = Annotated[
    Path | None,
    typer.Option("--calibration", metavar="FILE", help="Measured constants of a machine, in YAML."),
]

Figure = Annotated[
    Path | None, typer.Option("--figure", metavar="FILE", help="Draw it: a .png, .pdf or .svg file.")
]
_FIGURES = (".png", ".pdf", ".svg")


def check_figure(path: Path) -> None:
    """Refuse a figure that cannot be written before the work starts."""
    if path.suffix not in _FIGURES:
        raise UsageError(f"--figure {path}: write to a file that ends in {', '.join(_FIGURES)}")
    check_writable(path)


def world_of(name: str, settings: list[str] | None) -> "tuple[Scenario, dict[str, Any]]":
    """The scenario with its settings applied, and the settings that are the policy's."""
    from geosim.scenario import load_scenario
    from geosim.settings import split_settings

    for_scenario, for_policy = split_settings(settings or ())
    return load_scenario(name, for_scenario), for_policy


def calibration_of(path: Path | None) -> "Calibration | None":
    from geosim.cost.calibration import load_calibration

    return None if path is None else load_calibration(path)


def check_writable(path: Path) -> None:
    """Refuse a path that cannot be written before the work starts."""
    folder = path.parent
    try:
        if path.is_dir():
            raise UsageError(f"{path}: is a folder: name a file")
        if not folder.is_dir():
            raise UsageError(f"{path}: there is no folder {folder}: create it first")
        if not path.exists():
            path.touch()
            path.unlink()
        elif not os.access(path, os.W_OK):
            raise UsageError(f"{path}: cannot write: {os.strerror(errno.EACCES)}")
    except OSError as error:
        raise UsageError(f"{path}: cannot write: {error.strerror}") from None


def write_file(path: Path, text: str) -> None:
    try:
        with whole_file(path) as part:
            part.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{path}: cannot write: {error.strerror}") from None


def print_screen(what: "RenderableType") -> None:
    """Print a screen."""
    from geosim.screen import rendered

    typer.echo(rendered(what))


def print_files(trace: Path | None = None, figure: Path | None = None) -> None:
    """Where a trace and a figure lie, below an empty line."""
    if trace is not None or figure is not None:
        print_screen("")
    if trace is not None:
        typer.echo(f"trace: {trace} (open it at ui.perfetto.dev)")
    if figure is not None:
        typer.echo(f"figure: {figure}")


def print_json(data: Any) -> None:
    typer.echo(json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False))
