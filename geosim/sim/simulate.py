"""`simulate`: a scenario and a policy in, a `Result` out."""

from geosim.cost import Calibration, Problem, build
from geosim.errors import UsageError
from geosim.policy import SyncPolicy, load_policy
from geosim.scenario import Scenario, load_scenario
from geosim.sim.engine import Engine
from geosim.sim.flat import run_flat
from geosim.sim.lonely.rule import is_lonely, pays
from geosim.sim.record import Record, Tracer
from geosim.sim.result import Result, summarize

WINDOWS = 60
SEEDS = 3
_PAYLOADS = 2_500  # in all runs
_TRACED_WINDOWS = 8


def simulate(
    scenario: Scenario | str,
    policy: SyncPolicy | str,
    *,
    seeds: int | None = None,
    windows: int = WINDOWS,
    calibration: Calibration | None = None,
    trace: Tracer | None = None,
) -> Result:
    """What a policy does in a scenario.

    Args:
        scenario, policy: objects, names or YAML files.
        seeds: independent runs; one is enough, and one is made, where nothing is random. None: `seeds_for`
            the problem.
        windows: windows (for plain data parallelism steps) measured in each, after a warm-up.
        calibration: constants from a measured run.
        trace: takes down the first windows of the first seed's run; `report.trace.write_trace` makes a file
        of it.

    Raises:
        UsageError: if the two do not fit each other.
    """
    if windows < 1 or (seeds is not None and seeds < 1):
        raise UsageError(f"seeds and windows must be 1 or more (got {seeds} and {windows})")
    world = load_scenario(scenario) if isinstance(scenario, str) else scenario
    rule = load_policy(policy) if isinstance(policy, str) else policy
    problem = build(world, rule, calibration)
    count = seeds_for(problem, windows) if seeds is None else seeds if is_random(problem) else 1
    at_once = is_lonely(problem) and pays(problem, count * windows)
    records = [run(problem, seed, windows, at_once=at_once) for seed in range(count)]
    if trace is not None:
        run(problem, 0, min(windows, _TRACED_WINDOWS), trace)
    return summarize(problem, records, windows)


def seeds_for(problem: Problem, windows: int = WINDOWS) -> int:
    """Runs that are made where nobody says how many: three, fewer where they are long, one if none is random.

    How long each is stays the same, since sites that drift apart drift further in longer runs.
    """
    if not is_random(problem):
        return 1
    payloads = len(problem.routes) * len(problem.fragments) * windows
    return max(1, min(SEEDS, _PAYLOADS // max(1, payloads))) if problem.flat is None else SEEDS


def is_random(problem: Problem) -> bool:
    """Whether runs of a problem differ by seed."""
    return any(site.step_cv > 0 for site in problem.sites) or any(link.is_random for link in problem.links)


def run(
    problem: Problem, seed: int, windows: int, tracer: Tracer | None = None, at_once: bool | None = None
) -> Record:
    """One run of a problem; `at_once` as of `Engine`."""
    if problem.flat is not None:
        if any(link.varying is not None and not link.is_steady for link in problem.links):
            from geosim.sim.flat_weather import run_varying

            return run_varying(problem, seed, windows, tracer)
        return run_flat(problem, seed, windows, tracer)
    return Engine(problem, seed, windows, tracer, at_once).run()
