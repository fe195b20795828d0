"""Measured exchanges beside what the window model and the simulator's law say of them.

python -m experiments.exchange_alone.compare        # three minutes; no measuring
"""

import json
import os
import random
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any

import typer
from joblib import Parallel, delayed
from rich.table import Table

from experiments.console import console, run_app, write_json
from experiments.exchange_alone.grid import GLOO, GRID, HELD_OUT, PLAIN, Point
from experiments.exchange_alone.measure import of_sets
from experiments.exchange_alone.predict import by_law, by_windows, link_of, segments_of
from experiments.exchange_alone.store import RESULTS, load
from geosim.cost.tcp.exchange import exchanges
from geosim.errors import UsageError

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
PREDICTED = RESULTS.with_name("exchange_alone_predicted.json")
WINDOW = RESULTS.with_name("exchange_alone_window.json")
_BOOTSTRAPS = 2000
# A third of the points that were in view while the models were made.
_DRAWN = random.Random(8312).sample(sorted(point.name for point in PLAIN), len(PLAIN) // 3)
THIRD = frozenset(_DRAWN) | {name.replace("idle", "settled") for name in _DRAWN}


def rows_of(known: dict[str, dict[str, Any]], points: tuple[Point, ...] = GRID) -> list[dict[str, Any]]:
    """A row a measured point, with errors relative to the measured median, or mean where packets are lost."""
    measured = [point for point in points if point.name in known]
    counts = [
        (len(known[p.name]["seconds"]) // known[p.name]["sets"], known[p.name]["sets"]) for p in measured
    ]
    tasks = (delayed(by_windows)(point, *count) for point, count in zip(measured, counts, strict=True))
    predicted = Parallel(os.cpu_count())(tasks)
    rows = []
    for point, (each, _), windows_s in zip(measured, counts, predicted, strict=True):
        seen = known[point.name]
        was = seen["mean_s"] if point.loss else seen["median_s"]
        row = {
            "name": point.name, "algorithm": point.algorithm, "flows": point.flows, "state": state_of(point),
            "lossy": point.loss > 0, "held_out": point in HELD_OUT, "carrier": point.carrier,
            "measured_s": was, "spread": seen["spread"],
            "windows_s": windows_s, "law_s": by_law(point, each),
        }  # fmt: skip
        row["windows_error"] = row["windows_s"] / was - 1
        row["law_error"] = row["law_s"] / was - 1
        if point.loss:
            row["interval_s"] = interval(seen["seconds"])
        elif seen["sets"] > 1:
            sets = of_sets(seen["seconds"], seen["sets"])
            row["sets_s"] = min(sets), max(sets)
        rows.append(row)
    return rows


def state_of(point: Point) -> str:
    """ "fresh"; "young": connections that keep how their first slow start ended; or "settled"."""
    if point.fresh:
        return "fresh"
    return "settled" if point.settled or point.algorithm == "bbr" else "young"


def interval(seconds: list[float]) -> tuple[float, float]:
    """The mean's 95 % interval by bootstrap."""
    draw = random.Random(0)
    means = sorted(fmean(draw.choices(seconds, k=len(seconds))) for _ in range(_BOOTSTRAPS))
    return means[_BOOTSTRAPS // 40], means[-_BOOTSTRAPS // 40 - 1]


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Mean and worst errors of points on sockets, by group, and how far gloo is from sockets."""
    some = [row for row in rows if row["carrier"] == "sockets"]
    seen = [row for row in some if not row["held_out"]]
    every = [row for row in seen if not row["lossy"]]
    usual = [row for row in every if row["state"] != "young"]
    cubic = [row for row in usual if row["algorithm"] == "cubic"]
    groups = {
        "without loss": usual,
        "CUBIC, one flow": [row for row in cubic if row["flows"] == 1],
        "CUBIC, more flows": [row for row in cubic if row["flows"] > 1],
        "BBR": [row for row in usual if row["algorithm"] == "bbr"],
        "Reno": [row for row in usual if row["algorithm"] == "reno"],
        "fresh": [row for row in usual if row["state"] == "fresh"],
        "settled": [row for row in usual if row["state"] == "settled"],
        "a third of the 78, drawn (seed 8312)": [row for row in usual if row["name"] in THIRD],
        "the other two thirds": [row for row in usual if row["name"] not in THIRD],
        "young": [row for row in every if row["state"] == "young"],
        "without loss, young instead of settled": [
            row for row in every if row["state"] != "settled" or row["algorithm"] == "bbr"
        ],
        "loss 0.01 to 1 %": [row for row in seen if row["lossy"]],
        "held out, without loss": [row for row in some if row["held_out"] and not row["lossy"]],
        "held out, loss 0.05 to 0.2 %": [row for row in some if row["held_out"] and row["lossy"]],
    }
    out: dict[str, Any] = {}
    for group, members in groups.items():
        if not members:
            continue
        out[group] = {"points": len(members)}
        for kind in ("windows", "law"):
            errors = [abs(row[f"{kind}_error"]) for row in members]
            out[group] |= {f"{kind}_mean": fmean(errors), f"{kind}_worst": max(errors)}
    by_name = {row["name"]: row["measured_s"] for row in rows}
    pairs = [
        (by_name[p.name], by_name[p.name.removesuffix("-gloo")])
        for p in GLOO
        if p.name in by_name and p.name.removesuffix("-gloo") in by_name
    ]
    if pairs:
        out["gloo over sockets"] = [gloo / plain for gloo, plain in pairs]
    return out


@app.command()
def compare(
    results: Annotated[Path, typer.Option(help="measured points")] = RESULTS,
    over: Annotated[
        Path | None, typer.Option(help="measured points that take the place of those of the same name")
    ] = None,
    out: Annotated[Path, typer.Option(help="where the comparison goes")] = PREDICTED,
    figure: Annotated[Path | None, typer.Option(help="draw it, too")] = None,
) -> None:
    """Hold both predictions against the measured points."""
    known = load(results)
    if not known:
        raise UsageError(
            f"--results {results}: holds no points: measure with `python -m experiments.exchange_alone`"
        )
    rows = rows_of(known if over is None else known | load(over))
    table = Table(box=None, pad_edge=False)
    for head in ("point", "measured", "spread", "windows", "error", "law", "error"):
        table.add_column(head, justify="left" if head == "point" else "right")
    for row in rows:
        cells = [f"{1e3 * row[f'{kind}_s']:.1f} ms" for kind in ("measured", "windows", "law")]
        errors = [f"{100 * row[f'{kind}_error']:+.1f} %" for kind in ("windows", "law")]
        table.add_row(
            row["name"], cells[0], f"{100 * row['spread']:.0f} %", cells[1], errors[0], cells[2], errors[1]
        )
    console.print(table)
    said = summary(rows)
    for group, values in said.items():
        console.print(group, values)
    write_json(out, {"points": rows, "summary": said})
    if figure is not None:
        from experiments.exchange_alone.figures import comparison_figure

        comparison_figure([row for row in rows if row["state"] != "young"], windows(WINDOW), figure)


def windows(file: Path) -> dict[str, Any]:
    """The first exchange of a point whose windows were traced, and the same simulated."""
    seen = json.loads(file.read_text())
    point = next(p for p in GRID if p.name == seen["point"])
    first = exchanges(link_of(point), segments_of(point), point.flows, 1, 0.0, point.both, watch=True)[0]
    return {
        "title": f"Fresh {point.algorithm} flow, {point.mbit_per_s:g} Mbit/s, {point.rtt_ms:g} ms, both ways",
        "measured": seen["windows"],
        "simulated": [(0.0, first.windows[0][1]), *first.windows],
    }


def main() -> None:
    """Console entry."""
    run_app(app, "exchange_alone.compare")


if __name__ == "__main__":
    main()
