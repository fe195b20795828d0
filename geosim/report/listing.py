"""Plain data of what is built in, for `--json`."""

from typing import Any

from geosim.policy import SyncPolicy
from geosim.report import words
from geosim.scenario import Scenario


def scenario(scenario: Scenario) -> dict[str, Any]:
    """Sites, links and workload of one scenario, in SI units."""
    table = scenario.workload.model.param_table()
    return {
        "name": scenario.name,
        "about": scenario.about,
        "sites": [
            {"name": s.name, "ranks": s.ranks, "accelerator": s.accelerator.name} for s in scenario.sites
        ],
        "links": [
            {"name": w.name, "bandwidth_bytes_per_s": w.bandwidth_bytes_per_s, "rtt_s": w.rtt_s}
            for w in scenario.wan
        ],
        "model": scenario.workload.model.name,
        "parameters": table.numel,
    }


def policy(policy: SyncPolicy) -> dict[str, Any]:
    """One policy's facts; `policy` holds the whole of it."""
    return {
        "name": policy.name,
        "about": policy.about,
        "update": words.update(policy),
        "interval": policy.interval,
        "codec": words.codec(policy.codec),
        "overlap": words.overlap(policy.overlap),
        "bytes_per_parameter": words.bytes_per_parameter(policy),
        "policy": policy.to_dict(),
    }
