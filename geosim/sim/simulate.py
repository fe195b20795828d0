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

WINDOWS = 200
_FEWEST_WINDOWS = 20
_PAYLOADS, _STEPS = 480, 100  # of a run: it need not have more of both
_TRACED_WINDOWS = 8


def simulate(
    scenario: Scenario | str,
    policy: SyncPolicy | str,
    *,
    seeds: int = 3,
    windows: int | None = None,
    calibration: Calibration | None = None,
    trace: Tracer | None = None,
) -> Result:
    """What a policy does in a scenario.

    Args:
        scenario, policy: objects, names or YAML files.
        seeds: independent runs; one is enough, and one is made, where nothing is random.
        windows: windows (for plain data parallelism steps) measured in each, after a warm-up; None:
            `windows_for` the problem.
        calibration: constants from a measured run.
        trace: takes down the first windows of the first seed's run; `report.trace.write_trace` makes a file
        of it.

    Raises:
        UsageError: if the two do not fit each other.
    """
    if seeds < 1 or (windows is not None and windows < 1):
        raise UsageError(f"seeds and windows must be 1 or more (got {seeds} and {windows})")
    world = load_scenario(scenario) if isinstance(scenario, str) else scenario
    rule = load_policy(policy) if isinstance(policy, str) else policy
    problem = build(world, rule, calibration)
    seeds = seeds if is_random(problem) else 1
    count = windows or windows_for(problem)
    at_once = is_lonely(problem) and pays(problem, seeds * count)
    records = [run(problem, seed, count, at_once=at_once) for seed in range(seeds)]
    if trace is not None:
        run(problem, 0, min(count, _TRACED_WINDOWS), trace)
    return summarize(problem, records, count)


def windows_for(problem: Problem) -> int:
    """As many windows as a run needs: 200, or down to 20 where each has many payloads and links are steady.

    Three runs of 100 steps that vary by 5 % each say their mean to 0.3 %, 40 windows of 100 to 0.05 %.
    """
    if problem.flat is not None or any(link.varying or link.trace for link in problem.links):
        return WINDOWS
    payloads = len(problem.routes) * len(problem.fragments)
    enough = max(_PAYLOADS // max(1, payloads), -(-_STEPS // problem.policy.interval))
    return max(_FEWEST_WINDOWS, min(WINDOWS, enough))


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
