"""What would change an answer: scenarios with other bandwidths or models, and bisection for a threshold."""

import math
from collections.abc import Callable

from geosim.cost.compute import as_utilization
from geosim.scenario import Model, Scenario, WanLink

_STEPS = 40


def with_bandwidth(scenario: Scenario, factor: float) -> Scenario:
    """The scenario with every WAN bandwidth multiplied; windows and queues grow with it."""
    room = max(1.0, factor)

    def times(value: float | None, by: float) -> float | None:
        return None if value is None else value * by

    def scaled(link: WanLink) -> WanLink:
        trace = tuple(
            p.model_copy(update={"bandwidth_bytes_per_s": p.bandwidth_bytes_per_s * factor})
            for p in link.trace
        )
        return link.model_copy(
            update={
                "bandwidth_bytes_per_s": link.bandwidth_bytes_per_s * factor,
                "back_bandwidth_bytes_per_s": times(link.back_bandwidth_bytes_per_s, factor),
                "window_bytes": link.window_bytes * room,
                "queue_bytes": times(link.queue_bytes, room),
                "trace": trace,
                "varies": tuple(v.scaled(factor) for v in link.varies),
            }
        )

    sites = tuple(
        s.model_copy(
            update={
                "uplink_bytes_per_s": times(s.uplink_bytes_per_s, factor),
                "downlink_bytes_per_s": times(s.downlink_bytes_per_s, factor),
            }
        )
        for s in scenario.sites
    )
    return scenario.model_copy(update={"sites": sites, "wan": tuple(scaled(w) for w in scenario.wan)})


def with_rtt(scenario: Scenario, factor: float) -> Scenario:
    """The scenario with every round-trip time multiplied; windows grow alike."""
    wan = tuple(
        w.model_copy(update={"rtt_s": w.rtt_s * factor, "window_bytes": w.window_bytes * max(1.0, factor)})
        for w in scenario.wan
    )
    return scenario.model_copy(update={"wan": wan})


def with_model_scale(scenario: Scenario, scale: float) -> Scenario:
    """The scenario with a model of the same shape, its depth and width times the cube root of `scale`.

    The vocabulary stays, so parameters follow `scale` only roughly.
    """
    model, side = scenario.workload.model, scale ** (1 / 3)
    head = model.d_model // model.heads
    heads = max(1, round(model.heads * side))
    smaller: Model = model.model_copy(
        update={
            "name": f"{model.name} scaled",
            "layers": max(1, round(model.layers * side)),
            "heads": heads,
            "kv_heads": None if model.kv_heads is None else max(1, min(heads, round(model.kv_heads * side))),
            "d_model": head * heads if model.head_dim is None else max(1, round(model.d_model * side)),
            "ffn": max(1, round(model.ffn * side)),
        }
    )
    work = as_utilization(scenario.workload, scenario.sites[0])
    return scenario.model_copy(update={"workload": work.model_copy(update={"model": smaller})})


def with_batch(scenario: Scenario, factor: float) -> Scenario:
    """The scenario with every accelerator's batch multiplied, and rounded to at least one sequence."""
    work = as_utilization(scenario.workload, scenario.sites[0])
    batch = max(1, round(work.batch_per_accelerator * factor))
    return scenario.model_copy(update={"workload": work.model_copy(update={"batch_per_accelerator": batch})})


def threshold(
    holds: Callable[[float], bool], low: float, high: float, tolerance: float = 0.005
) -> float | None:
    """The least value in [low, high] at which a condition holds that stays true above it.

    Bisection on a logarithmic scale, to a relative `tolerance`.

    Returns:
        `low` if it holds there already, None if it does not hold even at `high`.
    """
    if holds(low):
        return low
    if not holds(high):
        return None
    a, b = math.log(low), math.log(high)
    for _ in range(_STEPS):
        if b - a <= tolerance:
            break
        middle = (a + b) / 2
        if holds(math.exp(middle)):
            b = middle
        else:
            a = middle
    return math.exp(b)
