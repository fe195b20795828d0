"""Changes that one may buy or make: one more Gbit/s, one ms less, an accelerator more a site, K + 1."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from geosim.cost.compute import DEFAULT_MFU
from geosim.errors import UsageError
from geosim.policy import Accumulate, Delayed, Eager, SyncPolicy, policy_from_dict
from geosim.questions.knobs import KINDS, Knob
from geosim.scenario import Scenario, Site
from geosim.units import BANDWIDTH, TIME, parse, show

World = tuple[Scenario, SyncPolicy]

_MOST = {"bandwidth": parse("1 Gbit/s", BANDWIDTH), "rtt": parse("1 ms", TIME), "loss": 0.01}
_SHARE = 0.1  # of what is there, that a unit does not exceed
_COMPUTE = 0.01


@dataclass(frozen=True)
class Change:
    """One change.

    Attributes:
        name: in words.
        knob, unit: of a link's property; `unit` is what it changes by, with its sign.
        world: a scenario and a policy with a share of the change made: 1 all of it, -0.5 half of it the other
            way. Discrete changes know 0 and 1 alone.
        smooth: whether shares exist.
    """

    name: str
    knob: Knob | None
    unit: float
    world: Callable[[float], World]
    smooth: bool


def changes(scenario: Scenario, policy: SyncPolicy) -> list[Change]:
    """Every change that there is: all links together and each, compute, the sites, the policy.

    Compute is left out where it follows from `workload.parallel`: there is no one number to change.
    """
    out = [_link(scenario, policy, Knob(kind)) for kind in KINDS] if scenario.wan else []
    if len(scenario.wan) > 1:
        out += [_link(scenario, policy, Knob(kind, i)) for i in range(len(scenario.wan)) for kind in KINDS]
    out = [change for change in out if change.unit]
    if scenario.workload.parallel is None or scenario.workload.step_time_s or scenario.workload.mfu:
        out.append(_compute(scenario, policy))
    one = "node" if any(site.nodes > 1 for site in scenario.sites) else "accelerator"
    out.append(_whole(f"one more {one} a site", (_larger(scenario), policy), (scenario, policy)))
    for name, after in _other_policies(policy):
        out.append(_whole(name, (scenario, after), (scenario, policy)))
    return out


def unit_of(knob: Knob, now: float) -> float:
    """A unit worth asking for: the power of ten at or below a tenth of what is there.

    At most 1 Gbit/s, 1 ms or 1 %.

    Negative for what one wants less of; 0 where nothing is there.
    """
    if now == 0:
        return 0.0
    bits = 8.0 if knob.kind == "bandwidth" else 1.0
    unit = 10.0 ** math.floor(math.log10(now * bits * _SHARE) + 1e-9) / bits
    return min(unit, _MOST[knob.kind]) * (1 if knob.kind == "bandwidth" else -1)


def _link(scenario: Scenario, policy: SyncPolicy, knob: Knob) -> Change:
    now = knob.value(scenario)
    unit = unit_of(knob, now)
    if knob.kind == "loss":
        text = f"{100 * abs(unit):.3g} % less loss"
    elif knob.kind == "rtt":
        text = f"{show(abs(unit), TIME)} less RTT"
    else:
        text = f"{show(unit, BANDWIDTH)} more"
    if len(scenario.wan) > 1:
        text += " on all links" if knob.link is None else f", {scenario.wan[knob.link].name}"

    def world(share: float) -> World:
        return knob.turned(scenario, now + share * unit), policy

    return Change(text, knob, unit, world, True)


def _compute(scenario: Scenario, policy: SyncPolicy) -> Change:
    work = scenario.workload

    def world(share: float) -> World:
        factor = 1 - share * _COMPUTE
        if work.step_time_s is not None:
            faster = {"step_time_s": work.step_time_s * factor}
        else:
            faster = {"mfu": (DEFAULT_MFU if work.mfu is None else work.mfu) / factor}
        return scenario.model_copy(update={"workload": work.model_copy(update=faster)}), policy

    return Change("1 % less compute time", None, _COMPUTE, world, True)


def _whole(name: str, after: World, before: World) -> Change:
    return Change(name, None, 1.0, lambda share: after if share else before, False)


def _larger(scenario: Scenario) -> Scenario:
    """Every site with one node more, or where sites are single nodes with one accelerator more."""
    field = "nodes" if any(site.nodes > 1 for site in scenario.sites) else "accelerators_per_node"

    def grown(site: Site) -> Site:
        return site.model_copy(update={field: getattr(site, field) + 1})

    return scenario.model_copy(update={"sites": tuple(grown(site) for site in scenario.sites)})


def _other_policies(policy: SyncPolicy) -> list[tuple[str, SyncPolicy]]:
    """Policies one step away; those that cannot be are left out."""
    if policy.is_flat:
        return []
    wanted: list[tuple[str, dict[str, Any]]] = [
        (f"K = {policy.interval + 1}", {"interval": policy.interval + 1}),
        (f"{policy.streams + 1} streams", {"streams": policy.streams + 1}),
    ]
    overlap = policy.overlap
    if isinstance(overlap, Delayed | Eager):
        later = overlap.to_dict() | {"windows": overlap.windows + 1}
        wanted.append((f"{overlap.kind} by {overlap.windows + 1} windows", {"overlap": later}))
    elif overlap.kind == "blocking" and not policy.groups and isinstance(policy.update, Accumulate):
        wanted.append(("delayed by 1 window", {"overlap": "delayed"}))
    out = []
    for name, fields in wanted:
        try:
            out.append((name, policy_from_dict(policy.to_dict() | fields)))
        except UsageError:
            continue
    return out
