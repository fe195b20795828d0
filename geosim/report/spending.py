"""What a step costs beside time: an accelerator's memory and money, as plain data and in words."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from geosim.cost.compute import flops_per_token
from geosim.cost.money import money
from geosim.cost.room import needs
from geosim.policy import SyncPolicy
from geosim.scenario import Scenario
from geosim.units import COMPUTE, SIZE, show


def spending(scenario: Scenario, policy: SyncPolicy, result: Mapping[str, Any]) -> dict[str, Any]:
    """`mfu` and `memory_bytes`, by site and by what it holds, where a parallelism is stated; `money` where
    prices are.

    Args:
        result: `Result.to_dict` of the policy in the scenario.
    """
    out: dict[str, Any] = {}
    memory = needs(scenario, policy)
    if memory:
        out["mfu"] = _mfu(scenario, result["tokens_per_s"])
        out["memory_bytes"] = memory
    if scenario.prices is not None:
        step = result["step_time_s"]["mean"]
        cost = money(scenario, step, result["tokens_per_s"] * step, _leaving(scenario, result))
        out["money"] = {**asdict(cost), "per_million_tokens": cost.per_million_tokens}
    return out


def lines(scenario: Scenario, spent: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Rows of a screen, name and words; memory is that of the site with the least to spare."""
    out = []
    if "mfu" in spent:
        waiting = "with the WAN" if len(scenario.sites) > 1 else "in all"
        out.append(("MFU", f"{100 * spent['mfu']:.3g} % of the accelerators' {_peaks(scenario)}, {waiting}"))
    if "memory_bytes" in spent:
        out.append(("memory", _memory(scenario, spent["memory_bytes"])))
    if "money" in spent:
        cost = spent["money"]
        out.append(
            (
                "money",
                f"{_amount(cost['per_million_tokens'])} {cost['currency']} a million tokens: compute"
                f" {_amount(cost['compute_per_million_tokens'])}"
                f" ({_amount(cost['accelerator_hours_per_million_tokens'])} accelerator hours), WAN egress"
                f" {_amount(cost['egress_per_million_tokens'])}",
            )
        )
    return out


def _mfu(scenario: Scenario, tokens_per_s: float) -> float:
    """Model FLOPs of all sites over their peak: what is recomputed does not count, and all waiting does."""
    work = scenario.workload
    peak = sum(site.ranks * site.accelerator.peak_flops(work.precision) for site in scenario.sites)
    return tokens_per_s * flops_per_token(work.model_copy(update={"recompute": False})) / peak


def _peaks(scenario: Scenario) -> str:
    """Their peak at the workload's precision, once each."""
    precision = scenario.workload.precision
    peaks = dict.fromkeys(site.accelerator.peak_flops(precision) for site in scenario.sites)
    return f"{' and '.join(show(peak, COMPUTE) for peak in peaks)} in {precision}"


def _memory(scenario: Scenario, needed: Mapping[str, Mapping[str, float]]) -> str:
    devices = {site.name: site.accelerator for site in scenario.sites}
    free = {name: devices[name].memory_bytes - sum(parts.values()) for name, parts in needed.items()}
    name = min(free, key=lambda site: free[site])
    parts, device = needed[name], devices[name]
    held = ", ".join(f"{what} {show(value, SIZE)}" for what, value in parts.items())
    alike = all(other == parts and devices[site] == device for site, other in needed.items())
    where = "" if alike else f" at {name}"
    total = f"{show(sum(parts.values()), SIZE)} of {show(device.memory_bytes, SIZE)}"
    return f"{total} of {device.name}{where}: {held}"


def _leaving(scenario: Scenario, result: Mapping[str, Any]) -> dict[str, float]:
    """Bytes a step that leave each site, headers included."""
    out = dict.fromkeys((site.name for site in scenario.sites), 0.0)
    for name, used in result["links"].items():
        out[name.split("->")[0]] += used["bytes_per_step"]
    return out


def _amount(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"
