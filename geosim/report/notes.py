"""What decides between policies in a scenario, in sentences computed from their results."""

from collections.abc import Mapping, Sequence
from typing import Any

from geosim.cost.calibration import Calibration
from geosim.policy import SyncPolicy
from geosim.report import words
from geosim.report.verdict import HIDDEN, hiding
from geosim.scenario import Scenario
from geosim.tune.screen import screen
from geosim.tune.sensitivity import threshold, with_bandwidth
from geosim.units import BANDWIDTH, show

_FEW = 0.05
_LOW, _HIGH = 1e-4, 1e4


def what_decides(
    scenario: Scenario,
    policies: Sequence[SyncPolicy],
    results: Sequence[Mapping[str, Any]],
    calibration: Calibration | None = None,
) -> list[str]:
    """For each policy: whether the WAN shows, at which bandwidth that changes, and what makes its traffic."""
    out = []
    for policy, result in zip(policies, results, strict=True):
        if not any(link["bytes_per_step"] for link in result["links"].values()):
            continue
        turn = _turning_point(scenario, policy, result, calibration)
        out.append(f"{policy.name} {hiding(policy, result)}; {turn}.")
        if not policy.is_flat:
            out.append(f"{policy.name} {_traffic(policy, result)}.")
    out.append(_spread(policies, results))
    return [line for line in out if line]


def _turning_point(
    scenario: Scenario, policy: SyncPolicy, result: Mapping[str, Any], calibration: Calibration | None
) -> str:
    """The bandwidth at which the WAN starts or stops to matter."""
    step, exposed = result["step_time_s"]["mean"], result["exposed_wan_s_per_step"]
    hidden = exposed <= HIDDEN * step
    share = HIDDEN if hidden else _FEW

    def fine(factor: float) -> bool:
        found = screen(with_bandwidth(scenario, factor), [policy], calibration)
        return bool(found.exposed_s[0] <= share * found.step_s[0])

    factor = threshold(fine, _LOW, _HIGH)
    narrowest = min(w.bandwidth_bytes_per_s for w in scenario.wan)
    if factor is None:
        return f"no bandwidth makes that less than {words.percent(share)}: round trips decide"
    rate = show(narrowest * factor, BANDWIDTH)
    have = show(narrowest, BANDWIDTH)
    if hidden:
        return f"it still would at {rate} (there are {have})"
    return f"it would wait less than {words.percent(share)} from {rate} on (there are {have})"


def _traffic(policy: SyncPolicy, result: Mapping[str, Any]) -> str:
    """The share of plain DDP's bytes as a product of its causes."""
    total = result["wan_bytes_vs_ddp"]
    size = words.bytes_per_parameter(policy) / 4
    rest = total * policy.interval / size
    causes = [f"{words.percent(size)} by {words.codec(policy.codec)}"]
    if policy.interval > 1:
        causes.append(f"1/{policy.interval} by K = {policy.interval}")
    causes.append(f"{words.percent(rest)} by topology ({policy.topology.kind}, not one ring of all ranks)")
    return f"sends {words.percent(total)} of plain DDP's bytes: {' x '.join(causes)}"


def _spread(policies: Sequence[SyncPolicy], results: Sequence[Mapping[str, Any]]) -> str:
    """How far the fastest and the slowest are apart."""
    if len(results) < 2:
        return ""
    order = sorted(range(len(results)), key=lambda i: results[i]["tokens_per_s"])
    slow, fast = order[0], order[-1]
    times = results[fast]["tokens_per_s"] / results[slow]["tokens_per_s"]
    if times < 1.01:
        return "All reach the same throughput within 1 %."
    shown = f"{times:,.0f}" if times >= 100 else f"{times:.3g}"
    return (
        f"{policies[fast].name} trains {shown} times as many tokens a second as {policies[slow].name}; "
        "what a policy costs in loss for equal tokens is not part of this."
    )
