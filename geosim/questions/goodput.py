"""What policies lose to faults over days of stated failure rates; the same faults for all of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from geosim.cost import Calibration, build
from geosim.errors import UsageError
from geosim.policy import SyncPolicy
from geosim.scenario import Scenario
from geosim.sim import Result, Tracer, simulate
from geosim.sim.exact import useful_windows
from geosim.sim.goodput import PARTS, Spent, spend

DAY_S = 86400.0
_MOST_TRACED = 10_000  # windows
_MOST_FAULTS = 200_000  # of a run, as expected; ten years of 16,384 accelerators have some 100,000


@dataclass(frozen=True)
class Asked:
    """A question: a scenario with faults, how long, how many runs, and how the fault-free speed is found."""

    scenario: Scenario
    days: float
    seeds: int
    windows: int
    calibration: Calibration | None


@dataclass(frozen=True)
class Goodput:
    """One policy over all runs.

    Attributes:
        policy: its name.
        goodput: mean over the runs of the speed that is left, of the policy's own without faults.
        least, most: over the runs.
        lost: mean share of the time that each of `PARTS` took.
        tokens_per_s: useful ones. fault_free_tokens_per_s: without faults and checkpoints.
        relative_to_colocated: of the useful ones, to the throughput of one room without faults.
        faults: mean number a run, by kind.
    """

    policy: str
    goodput: float
    least: float
    most: float
    lost: dict[str, float]
    tokens_per_s: float
    fault_free_tokens_per_s: float
    relative_to_colocated: float
    faults: dict[str, float]


def goodput(asked: Asked, policies: Sequence[SyncPolicy], jobs: int = 1) -> list[Goodput]:
    """Every policy under the same faults. The answer is the same for any number of jobs.

    Raises:
        UsageError: a scenario that states no faults or too many to walk through, or a policy that does not
            fit it.
    """
    if asked.scenario.faults is None:
        raise UsageError(
            f"scenario {asked.scenario.name} states no faults: add faults:, or set a rate, like "
            '--set faults.accelerator.mtbf="50000 h"'
        )
    expected = asked.days * DAY_S * _faults_per_second(asked.scenario)
    if expected > _MOST_FAULTS:
        most = asked.days * _MOST_FAULTS / expected
        raise UsageError(
            f"faults: {expected:,.0f} in {asked.days:g} days are more than {_MOST_FAULTS:,}:"
            f" use --days {most:.2g}, or longer mtbf"
        )
    return _run_all(asked, policies, jobs)


def _faults_per_second(scenario: Scenario) -> float:
    """Of all kinds and of all that may fail."""
    faults, ranks = scenario.faults, scenario.ranks
    kinds = (
        (faults.accelerator, ranks), (faults.straggler, ranks),
        (faults.site, len(scenario.sites)), (faults.link, len(scenario.wan)),
    ) if faults else ()  # fmt: skip
    return sum(many / kind.mtbf_s for kind, many in kinds if kind is not None)


def one(asked: Asked, policy: SyncPolicy) -> Goodput:
    """One policy over all runs."""
    try:
        base = simulate(asked.scenario, policy, windows=asked.windows, calibration=asked.calibration)
        problem = build(asked.scenario, policy, asked.calibration)
    except UsageError as error:
        raise UsageError(f"policy {policy.name}: {error}") from None
    window = base.step_time_s.mean * policy.interval
    horizon = asked.days * DAY_S
    runs = [spend(asked.scenario, problem, window, horizon, seed) for seed in range(asked.seeds)]
    kept = _mean([run.goodput for run in runs])
    return Goodput(
        policy=policy.name,
        goodput=kept,
        least=min(run.goodput for run in runs),
        most=max(run.goodput for run in runs),
        lost={part: _mean([run.parts_s[part] / horizon for run in runs]) for part in PARTS},
        tokens_per_s=kept * base.tokens_per_s,
        fault_free_tokens_per_s=base.tokens_per_s,
        relative_to_colocated=kept * base.relative_to_colocated,
        faults=_counts(runs),
    )


def traced(asked: Asked, policy: SyncPolicy, tracer: Tracer) -> Result:
    """Take down every second of a policy's first run; what it is without faults.

    Raises:
        UsageError: a run that is too long for that, or one that goes on without a lost site.
    """
    faults = asked.scenario.faults
    if faults is not None and faults.on_site_loss == "continue":
        raise UsageError("--trace: shows runs that wait for a lost site: set faults.on_site_loss=wait")
    base = simulate(asked.scenario, policy, windows=asked.windows, calibration=asked.calibration)
    window, horizon = base.step_time_s.mean * policy.interval, asked.days * DAY_S
    if horizon > _MOST_TRACED * window:
        most = _MOST_TRACED * window / DAY_S
        raise UsageError(
            f"--trace: {horizon / window:,.0f} windows of {policy.name} are too many: use --days {most:.2g}"
        )
    useful_windows(
        asked.scenario, build(asked.scenario, policy, asked.calibration), window, horizon, 0, tracer
    )
    return base


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values))


def _counts(runs: Sequence[Spent]) -> dict[str, float]:
    return {kind: _mean([run.counts[kind] for run in runs]) for kind in runs[0].counts}


def _run_all(asked: Asked, policies: Sequence[SyncPolicy], jobs: int) -> list[Goodput]:
    if jobs == 1:
        return [one(asked, policy) for policy in policies]
    try:
        import joblib
        from joblib.externals.loky import get_reusable_executor
    except ImportError:
        raise UsageError(
            "--jobs: several processes need joblib: pip install -e '.[sweep]', or use --jobs 1"
        ) from None
    try:
        work: Any = joblib.Parallel(n_jobs=jobs, backend="loky")
        return list(work(joblib.delayed(one)(asked, policy) for policy in policies))
    finally:
        get_reusable_executor().shutdown(wait=True, kill_workers=True)
