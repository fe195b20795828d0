"""Whether a stated parallelism, and what a sync policy keeps, fit the memory of every site."""

from functools import lru_cache

from geosim.cost.step.check import check
from geosim.cost.step.exchange import exchange_bytes
from geosim.errors import UsageError
from geosim.policy import SyncPolicy
from geosim.scenario import Scenario, Site, Workload


def policy_bytes(scenario: Scenario, policy: SyncPolicy) -> float:
    """Bytes that a policy keeps on an accelerator; plain data parallelism keeps nothing."""
    if policy.is_flat:
        return 0.0
    shards = policy.shards or min(site.ranks for site in scenario.sites)
    return exchange_bytes(policy, _numel(scenario.workload), shards)


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
