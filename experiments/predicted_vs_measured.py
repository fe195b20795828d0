"""Prediction beside measurement, for one point or the built-in grid.

    python -m experiments.predicted_vs_measured            # the grid
    python -m experiments.predicted_vs_measured --interval 4 --ratio 0.01 --bandwidth "50 Mbit/s"

Each point is a real paced run over the emulated WAN. Compute is measured once, co-located; so is each kind of
codec. No point is used to calibrate.
"""

import json
import time
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any

import typer
from rich.table import Table

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
    """Mean and worst errors over the points; exposed time only where at least 2 % of the step is exposed."""
    step = [abs(row["step_error"]) for row in rows]
    wait = [abs(row["exposed_error"]) for row in rows if row["exposed_error"] is not None]
    return {
        "points": len(rows),
        "points_exposed": sum(row["exposed_share"] >= LEAST_EXPOSED for row in rows),
        "step_error_mean": fmean(step),
        "step_error_worst": max(step),
        "exposed_error_mean": fmean(wait) if wait else None,
        "exposed_error_worst": max(wait) if wait else None,
    }


@app.command()
def predicted_vs_measured(
    scenario: Annotated[str, typer.Option(help="name or YAML file")] = "laptop",
    interval: Annotated[int | None, typer.Option(help="K, the first field of a point")] = None,
    ratio: Annotated[float | None, typer.Option(help="share of the values sent; 1: dense")] = None,
    bits: Annotated[str | None, typer.Option(help="fp32, bf16, fp16, int8, int4, int2, e3m0, sign")] = None,
    overlap: Annotated[str | None, typer.Option(help="blocking, delayed, or flat for plain DDP")] = None,
    bandwidth: Annotated[str | None, typer.Option(help="each way")] = None,
    rtt: Annotated[str | None, typer.Option(help="round trip")] = None,
    streams: Annotated[int | None, typer.Option(help="flows a WAN rank")] = None,
    update: Annotated[str | None, typer.Option(help="accumulate or local")] = None,
    congestion_control: Annotated[str | None, typer.Option(help="cubic, reno or bbr")] = None,
    pace: Annotated[str, typer.Option(help="declared step time; 'none': as fast as it computes")] = "250 ms",
    windows: Annotated[int, typer.Option(help="windows of each run at least (and 24 steps)")] = 8,
    seed: Annotated[int, typer.Option(help="of parameters and data order")] = 0,
    trace: Annotated[
        Path | None, typer.Option(help="of one point: a file for both runs, side by side, for Perfetto")
    ] = None,
    out: Annotated[Path, typer.Option(help="where results go")] = Path("out/predicted_vs_measured"),
    as_json: Annotated[bool, typer.Option("--json", help="print the results as JSON")] = False,
) -> None:
    """Hold the simulator's prediction against real runs over the emulated WAN.

    Runs the built-in grid, or one point if any of its fields is named. What is
    not named of it is K = 4, 1 % int8, blocking, 50 Mbit/s, 40 ms (1 stream,
    accumulate, cubic).
    """
    asked = {
        "interval": interval, "ratio": ratio, "bits": bits, "overlap": overlap, "bandwidth": bandwidth,
        "rtt": rtt, "streams": streams, "update": update, "congestion_control": congestion_control,
    }  # fmt: skip
    given = {name: value for name, value in asked.items() if value is not None}
    points = [_one(given)] if given else list(GRID)
    if windows < 4:
        raise UsageError(f"--windows {windows}: must be 4 or more, two of which warm up")
    if trace is not None:
        if len(points) > 1:
            raise UsageError("--trace: shows one point: name its fields, like --interval 4")
        make_folder("--trace", trace.parent)
    pace_s = pace_seconds(pace)
    base = load_scenario(scenario)
    for point in points:  # so that a mistake shows before the first minute has passed
        point.policy()
        point.scenario(base)
    make_folder("--out", out)
    begun = time.perf_counter()
    predictor = Predictor(base, pace_s, seed)
    rows: list[dict[str, Any]] = []
    report: dict[str, Any] = {}
    for point in points:
        with traces(trace) as measured:
            rows.append(run_point(point, predictor, base, windows, pace_s=pace_s, seed=seed, trace=measured))
            if trace is not None and measured is not None:
                lanes = write_both(trace, point, predictor, measured)
        report = {
            "scenario": base.name,
            "pace_s": pace_s,
            "seconds": time.perf_counter() - begun,
            "points": rows,
            "summary": summarize(rows),
        }
        write_json(out / "results.json", report)  # after every point, so that Ctrl-C loses none
        if not as_json:
            console.print(_line(rows[-1]))
    if len(rows) > 1:
        predicted_measured_figure(
            [
                {"predicted": r["step_predicted_s"], "measured": r["step_measured_s"], "group": r["overlap"]}
                for r in rows
            ],
            out / "predicted_vs_measured.png",
        )
    if as_json:
        typer.echo(json.dumps(report))
        return
    console.print(_table(rows))
    _say(report["summary"], pace_s)
    if trace is not None:
        console.print("")
        console.print(lanes)
        console.print(f"trace: {trace} (open it at ui.perfetto.dev)")
    console.print(f"In {out}/ ({report['seconds']:.0f} s in all)")


def _one(given: dict[str, Any]) -> Point:
    """The point whose named fields these are."""
    if given.get("overlap") != FLAT:
        return replace(ONE, **given)
    for name in ("interval", "ratio", "bits", "streams", "update"):
        if name in given:
            raise UsageError(f"--{name}: has no effect with --overlap {FLAT}, plain DDP: leave it out")
    return replace(ONE, interval=1, ratio=1.0, bits="fp32", **given)


def _link(row: dict[str, Any]) -> str:
    algorithm = "" if row["congestion_control"] == "cubic" else f", {row['congestion_control']}"
    return f"{row['bandwidth']}, {row['rtt']}{algorithm}"


def _line(row: dict[str, Any]) -> str:
    said, was = show(row["step_predicted_s"], TIME), show(row["step_measured_s"], TIME)
    error = f"{100 * row['step_error']:+.1f} %"
    return f"{row['policy']}, {_link(row)}: predicted {said}, measured {was} ({error})"


def _table(rows: list[dict[str, Any]]) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("policy")
    table.add_column("link")
    for what in ("step", "exposed"):
        for head in ("predicted", "measured", "error"):
            table.add_column(f"{what}\n{head}", justify="right")
    for row in rows:
        cells = [row["policy"], _link(row)]
        for what in ("step", "exposed"):
            error = row[f"{what}_error"]
            cells += [show(row[f"{what}_predicted_s"], TIME), show(row[f"{what}_measured_s"], TIME)]
            cells.append("-" if error is None else f"{100 * error:+.1f} %")
        table.add_row(*cells)
    return table


def _say(summary: dict[str, Any], pace_s: float | None) -> None:
    def percent(value: float | None) -> str:
        return "-" if value is None else f"{100 * value:.1f} %"

    paced = f"compute paced to {show(pace_s, TIME)}" if pace_s else "compute not paced"
    exposed = f"{summary['points_exposed']} of them with 25 % or more of the step exposed"
    console.print(f"\n{summary['points']} points, {exposed}; {paced}")
    for what, key in (("step time", "step"), ("exposed time", "exposed")):
        mean, worst = (percent(summary[f"{key}_error_{kind}"]) for kind in ("mean", "worst"))
        console.print(f"{what}: mean error {mean}, worst {worst}")


def main() -> None:
    """Console entry."""
    run_app(app, "predicted_vs_measured")


if __name__ == "__main__":
    main()
