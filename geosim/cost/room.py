"""Whether a stated parallelism, and what a sync policy keeps, fit the memory of every site."""

from functools import lru_cache

from geosim.cost.step.check import TRAINING, check
from geosim.cost.step.exchange import exchange_parts
from geosim.errors import UsageError
from geosim.policy import SyncPolicy
from geosim.scenario import Scenario, Site, Workload


def policy_bytes(scenario: Scenario, policy: SyncPolicy) -> float:
    """Bytes that a policy keeps on an accelerator; plain data parallelism keeps nothing."""
    return sum(_kept(scenario, policy).values())


def _kept(scenario: Scenario, policy: SyncPolicy) -> dict[str, float]:
    if policy.is_flat:
        return {}
    shards = policy.shards or min(site.ranks for site in scenario.sites)
    return exchange_parts(policy, _numel(scenario.workload), shards)


def needs(scenario: Scenario, policy: SyncPolicy) -> dict[str, dict[str, float]]:
    """Bytes on the accelerator that needs most, by site and by what they hold; empty where no parallelism is
    stated.

    Raises:
        UsageError: as `check_room`.
    """
    work = scenario.workload
    if work.parallel is None:
        return {}
    kept = _kept(scenario, policy)
    out = {}
    for site in scenario.sites:
        need = check(work, site, sum(kept.values()))
        own = {name: float(getattr(need, name)) for name in TRAINING}
        out[site.name] = {name: value for name, value in {**own, **kept}.items() if value}
    return out


def check_room(scenario: Scenario, policy: SyncPolicy) -> None:
    """Nothing where no parallelism is stated.

    Raises:
        UsageError: where degrees do not divide or memory does not suffice: one line.
    """
    if scenario.workload.parallel is None:
        return
    kept = policy_bytes(scenario, policy)
    for site in scenario.sites:
        fault = _fault(scenario.workload, site, kept)
        if fault:
            raise UsageError(fault)


def has_room(scenario: Scenario, policy: SyncPolicy) -> bool:
    """Whether `check_room` lets the policy pass."""
    try:
        check_room(scenario, policy)
    except UsageError:
        return False
    return True


@lru_cache(maxsize=1024)
def _fault(workload: Workload, site: Site, kept: float) -> str:
    try:
        check(workload, site, kept)
    except UsageError as error:
        return str(error)
    return ""


@lru_cache(maxsize=16)
def _numel(workload: Workload) -> int:
    return workload.model.param_table().numel
