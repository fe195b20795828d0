"""Measured runs predicted anew, without running anything: what a change of the model changes.

    python -m experiments.repredict                        # the paced points, seconds
    python -m experiments.repredict --own-parts            # with all but the exchange as each run had it
    python -m experiments.repredict --results experiments/results/predicted_vs_measured_17.json

Each point's calibration is put together again from the parts that its own prediction had, and from the
decoding time that its run measured; the old prediction's was not kept, so that exposed times differ by a
few ms from those of the file even where nothing changed.
"""

import json
from dataclasses import fields
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any

import typer
from rich.table import Table

from experiments.console import console, run_app
from experiments.points import FLAT, Point
from geosim.cost import Calibration
from geosim.policy import make_layout
from geosim.scenario import Scenario, load_scenario, site_batches
from geosim.sim import simulate

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
_HEADS = ("policy", "link", "step measured", "then", "now", "exposed measured", "then", "now")
RESULTS = Path(__file__).parent / "results" / "predicted_vs_measured.json"


def calibration_of(row: dict[str, Any], parts: dict[str, float], point: Point, base: Scenario) -> Calibration:
    """A calibration that gives a row's parts of a step again."""
    interval = point.interval
    if point.overlap == FLAT:
        return Calibration(optimizer_s=parts["update"], backend="gloo")
    ranks = point.room(base).sites[0].ranks
    layout = make_layout(base.workload.model.param_table(), point.policy(), ranks)
    numel = sum(layout.fragment_numel(f) for f in range(len(layout.fragments)))
    share = numel / layout.shards
    local = point.update == "local"
    applied = parts["apply"] * interval
    return Calibration(
        site_collective_s=parts["site_collective"],
        accumulate_s=None if local else parts["update"],
        optimizer_s=parts["update"] if local else applied,
        outer_s=applied if local else None,
        flag_s=0.0,
        encode_s_per_element=parts["encode"] * interval / share,
        decode_s_per_value=0.0,
        decode_s_per_element=row["parts_measured"]["decode"] * interval / share,
        gather_s_per_byte=parts["gather"] * interval / (4 * numel),
        backend="gloo",
    )


def with_step_times(world: Scenario, compute_s: float) -> Scenario:
    """The scenario with sites' step times scaled, so that they compute so long a step on average."""
    work = world.workload
    assert work.step_time_s is not None
    slowness = [1.0 if s.step_time_s is None else s.step_time_s / work.step_time_s for s in world.sites]
    loads = [batch / work.batch_per_accelerator for batch in site_batches(world)]
    once = compute_s / fmean(slow * load for slow, load in zip(slowness, loads, strict=True))
    sites = tuple(
        site if site.step_time_s is None else site.model_copy(update={"step_time_s": slow * once})
        for site, slow in zip(world.sites, slowness, strict=True)
    )
    timed = work.model_copy(update={"step_time_s": once, "step_jitter": 0.0})
    return world.model_copy(update={"workload": timed, "sites": sites})


def predict(row: dict[str, Any], base: Scenario, own_parts: bool = False) -> dict[str, float]:
    """A row's step and exposed time by the model as it is.

    `own_parts`: all but the exchange as the run itself had it, so that what is left is the wire's error.
    """
    point = Point(**{field.name: row[field.name] for field in fields(Point) if field.name in row})
    parts = row["parts_predicted"]
    if own_parts:
        parts = parts | {"update": 0.0} | row["parts_measured"]
    world = with_step_times(point.scenario(base), parts["compute"])
    calibration = calibration_of(row, parts, point, base)
    said = simulate(world, point.policy(), calibration=calibration).to_dict()
    return {"step_s": said["step_time_s"]["mean"], "exposed_s": said["exposed_wan_s_per_step"]}


@app.command()
def repredict(
    results: Annotated[Path, typer.Option(help="a prediction grid's results")] = RESULTS,
    own_parts: Annotated[bool, typer.Option(help="all but the exchange as each run had it")] = False,
) -> None:
    """Predict a measured grid anew and say what that does to its errors."""
    data = json.loads(results.read_text())
    base = load_scenario(data["scenario"])
    table = Table(box=None, pad_edge=False)
    for head in _HEADS:
        table.add_column(head, justify="left" if head in _HEADS[:2] else "right")
    errors: dict[str, list[float]] = {"then": [], "now": [], "exposed then": [], "exposed now": []}
    for row in data["points"]:
        if not row.get("paced", True) or (own_parts and row["overlap"] == FLAT):
            continue
        found = _errors(row, predict(row, base, own_parts))
        table.add_row(*_cells(row, found))
        for name, error in found.items():
            errors[name].append(abs(error))
    console.print(table)
    for name, values in errors.items():
        console.print(f"{name}: mean error {100 * fmean(values):.1f} %, worst {100 * max(values):.1f} %")


def _errors(row: dict[str, Any], now: dict[str, float]) -> dict[str, float]:
    """The errors that the table counts: of exposed times only those long enough to tell."""
    step = row["step_measured_s"]
    found = {"then": row["step_predicted_s"] / step - 1, "now": now["step_s"] / step - 1}
    if row["exposed_error"] is not None:
        found["exposed then"] = row["exposed_error"]
        found["exposed now"] = now["exposed_s"] / row["exposed_measured_s"] - 1
    return found


def _cells(row: dict[str, Any], errors: dict[str, float]) -> list[str]:
    link = f"{row['bandwidth']}, {row['rtt']}, {row['congestion_control']}"
    said = {name: f"{100 * error:+.1f} %" for name, error in errors.items()}
    waits = [said.get("exposed then", "-"), said.get("exposed now", "-")]
    measured = [f"{1e3 * row[name]:.0f} ms" for name in ("step_measured_s", "exposed_measured_s")]
    return [row["policy"], link, measured[0], said["then"], said["now"], measured[1], *waits]


def main() -> None:
    """Console entry."""
    run_app(app, "repredict")


if __name__ == "__main__":
    main()
