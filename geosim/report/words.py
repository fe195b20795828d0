"""Short words for policies, scenarios and numbers, shared by every table and note."""

from collections.abc import Sequence

from geosim.policy import (
    Accumulate,
    Blocking,
    Codec,
    Dense,
    Feedback,
    Overlap,
    RandomK,
    Streaming,
    SyncPolicy,
    TopK,
)
from geosim.policy.codec import section_bytes
from geosim.scenario import Scenario
from geosim.screen import percent
from geosim.units import BANDWIDTH, TIME, Dimension, show

_MANY = 1 << 24


def rate(value: float) -> str:
    """Events a second: whole ones, or three significant digits where they are few."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def count(value: float) -> str:
    """A large count: 6.74 billion, 3.2 million, 850."""
    for unit, factor in (("trillion", 1e12), ("billion", 1e9), ("million", 1e6)):
        if value >= factor * 0.9995:
            return f"{value / factor:.3g} {unit}"
    return f"{value:,.0f}"


def update(policy: SyncPolicy) -> str:
    """What is sent: gradients (accumulate) or the change of local steps."""
    if isinstance(policy.update, Accumulate):
        return "accumulate" if policy.update.send == "gradient" else "accumulate momentum"
    return "local"


def codec(codec: Codec) -> str:
    """Selection and format, as in "1 % int8"."""
    kept = "dense"
    if isinstance(codec.select, TopK | RandomK):
        kept = f"{percent(codec.select.ratio)}{' random' if isinstance(codec.select, RandomK) else ''}"
    return f"{kept} {codec.quantize.kind}"


def overlap(overlap: Overlap) -> str:
    """When results are applied."""
    if isinstance(overlap, Blocking):
        return "blocking"
    if isinstance(overlap, Streaming):
        return f"streaming, {overlap.fragments} x {overlap.steps} steps"
    return overlap.kind if overlap.windows == 1 else f"{overlap.kind} by {overlap.windows} windows"


def policy_line(policy: SyncPolicy) -> str:
    """A whole policy in one line."""
    words = [update(policy), f"K = {policy.interval}", codec(policy.codec)]
    if not isinstance(policy.codec.select, Dense) or isinstance(policy.codec.residual, Feedback):
        words.append("with residual" if isinstance(policy.codec.residual, Feedback) else "no residual")
    words += ["by group" if policy.groups else overlap(policy.overlap), policy.topology.kind]
    if policy.streams > 1:
        words.append(f"{policy.streams} streams")
    return ", ".join(words)


def choice(policy: SyncPolicy) -> str:
    """The five axes of the tuner in one line."""
    streams = f", {policy.streams} streams" if policy.streams > 1 else ""
    return f"K = {policy.interval}, {codec(policy.codec)}, {overlap(policy.overlap)}{streams}"


def bytes_per_parameter(policy: SyncPolicy) -> float:
    """Bytes that a large tensor's codec sends for one of its parameters in one exchange."""
    return section_bytes(_MANY, policy.codec) / _MANY


def sites(scenario: Scenario) -> str:
    """Sites with their accelerators, as in "east 2 x cpu-core"."""
    return ", ".join(f"{s.name} {s.ranks} x {s.accelerator.name}" for s in scenario.sites)


def links(scenario: Scenario) -> str:
    """WAN links by bandwidth and RTT, averages where they vary; more than two as their ranges."""
    if not scenario.wan:
        return "no WAN"
    wan = [w.average() for w in scenario.wan]
    mean = " on average" if any(w.varies for w in wan) else ""
    if len(wan) <= 2:
        rates = (f"{show(w.bandwidth_bytes_per_s, BANDWIDTH)}, {show(w.rtt_s, TIME)}" for w in wan)
        return "; ".join(rates) + mean
    bandwidths = _range([w.bandwidth_bytes_per_s for w in wan], BANDWIDTH)
    return f"{len(wan)} links, {bandwidths}, {_range([w.rtt_s for w in wan], TIME)}{mean}"


def _range(values: Sequence[float], dimension: Dimension) -> str:
    """From the least to the largest, or the one that all are as far as it shows."""
    least, largest = show(min(values), dimension), show(max(values), dimension)
    return least if least == largest else f"{least} to {largest}"


def workload(scenario: Scenario) -> str:
    """The model and its size."""
    model = scenario.workload.model
    return f"{model.name} ({count(model.param_table().numel)} parameters)"
