"""Measure the grid, or one point of it.

python -m experiments.exchange_alone                    # every point, 2 hours
python -m experiments.exchange_alone --point NAME       # one; --list names them
"""

import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from experiments.console import console, run_app
from experiments.exchange_alone.grid import GRID
from experiments.exchange_alone.measure import measure
from experiments.exchange_alone.store import RESULTS, load, save
from geosim.console import parse_option
from geosim.errors import UsageError
from geosim.units import TIME

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def exchange_alone(
    point: Annotated[str | None, typer.Option(help="only this one")] = None,
    matching: Annotated[str, typer.Option(help="only points whose names contain this")] = "",
    missing: Annotated[bool, typer.Option("--missing", help="only points that the results lack")] = False,
    within: Annotated[str | None, typer.Option(help="start no further point after this long")] = None,
    out: Annotated[Path, typer.Option(help="where results are kept; a point's entry is replaced")] = RESULTS,
    trace: Annotated[bool, typer.Option("--trace", help="keep the windows over time, too")] = False,
    show: Annotated[bool, typer.Option("--list", help="only name the points")] = False,
) -> None:
    """Exchange bytes over the emulated WAN with no training around it."""
    points = [p for p in GRID if matching in p.name and point in (None, p.name)]
    if not points:
        what = f"--point {point}" if point else f"--matching {matching}"
        raise UsageError(f"{what}: no such point: `--list` names all {len(GRID)}")
    if show:
        for one in points:
            console.print(one.name)
        return
    limit_s = parse_option("--within", within, TIME) if within else float("inf")
    known = load(out)
    if missing:
        points = [p for p in points if p.name not in known]
    begun = time.monotonic()
    for i, one in enumerate(points):
        if time.monotonic() - begun > limit_s:
            console.print(f"{len(points) - i} points are left")
            break
        row = measure(one, lambda k, n, i=i, one=one: _progress(i, len(points), one.name, k, n), trace)
        known[one.name] = row
        save(out, known)
        console.print(f"{one.name}: {row['median_s']:.4f} s, spread {100 * row['spread']:.1f} %")


def _progress(i: int, count: int, name: str, k: int, n: int) -> None:
    if sys.stderr.isatty():
        print(f"\r\x1b[K[{i + 1}/{count}] {name} {k + 1}/{n}", end="\r", file=sys.stderr, flush=True)


def main() -> None:
    """Console entry."""
    run_app(app, "exchange_alone")


if __name__ == "__main__":
    main()
