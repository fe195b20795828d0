"""Prediction beside measurement, for one point or the built-in grid.

    python -m experiments.predicted_vs_measured              # the grid
    python -m experiments.predicted_vs_measured --point 24   # one of its points
    python -m experiments.predicted_vs_measured --interval 4 --ratio 0.01 --bandwidth "50 Mbit/s"

Each point is a real run over the emulated WAN, paced but for the last six, which the means leave out. Compute
and codecs are measured co-located, before: every kind several times, by turns (`experiments.calibrate`). No
point is used to calibrate. Beside each point stands how disturbed it was: late steps, in which some rank
computed for longer than its pace, and the cores that other programs kept busy meanwhile.
"""

import json
import time
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any

import typer
from rich.table import Table

from experiments.calibrate import REPEATS
from experiments.console import console, pace_seconds, run_app, write_json
from experiments.points import FLAT, GRID, ONE, Point, Predictor, run_point
from experiments.side_by_side import traces, write_both
from geosim.console import make_folder
from geosim.errors import UsageError
from geosim.report.figures import predicted_measured_figure
from geosim.scenario import load_scenario
from geosim.units import TIME, show

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
LEAST_EXPOSED = 0.25


def summarize(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Mean and worst errors over points; exposed time only where at least 2 % of the step is exposed."""
    step = [abs(row["step_error"]) for row in rows]
    wait = [abs(row["exposed_error"]) for row in rows if row["exposed_error"] is not None]
    return {
        "points": len(rows),
        "points_exposed": sum(row["exposed_share"] >= LEAST_EXPOSED for row in rows),
        "step_error_mean": fmean(step) if step else None,
        "step_error_worst": max(step, default=None),
        "exposed_error_mean": fmean(wait) if wait else None,
        "exposed_error_worst": max(wait, default=None),
    }


@app.command()
def predicted_vs_measured(
    scenario: Annotated[str, typer.Option(help="name or YAML file")] = "laptop",
    point: Annotated[int | None, typer.Option(help="run one point of the grid, by its number")] = None,
    interval: Annotated[int | None, typer.Option(help="K, the first field of a point")] = None,
    ratio: Annotated[float | None, typer.Option(help="share of the values sent; 1: dense")] = None,
    bits: Annotated[str | None, typer.Option(help="fp32, bf16, fp16, int8, int4, int2, e3m0, sign")] = None,
    overlap: Annotated[str | None, typer.Option(help="blocking, delayed, or flat for plain DDP")] = None,
    bandwidth: Annotated[str | None, typer.Option(help="each way")] = None,
    rtt: Annotated[str | None, typer.Option(help="round trip")] = None,
    streams: Annotated[int | None, typer.Option(help="flows a WAN rank")] = None,
    update: Annotated[str | None, typer.Option(help="accumulate or local")] = None,
    congestion_control: Annotated[str | None, typer.Option(help="cubic, reno or bbr")] = None,
    sites: Annotated[int | None, typer.Option(help="2 to 6; three and more have one rank each")] = None,
    topology: Annotated[str | None, typer.Option(help="direct, ring, hub or tree")] = None,
    slow: Annotated[float | None, typer.Option(help="step time of the last site over the others'")] = None,
    batch: Annotated[str | None, typer.Option(help="equal or by-speed")] = None,
    pace: Annotated[str, typer.Option(help="declared step time; 'none': as fast as it computes")] = "250 ms",
    windows: Annotated[int, typer.Option(help="windows of each run at least (and 20 steps)")] = 5,
    seed: Annotated[int, typer.Option(help="of parameters and data order")] = 0,
    repeats: Annotated[
        int, typer.Option(min=1, help="co-located runs to measure a kind of point; more if disturbed")
    ] = REPEATS,
    trace: Annotated[
        Path | None, typer.Option(help="of one point: a file for both runs, side by side, for Perfetto")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="where results go",
            show_default="out/predicted_vs_measured, or out/predicted_vs_measured_point",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print the results as JSON")] = False,
) -> None:
    """Hold the simulator's prediction against real runs over the emulated WAN.

    Runs the built-in grid, or one point: by its number, or if any of its fields
    is named. What is not named of it is K = 4, 1 % int8, blocking, 50 Mbit/s,
    40 ms (1 stream, accumulate, cubic, 2 sites alike, direct).
    """
    asked = {
        "interval": interval, "ratio": ratio, "bits": bits, "overlap": overlap, "bandwidth": bandwidth,
        "rtt": rtt, "streams": streams, "update": update, "congestion_control": congestion_control,
        "sites": sites, "topology": topology, "slow": slow, "batch": batch,
    }  # fmt: skip
    points = _points(point, {name: value for name, value in asked.items() if value is not None})
    if windows < 4:
        raise UsageError(f"--windows {windows}: must be 4 or more, two of which warm up")
    if trace is not None:
        if len(points) > 1:
            raise UsageError("--trace: shows one point: name its fields, like --interval 4")
        make_folder("--trace", trace.parent)
    pace_s = pace_seconds(pace)
    if pace_s is None:
        points = {number: replace(each, paced=False) for number, each in points.items()}
    base = load_scenario(scenario)
    for each in points.values():  # so that a mistake shows before the first minute has passed
        each.policy()
        each.scenario(base)
    whole = len(points) > 1
    folder = out or Path("out/predicted_vs_measured" if whole else "out/predicted_vs_measured_point")
    make_folder("--out", folder)
    if not whole:
        _check_no_grid(folder)
    begun = time.perf_counter()
    predictor = Predictor(base, pace_s, seed, repeats)
    predictor.prepare(points.values())
    rows: list[dict[str, Any]] = []
    report: dict[str, Any] = {}
    for number, each in points.items():
        with traces(trace) as measured:
            row = run_point(each, predictor, base, windows, seed=seed, trace=measured)
            rows.append({"number": number, **row})
            if trace is not None and measured is not None:
                lanes = write_both(trace, each, predictor, measured)
        report = {
            "scenario": base.name,
            "pace_s": pace_s,
            "seconds": time.perf_counter() - begun,
            "points": rows,
            "summary": summarize([row for row in rows if row["paced"]]),
            "summary_unpaced": summarize([row for row in rows if not row["paced"]]),
        }
        write_json(folder / "results.json", report)  # after every point, so that Ctrl-C loses none
        if not as_json:
            console.print(_line(rows[-1]))
    if whole:
        predicted_measured_figure(
            [
                {"predicted": r["step_predicted_s"], "measured": r["step_measured_s"], "group": _group(r)}
                for r in rows
            ],
            folder / "predicted_vs_measured.png",
        )
    if as_json:
        typer.echo(json.dumps(report))
        return
    console.print(_table(rows))
    for key, how in (
        ("summary", f"compute paced to {show(pace_s, TIME)}" if pace_s else ""),
        ("summary_unpaced", "compute not paced"),
    ):
        if report[key]["points"]:
            _say(report[key], how)
    if trace is not None:
        console.print("")
        console.print(lanes)
        console.print(f"trace: {trace} (open it at ui.perfetto.dev)")
    console.print(f"In {folder}/ ({report['seconds']:.0f} s in all)")


def _points(number: int | None, given: dict[str, Any]) -> dict[int | None, Point]:
    """What is to run, by its number in the grid."""
    if number is None:
        return {None: _one(given)} if given else dict(enumerate(GRID, start=1))
    if given:
        raise UsageError(f"--point {number}: says all of a point: leave out --{next(iter(given))}")
    if not 1 <= number <= len(GRID):
        raise UsageError(f"--point {number}: the grid has points 1 to {len(GRID)}")
    return {number: GRID[number - 1]}


def _one(given: dict[str, Any]) -> Point:
    """The point whose named fields these are."""
    if not 2 <= given.get("sites", 2) <= 6:
        raise UsageError(f"--sites {given['sites']}: must be 2 to 6")
    if not 0.1 <= given.get("slow", 1.0) <= 10:
        raise UsageError(f"--slow {given['slow']:g}: must be 0.1 to 10")
    if given.get("overlap") != FLAT:
        return replace(ONE, **given)
    for name in ("interval", "ratio", "bits", "streams", "update", "topology"):
        if name in given:
            raise UsageError(f"--{name}: has no effect with --overlap {FLAT}, plain DDP: leave it out")
    return replace(ONE, interval=1, ratio=1.0, bits="fp32", **given)


def _check_no_grid(folder: Path) -> None:
    """One point must not take the place of a whole grid's results."""
    file = folder / "results.json"
    try:
        held = len(json.loads(file.read_text())["points"]) if file.exists() else 0
    except (OSError, ValueError, KeyError, TypeError):
        held = 0
    if held > 1:
        raise UsageError(f"--out {folder}: holds the results of {held} points: name another folder")


def _group(row: dict[str, Any]) -> str:
    """What the figure tells apart."""
    return str(row["overlap"]) if row["paced"] else "unpaced"


def _link(row: dict[str, Any]) -> str:
    algorithm = "" if row["congestion_control"] == "cubic" else f", {row['congestion_control']}"
    return f"{row['bandwidth']}, {row['rtt']}{algorithm}"


def _line(row: dict[str, Any]) -> str:
    said, was = show(row["step_predicted_s"], TIME), show(row["step_measured_s"], TIME)
    error = f"{100 * row['step_error']:+.1f} %"
    return f"{row['policy']}, {_link(row)}: predicted {said}, measured {was} ({error})"


def _table(rows: list[dict[str, Any]]) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("", justify="right")
    table.add_column("policy")
    table.add_column("link")
    for what in ("step", "exposed"):
        for head in ("predicted", "measured", "error"):
            table.add_column(f"{what}\n{head}", justify="right")
    table.add_column("late\nsteps", justify="right")
    table.add_column("others'\ncores", justify="right")
    for row in rows:
        cells = [str(row["number"] or ""), row["policy"], _link(row)]
        for what in ("step", "exposed"):
            error = row[f"{what}_error"]
            cells += [show(row[f"{what}_predicted_s"], TIME), show(row[f"{what}_measured_s"], TIME)]
            cells.append("-" if error is None else f"{100 * error:+.1f} %")
        cells.append(f"{row['late_steps']}/{row['measured_steps']}" if row["paced"] else "-")
        cells.append("-" if row["other_load"] is None else f"{row['other_load']:.1f}")
        table.add_row(*cells)
    return table


def _say(summary: dict[str, Any], how: str) -> None:
    def percent(value: float | None) -> str:
        return "-" if value is None else f"{100 * value:.1f} %"

    exposed = f"{summary['points_exposed']} of them with 25 % or more of the step exposed"
    console.print(f"\n{summary['points']} points, {exposed}; {how}")
    for what, key in (("step time", "step"), ("exposed time", "exposed")):
        mean, worst = (percent(summary[f"{key}_error_{kind}"]) for kind in ("mean", "worst"))
        console.print(f"{what}: mean error {mean}, worst {worst}")


def main() -> None:
    """Console entry."""
    run_app(app, "predicted_vs_measured")


if __name__ == "__main__":
    main()
