"""Prediction beside measurement, for one point or the built-in grid.

    python -m experiments.predicted_vs_measured                                   # the grid
    python -m experiments.predicted_vs_measured --interval 4 --ratio 0.01 --bandwidth "50 Mbit/s" --rtt "40 ms"

Each point is a real paced run over the emulated WAN. Compute is measured once, co-located; so is each kind of codec. No point
is used to fit anything.
"""

import json
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any

import typer
from rich.table import Table

from experiments.calibrate import Calibrated, calibrate
from experiments.console import console, progress_of, run_app
from geosim.errors import UsageError
from geosim.policy import SyncPolicy, policy_from_dict
from geosim.report.figures import predicted_measured_figure
from geosim.scenario import Scenario, load_scenario
from geosim.sim import simulate
from geosim.units import TIME, parse, show
from runtime.launch import emulate

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
FLAT = "flat"
LEAST_EXPOSED = 0.25


@dataclass(frozen=True)
class Point:
    """One run: how the sites exchange, and what lies between them."""

    interval: int
    ratio: float
    bits: str
    overlap: str
    bandwidth: str
    rtt: str
    streams: int = 1
    update: str = "accumulate"
    congestion_control: str = "cubic"

    def scenario(self, base: Scenario) -> Scenario:
        """The base scenario with this point's links."""
        data = base.to_dict()
        for link in data["wan"]:
            link |= {
                "bandwidth": self.bandwidth,
                "rtt": self.rtt,
                "congestion_control": self.congestion_control,
            }
        from geosim.spec import from_dict

        return from_dict(Scenario, data, "point")

    def policy(self) -> SyncPolicy:
        """This point's policy."""
        if self.overlap == FLAT:
            return policy_from_dict({"name": "ddp", "topology": "flat-ring"})
        dense = self.ratio >= 1
        lossy = not (dense and self.bits == "fp32")
        codec: dict[str, Any] = {
            "select": "dense" if dense else {"kind": "topk", "ratio": self.ratio, "scope": "piece"},
            "quantize": self.bits,
            "residual": "feedback" if lossy and self.update == "accumulate" else "none",
        }
        data = {
            "name": self.words(),
            "interval": self.interval,
            "codec": codec,
            "overlap": self.overlap,
            "streams": self.streams,
            "update": self.update,
        }
        return policy_from_dict(data, "point")

    def words(self) -> str:
        """For tables."""
        if self.overlap == FLAT:
            return "flat DDP"
        sends = f"dense {self.bits}" if self.ratio >= 1 else f"{100 * self.ratio:g} % {self.bits}"
        rule = "" if self.update == "accumulate" else f"{self.update}, "
        return f"{rule}K = {self.interval}, {sends}, {self.overlap}" + (
            f", {self.streams} streams" if self.streams > 1 else ""
        )


GRID = (
    Point(1, 0.01, "int8", "blocking", "100 Mbit/s", "40 ms"),
    Point(1, 0.01, "int8", "blocking", "100 Mbit/s", "120 ms"),
    Point(1, 0.1, "int8", "blocking", "50 Mbit/s", "40 ms"),
    Point(2, 0.1, "int8", "blocking", "20 Mbit/s", "80 ms"),
    Point(4, 0.01, "int8", "blocking", "50 Mbit/s", "40 ms"),
    Point(8, 0.01, "int8", "delayed", "50 Mbit/s", "80 ms"),
    Point(2, 1.0, "int8", "blocking", "100 Mbit/s", "40 ms"),
    Point(4, 1.0, "fp32", "blocking", "200 Mbit/s", "40 ms"),
    Point(4, 1.0, "fp32", "blocking", "200 Mbit/s", "40 ms", streams=4),
    Point(4, 1.0, "int8", "delayed", "20 Mbit/s", "40 ms"),
    Point(2, 1.0, "fp32", "delayed", "100 Mbit/s", "20 ms"),
    Point(4, 1.0, "bf16", "delayed", "100 Mbit/s", "80 ms"),
    Point(4, 1.0, "fp32", "blocking", "100 Mbit/s", "40 ms", update="local"),
    Point(8, 1.0, "bf16", "blocking", "50 Mbit/s", "100 ms", streams=2, update="local"),
    Point(1, 1.0, "fp32", FLAT, "200 Mbit/s", "20 ms"),
    Point(1, 1.0, "fp32", FLAT, "100 Mbit/s", "60 ms"),
)


class Predictor:
    """Simulates points from calibrations made co-located: one a kind of codec and update rule, when first needed."""

    def __init__(self, base: Scenario, pace_s: float | None, seed: int) -> None:
        self._base = base
        self._pace_s = pace_s
        self._seed = seed
        self._known: dict[tuple[str, ...], Calibrated] = {}
        self.step_time_s: float | None = None

    def calibration(self, point: Point) -> Calibrated:
        """The calibration of a point's kind."""
        policy = point.policy()
        kind = (policy.update.kind, policy.codec.select.kind, policy.codec.quantize.kind)
        if point.overlap == FLAT:
            kind, policy = ("local", "dense", "fp32"), replace(GRID[12]).policy()
        if kind not in self._known:
            with progress_of(f"calibrate, co-located: {' '.join(kind)}") as progress:
                self._known[kind] = calibrate(
                    self._base, policy, pace_s=self._pace_s, seed=self._seed, progress=progress
                )
        return self._known[kind]

    def predict(self, point: Point) -> dict[str, Any]:
        """What the simulator says."""
        known = self.calibration(point)
        if self.step_time_s is None:
            self.step_time_s = known.scenario.workload.step_time_s
        constants = known.calibration
        if point.overlap == FLAT:
            constants = constants.model_copy(update={"site_collective_s": None})
        world = point.scenario(known.scenario)
        work = world.workload.model_copy(update={"step_time_s": self.step_time_s})
        world = world.model_copy(update={"workload": work})
        return simulate(world, point.policy(), calibration=constants).to_dict()


def run_point(
    point: Point, predictor: Predictor, base: Scenario, windows: int, **common: Any
) -> dict[str, Any]:
    """Predict, run for real, compare."""
    said = predictor.predict(point)
    steps = point.interval * max(windows, -(-24 // point.interval))
    with progress_of(f"{point.words()}, {point.bandwidth}, {point.rtt}") as progress:
        was = emulate(point.scenario(base), point.policy(), steps, wan="tun", progress=progress, **common)
    step_said, step_was = said["step_time_s"]["mean"], was["step_time_s"]["mean"]
    wait_said, wait_was = said["exposed_wan_s_per_step"], was["exposed_wan_s_per_step"]
    return {
        **asdict(point),
        "policy": point.words(),
        "step_predicted_s": step_said,
        "step_measured_s": step_was,
        "step_error": step_said / step_was - 1,
        "exposed_predicted_s": wait_said,
        "exposed_measured_s": wait_was,
        "exposed_share": wait_was / step_was,
        "exposed_error": wait_said / wait_was - 1 if wait_was / step_was >= 0.02 else None,
        "exchange_predicted_s": said["exchange_time_s"]["mean"],
        "exchange_measured_s": was["exchange_time_s"]["mean"],
        "parts_predicted": said["parts"],
        "parts_measured": was["parts"],
        "steps": steps,
        "measured_steps": was["measured_steps"],
    }


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
    interval: Annotated[int | None, typer.Option(help="K; any of these options asks for one point")] = None,
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
    out: Annotated[Path, typer.Option(help="where results go")] = Path("out/predicted_vs_measured"),
    as_json: Annotated[bool, typer.Option("--json", help="print the results as JSON")] = False,
) -> None:
    """Hold the simulator's prediction against real runs over the emulated WAN."""
    asked = {
        "interval": interval, "ratio": ratio, "bits": bits, "overlap": overlap, "bandwidth": bandwidth, "rtt": rtt,
        "streams": streams, "update": update, "congestion_control": congestion_control,
    }  # fmt: skip
    given = {name: value for name, value in asked.items() if value is not None}
    points = [replace(GRID[4], **given)] if given else list(GRID)
    if windows < 4:
        raise UsageError(f"--windows {windows}: must be 4 or more, two of which warm up")
    pace_s = None if pace == "none" else parse(pace, TIME)
    base = load_scenario(scenario)
    for point in points:  # so that a mistake shows before the first minute has passed
        point.policy()
        point.scenario(base)
    begun = time.perf_counter()
    predictor = Predictor(base, pace_s, seed)
    rows = []
    for point in points:
        rows.append(run_point(point, predictor, base, windows, pace_s=pace_s, seed=seed))
        if not as_json:
            console.print(_line(rows[-1]))
    summary = summarize(rows)
    report = {
        "scenario": base.name,
        "pace_s": pace_s,
        "seconds": time.perf_counter() - begun,
        "points": rows,
        "summary": summary,
    }
    out.mkdir(parents=True, exist_ok=True)
    (out / "results.json").write_text(json.dumps(report, indent=1) + "\n")
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
    _say(summary, pace_s)
    console.print(f"In {out}/ ({report['seconds']:.0f} s in all)")


def _line(row: dict[str, Any]) -> str:
    return (
        f"{row['policy']}, {row['bandwidth']}, {row['rtt']}: predicted {show(row['step_predicted_s'], TIME)}, "
        f"measured {show(row['step_measured_s'], TIME)} ({100 * row['step_error']:+.1f} %)"
    )


def _table(rows: list[dict[str, Any]]) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("policy")
    for head in (
        "link",
        "RTT",
        "step predicted",
        "measured",
        "error",
        "exposed predicted",
        "measured",
        "error",
    ):
        table.add_column(head, justify="right")
    for row in rows:
        error = row["exposed_error"]
        table.add_row(
            row["policy"], row["bandwidth"], row["rtt"],
            show(row["step_predicted_s"], TIME), show(row["step_measured_s"], TIME), f"{100 * row['step_error']:+.1f} %",
            show(row["exposed_predicted_s"], TIME), show(row["exposed_measured_s"], TIME),
            "-" if error is None else f"{100 * error:+.1f} %",
        )  # fmt: skip
    return table


def _say(summary: dict[str, Any], pace_s: float | None) -> None:
    def percent(value: float | None) -> str:
        return "-" if value is None else f"{100 * value:.1f} %"

    console.print(
        f"\n{summary['points']} points, {summary['points_exposed']} of them with 25 % or more of the step exposed"
        + (f"; compute paced to {show(pace_s, TIME)}" if pace_s else "; compute not paced")
    )
    console.print(
        f"step time: mean error {percent(summary['step_error_mean'])}, worst {percent(summary['step_error_worst'])}; "
        f"exposed time: mean {percent(summary['exposed_error_mean'])}, worst {percent(summary['exposed_error_worst'])}"
    )


def main() -> None:
    """Console entry."""
    run_app(app, "predicted_vs_measured")


if __name__ == "__main__":
    main()
