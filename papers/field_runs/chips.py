"""Goodput of 1.2 million chips in eight places: one job that any loss stops, or places that go on alone.

The report states neither failure rates nor restart times. The first goodput fixes the rate, the second
follows.
"""

from functools import cache

import numpy as np

from geosim.cost import build
from geosim.policy import policy_from_dict
from geosim.scenario import Fabric, Faults, Hop, Scenario, Site, WanLink, Workload
from geosim.scenario.faults import AcceleratorLoss, Checkpoint
from geosim.sim.goodput import spend

CHIPS, PLACES = 1_200_000, 8
RESTART_S, SAVE_S = 120.0, 300.0
_WINDOW_S = 60.0
_DAYS = 0.5


def _world(mtbf_h: float, goes_on: bool, save_s: float) -> Scenario:
    hop = Hop(bandwidth_bytes_per_s=50e9, latency_s=5e-6)
    names = [f"place{i}" for i in range(PLACES)]
    return Scenario(
        name="chips",
        sites=tuple(
            Site(
                name=name,
                accelerator="H100",
                nodes=CHIPS // PLACES // 8,
                fabric=Fabric(intra_node=hop, inter_node=hop),
            )
            for name in names
        ),
        wan=tuple(
            WanLink(between=(a, b), bandwidth_bytes_per_s=1e12, rtt_s=0.03)
            for i, a in enumerate(names)
            for b in names[i + 1 :]
        ),
        workload=Workload(model="llama-3.2-1b", step_time_s=1.0),
        faults=Faults(
            accelerator=AcceleratorLoss(mtbf_s=3600 * mtbf_h),
            restart_s=RESTART_S,
            checkpoint=Checkpoint(interval_s=save_s),
            on_site_loss="continue" if goes_on else "wait",
        ),
    )


@cache
def goodput(mtbf_h: float, goes_on: bool, save_s: float = SAVE_S) -> float:
    """Mean goodput of four half days."""
    world = _world(mtbf_h, goes_on, save_s)
    problem = build(world, policy_from_dict({"update": "local", "interval": round(_WINDOW_S), "shards": 8}))
    runs = [spend(world, problem, _WINDOW_S, _DAYS * 86400, seed).goodput for seed in range(4)]
    return float(np.mean(runs))


def mtbf_for(value: float, save_s: float = SAVE_S) -> float:
    """Hours between failures of one chip at which the one job has a goodput of `value`."""
    low, high = 1e3, 1e6
    for _ in range(20):
        middle = (low * high) ** 0.5
        low, high = (middle, high) if goodput(middle, False, save_s) < value else (low, middle)
    return high
