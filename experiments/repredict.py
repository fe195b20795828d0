"""Measured runs predicted anew, without running anything: what a change of the model changes.

    python -m experiments.repredict                        # 38 paced points, a minute
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
RESULTS = Path(__file__).parent / "results" / "predicted_vs_measured.json"


def calibration_of(row: dict[str, Any], point: Point, base: Scenario) -> Calibration:
    """A calibration that gives a row's predicted parts again."""
    parts, interval = row["parts_predicted"], point.interval
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


def step_times(row: dict[str, Any], point: Point, world: Scenario) -> Scenario:
    """The scenario with the step times that a row's prediction had: a site's own where they differ."""
    declared = world.workload.step_time_s
    assert declared is not None
    batches = site_batches(world)
    slowness = [1.0 if site.step_time_s is None else site.step_time_s / declared for site in world.sites]
    share = [slow * batch / world.workload.batch_per_accelerator for slow, batch in zip(slowness, batches, strict=True)]
    once = row["parts_predicted"]["compute"] / fmean(share)
    sites = [
        site if site.step_time_s is None else site.model_copy(update={"step_time_s": slow * once})
        for site, slow in zip(world.sites, slowness, strict=True)
    ]
    work = world.workload.model_copy(update={"step_time_s": once, "step_jitter": 0.0})
    return world.model_copy(update={"workload": work, "sites": tuple(sites)})


def predict(row: dict[str, Any], base: Scenario) -> dict[str, float]:
    """A row's step and exposed time by the model as it is."""
    point = Point(**{field.name: row[field.name] for field in fields(Point) if field.name in row})
    world = step_times(row, point, point.scenario(base))
    said = simulate(world, point.policy(), calibration=calibration_of(row, point, base)).to_dict()
    return {"step_s": said["step_time_s"]["mean"], "exposed_s": said["exposed_wan_s_per_step"]}


@app.command()
def repredict(results: Annotated[Path, typer.Option(help="a prediction grid's results")] = RESULTS) -> None:
    """Predict a measured grid anew and say what that does to its errors."""
    data = json.loads(results.read_text())
    base = load_scenario(data["scenario"])
    table = Table(box=None, pad_edge=False)
    heads = ("policy", "link", "step measured", "then", "now", "exposed measured", "then", "now")
    for head in heads:
        table.add_column(head, justify="left" if head in heads[:2] else "right")
    errors: dict[str, list[float]] = {"then": [], "now": [], "exposed then": [], "exposed now": []}
    rows = [row for row in data["points"] if row.get("paced", True)]
    for row in rows:
        now = predict(row, base)
        step, wait = row["step_measured_s"], row["exposed_measured_s"]
        pairs = {"then": row["step_predicted_s"] / step - 1, "now": now["step_s"] / step - 1}
        cells = [
            row["policy"],
            f"{row['bandwidth']}, {row['rtt']}, {row['congestion_control']}",
            f"{1e3 * step:.0f} ms",
        ]
        cells += [f"{100 * pairs['then']:+.1f} %", f"{100 * pairs['now']:+.1f} %", f"{1e3 * wait:.0f} ms"]
        if row["exposed_error"] is not None:
            pairs |= {"exposed then": row["exposed_error"], "exposed now": now["exposed_s"] / wait - 1}
            cells += [f"{100 * pairs['exposed then']:+.1f} %", f"{100 * pairs['exposed now']:+.1f} %"]
        table.add_row(*cells)
        for name, error in pairs.items():
            errors[name].append(abs(error))
    console.print(table)
    for name, values in errors.items():
        console.print(f"{name}: mean error {100 * fmean(values):.1f} %, worst {100 * max(values):.1f} %")


def main() -> None:
    """Console entry."""
    run_app(app, "repredict")


if __name__ == "__main__":
    main()
