"""`geosim trace`: what the lanes of traces spent, and several in one file."""

from pathlib import Path
from typing import Annotated

import typer

from geosim.commands.shared import Json, check_writable, print_json, print_screen


def trace(
    files: Annotated[
        list[Path],
        typer.Argument(metavar="FILE...", help="Traces of geosim simulate, georun emulate or georun train."),
    ],
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", help="Write them all into one, side by side, for Perfetto."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Say what each lane of one or more traces spent a step, and put them side by side.

    For example geosim trace simulated.json measured.json --out both.json.
    """
    from geosim.report import trace_files, trace_tables
    from geosim.trace_events import save

    if out is not None:
        check_writable(out)
    loaded = [trace_files.load(path) for path in files]
    named = trace_files.labels(loaded, files)
    if out is not None:
        save(out, trace_files.side_by_side(loaded, named))
    if as_json:
        print_json(trace_tables.data(loaded, named))
        return
    print_screen(trace_tables.screen(loaded, named))
    if out is not None:
        typer.echo(f"\ntraces: {out} (open it at ui.perfetto.dev)")
