"""Exchanges that are worked out in one go where no two payloads share a link: when that may and does happen.

A site is through with an exchange only when it has everything from all sites, so nothing of an exchange shows
before the last site has entered it. Then all of it follows at once, and the engine need not be told of each
payload. That holds where links are lonely: no site's own limit and no trunk ties one to another, and none
changes in a run. It takes numba, and time to load it, so small runs go payload by payload (`sim.exchange`),
as do those that are traced or in which faults happen. The numbers are the same either way.
"""

from importlib.util import find_spec
from math import inf

from geosim.cost.problem import Problem

_MANY = 10_000  # payloads that take `sim.exchange` about as long as loading numba and the kernel


def is_lonely(problem: Problem) -> bool:
    """Whether exchanges can be worked out in one go."""
    limits = (limit for s in problem.sites for limit in (s.uplink_bytes_per_s, s.downlink_bytes_per_s))
    steady = all(not link.trace and link.varying is None and not link.trunks for link in problem.links)
    return bool(problem.routes) and steady and all(limit == inf for limit in limits)


def pays(problem: Problem, windows: int) -> bool:
    """Whether it saves time, and numba is there."""
    payloads = len(problem.routes) * len(problem.fragments) * windows
    return payloads >= _MANY and find_spec("numba") is not None
