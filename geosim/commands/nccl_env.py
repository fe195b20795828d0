"""`geosim nccl-env`: the environment that the simulation recommends, for a shell to read."""

from math import isfinite

import typer

from geosim.commands.shared import Json, ScenarioName, Settings, print_json, world_of
from geosim.errors import UsageError


def nccl_env(scenario: ScenarioName, settings: Settings = None, as_json: Json = False) -> None:
    """Print NCCL's environment for plain data parallelism over all sites, with a reason for each variable.

    For a shell: eval "$(geosim nccl-env SCENARIO)". Algorithm, channels, buffer
    come from evaluating the model on the links there are, and the timeout from
    round trips and jitter. Say what the WAN takes with --set nccl.net=ib (RDMA).
    """
    from geosim.tune.nccl import recommend
    from geosim.units import TIME, show

    world, changes = world_of(scenario, settings)
    if changes:
        raise UsageError(
            f"--set policy.{next(iter(changes))}: nccl-env takes none: it is plain data parallelism"
        )
    made = recommend(world)
    if as_json:
        print_json(
            {
                "scenario": world.name,
                "environment": {v.name: v.value for v in made.variables},
                "reasons": {v.name: v.reason for v in made.variables},
                "left_alone": {v.name: v.reason for v in made.left_alone},
                "nccl": made.nccl.to_dict(),
                "step_s": {
                    "before": made.before_s if isfinite(made.before_s) else None,
                    "after": made.after_s,
                },
            }
        )
        return
    before = f"takes {show(made.before_s, TIME)}" if isfinite(made.before_s) else "cannot run"
    lines = [
        f"# {world.name}, plain data parallelism over all sites: a step {before} as the scenario sets NCCL,"
        f" and {show(made.after_s, TIME)} so.",
        "# Of what is within 1 % of the fastest, this takes the least memory in buffers.",
    ]
    for variable in made.variables:
        lines += [f"# {variable.reason}", f"export {variable.name}={variable.value}"]
    lines += [f"# {v.name} stays as it is: {v.reason}" for v in made.left_alone]
    typer.echo("\n".join(lines))
