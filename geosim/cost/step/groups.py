"""Collectives over a group of ranks that lie in one node or in several. Bytes in, seconds out."""

import numpy as np

from geosim.cost.step.constants import Constants
from geosim.cost.step.numbers import Machine, Number


def _inside(ranks: Number, stride: Number, machine: Machine) -> Number:
    """Ranks of a group in one node, where neighbours in the group are `stride` ranks apart."""
    return np.clip(machine.per_node // stride, 1, ranks)


def scatter_time(
    size_bytes: Number,
    ranks: Number,
    stride: Number,
    machine: Machine,
    known: Constants,
    messages: Number = 1.0,
) -> Number:
    """Seconds of a reduce-scatter, an all-gather or an all-to-all of `size_bytes`, sent as `messages` parts.

    Inside nodes and between them the bytes flow at the same time (NCCL's rings cross a node at the
    bandwidth of all its network cards), so the slower tier counts; each phase of the ring costs its tier's
    latency.
    """
    inside = _inside(ranks, stride, machine)
    nodes = np.ceil(ranks / inside)
    within = size_bytes * (inside - 1) / inside / machine.intra_bytes_per_s
    across = size_bytes / inside * (nodes - 1) / nodes / machine.inter_bytes_per_s
    latency = (inside - 1) * (machine.intra_latency_s + known.hop_s)
    latency = latency + (nodes - 1) * (machine.inter_latency_s + known.hop_s)
    return np.maximum(within, across) / known.network_share + messages * latency


def send_time(size_bytes: Number, stride: Number, machine: Machine, known: Constants) -> Number:
    """Seconds of one message to the rank `stride` ranks away."""
    far: Number = stride >= machine.per_node
    rate: Number = np.where(far, machine.inter_bytes_per_s, machine.intra_bytes_per_s)
    latency: Number = np.where(far, machine.inter_latency_s, machine.intra_latency_s)
    return size_bytes / (rate * known.network_share) + latency + known.hop_s


def overlapped(compute_s: Number, collective_s: Number, known: Constants) -> Number:
    """Seconds of compute and a collective at once: the longer one, and a share of the shorter one.

    They compete for multiprocessors and memory, and the first and last collective have nothing to hide
    behind.
    """
    both = np.minimum(compute_s, collective_s)
    return np.maximum(compute_s, collective_s) + known.interference * both
