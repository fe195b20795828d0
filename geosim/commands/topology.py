"""`geosim topology`: who should send to whom."""

from pathlib import Path
from typing import Annotated

import typer

from geosim.commands.shared import (
    WINDOWS,
    CalibrationFile,
    Json,
    ScenarioName,
    Seeds,
    Settings,
    Windows,
    calibration_of,
    check_writable,
    print_json,
    print_screen,
    world_of,
    write_file,
)


def topology(
    scenario: ScenarioName,
    policy: Annotated[
        str | None,
        typer.Option(
            "--policy", metavar="NAME|FILE", help="What travels, and when; without: dense fp32, every step."
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", help="Write the policy with the best topology as YAML."),
    ] = None,
    settings: Settings = None,
    seeds: Seeds = 3,
    windows: Windows = WINDOWS,
    calibration: CalibrationFile = None,
    as_json: Json = False,
) -> None:
    """Find who should send to whom: direct, every hub, ring orders and trees, held against each other.

    All orders of up to six sites and all trees of up to five; beyond, the
    shortest ones by a stated rule. Payloads are passed on unchanged, so the
    result of training is the same under each.
    """
    from geosim.policy import SyncPolicy, load_policy, policy_from_dict
    from geosim.report import topologies
    from geosim.settings import apply_settings
    from geosim.tune.topology import rank_topologies

    world, changes = world_of(scenario, settings)
    if policy is None:
        plain = SyncPolicy(name="dense").to_dict()
        chosen = policy_from_dict(apply_settings(SyncPolicy, plain, changes))
    else:
        chosen = load_policy(policy, changes)
    known = calibration_of(calibration)
    if out is not None:
        check_writable(out)
    ranking = rank_topologies(world, chosen, known, seeds, windows)
    if out is not None:
        best = chosen.model_copy(update={"topology": ranking.best.topology})
        write_file(out, best.to_yaml())
    if as_json:
        print_json(topologies.data(world, ranking))
    else:
        print_screen(topologies.screen(world, ranking))
        if out is not None:
            print_screen(f"\npolicy: {out}")
