"""A step layer by layer: what of an exchange hides behind the layers that compute meanwhile.

A layer computes forward, then backward by activation, then backward by weight; what it sends is then ready.
Reduces of layers go over one first-in first-out link. A layer's forward pass waits for the result that is due
in that step. The walk over sends and applies is `geosim.policy.schedule`, so plain data parallelism (an
exchange every step), local steps and streaming fragments are one graph. Douillard et al., arXiv 2501.18512
(supplement), describe such a graph of forward, backward-by-activation, backward-by-weight and reduce nodes.
"""

from dataclasses import dataclass

import numpy as np

from geosim.errors import UsageError
from geosim.policy import Layout
from geosim.policy.codec import plain_bytes, section_bytes
from geosim.policy.schedule import make_plan, next_cycle, start

_WARM_CYCLES, _CYCLES = 3, 2
THIRDS = (1 / 3, 1 / 3, 1 / 3)


@dataclass(frozen=True)
class LayerGraph:
    """Layers in forward order.

    Attributes:
        forward_s, by_activation_s, by_weight_s: seconds of one step, [layers].
        reduce_bytes: payload that a layer sends when a fragment is exchanged, [fragments, layers].

    Tensors outside the layers count to the first, which is needed first and ready last.
    """

    forward_s: np.ndarray
    by_activation_s: np.ndarray
    by_weight_s: np.ndarray
    reduce_bytes: np.ndarray

    @property
    def step_s(self) -> float:
        """Compute of one step."""
        return float(self.forward_s.sum() + self.by_activation_s.sum() + self.by_weight_s.sum())


def make_graph(layout: Layout, step_s: float, shares: tuple[float, float, float] = THIRDS) -> LayerGraph:
    """The graph of a model under a policy; a layer computes in proportion to its parameters.

    Args:
        layout: fragments and codec.
        step_s: compute of one step, seconds.
        shares: of forward, backward by activation and backward by weight.

    Raises:
        UsageError: shares that do not make 1, or a codec whose size is not a sum over tensors.
    """
    if min(shares) < 0 or abs(sum(shares) - 1) > 1e-9:
        raise UsageError(f"shares: {shares} must be 0 or more and add up to 1")
    codec = layout.policy.codec
    if getattr(codec.select, "scope", None) == "fragment":
        raise UsageError("codec.select.scope: 'fragment' has no size by layer: use 'piece' or a block size")
    count = 1 + max((t.layer for t in layout.tensors if t.layer is not None), default=0)
    numel = np.zeros(count)
    size = np.zeros((len(layout.fragments), count))
    for fragment in layout.fragments:
        for i in fragment.tensors:
            tensor = layout.tensors[i]
            layer = tensor.layer or 0
            numel[layer] += tensor.numel
            small = codec.is_small(tensor.numel)
            size[fragment.index, layer] += (
                plain_bytes(tensor.numel, codec.small_dtype) if small else section_bytes(tensor.numel, codec)
            )
    time = step_s * numel / numel.sum()
    forward, activation, weight = (share * time for share in shares)
    return LayerGraph(forward, activation, weight, size)


def cycle_time(
    graph: LayerGraph, layout: Layout, bandwidth_bytes_per_s: np.ndarray, latency_s: float = 0.0
) -> np.ndarray:
    """Seconds of a steady cycle of `policy.interval` steps.

    Args:
        graph: from `make_graph` of the same layout.
        layout: decides which fragment leaves and is due when.
        bandwidth_bytes_per_s: of the link, any number of them, [n].
        latency_s: from the last byte's leaving until the result may be used.

    Raises:
        UsageError: a bandwidth that is not above 0, or a latency below 0.
    """
    rate = np.atleast_1d(np.asarray(bandwidth_bytes_per_s, float))
    if not (rate > 0).all():
        raise UsageError(f"bandwidth_bytes_per_s: {rate.min():g} must be above 0")
    if latency_s < 0:
        raise UsageError(f"latency_s: {latency_s:g} must be 0 or more")
    walk = _Walk(graph, rate, latency_s)
    plan, interval = make_plan(layout), layout.policy.interval
    state = start(plan)
    begins = []
    for _ in range(_WARM_CYCLES + _CYCLES):
        begins.append(walk.now.copy())
        base = state.step
        state, events = next_cycle(state, plan, interval)
        for step in range(base + 1, base + interval + 1):
            here = [e for e in events if e.step == step]
            walk.step([e.fragment for e in here if e.kind == "send"])
            for event in here:
                if event.kind == "apply":
                    walk.due(event.fragment)
    return np.asarray((walk.now - begins[_WARM_CYCLES]) / _CYCLES)


class _Walk:
    """Where a run stands: the clock, the link, results on the way and those that the next step needs."""

    def __init__(self, graph: LayerGraph, rate: np.ndarray, latency_s: float) -> None:
        self.graph, self.rate, self.latency_s = graph, rate, latency_s
        self.backward_s = graph.by_activation_s + graph.by_weight_s
        self.members = [np.flatnonzero(sizes).tolist() for sizes in graph.reduce_bytes]
        self.now = np.zeros_like(rate)
        self.free = np.zeros_like(rate)
        self.sent: dict[tuple[int, int], list[np.ndarray]] = {}
        self.needed: dict[int, np.ndarray] = {}

    def due(self, fragment: int) -> None:
        """A fragment's oldest result on the way is due: each layer's before its next forward pass."""
        for layer in self.members[fragment]:
            arrived = self.sent[fragment, layer].pop(0)
            self.needed[layer] = np.maximum(self.needed.get(layer, arrived), arrived)

    def step(self, leaving: list[int]) -> None:
        """One step, after which (layer by layer, as it computes) fragments leave."""
        graph, at = self.graph, 0
        for layer in sorted(self.needed):
            self.now = np.maximum(self.now + graph.forward_s[at:layer].sum(), self.needed[layer])
            at = layer
        self.needed.clear()
        self.now = self.now + graph.forward_s[at:].sum()
        at = len(self.backward_s)
        for layer, fragment in sorted(((m, f) for f in leaving for m in self.members[f]), reverse=True):
            self.now = self.now + self.backward_s[layer:at].sum()
            at = layer
            self.free = np.maximum(self.free, self.now) + graph.reduce_bytes[fragment, layer] / self.rate
            self.sent.setdefault((fragment, layer), []).append(self.free + self.latency_s)
        self.now = self.now + self.backward_s[:at].sum()


def utilization(
    graph: LayerGraph, layout: Layout, bandwidth_bytes_per_s: np.ndarray, latency_s: float = 0.0
) -> np.ndarray:
    """Compute time over total time, [n]; arguments as of `cycle_time`."""
    compute = graph.step_s * layout.policy.interval
    return compute / cycle_time(graph, layout, bandwidth_bytes_per_s, latency_s)
