"""Seconds of one optimizer step on a site, from its shape, its split and its machines."""

from dataclasses import dataclass

import numpy as np

from geosim.cost.step.constants import Constants, fitted
from geosim.cost.step.groups import overlapped, scatter_time, send_time
from geosim.cost.step.kernels import passes
from geosim.cost.step.layer import head_time, layer_passes
from geosim.cost.step.numbers import Machine, Number, Shape, Split

# Adam in mixed precision reads a gradient (4), and reads and writes parameter, first and second moment in
# fp32 (24), and writes the 16-bit parameter (2).
_OPTIMIZER_BYTES = 30.0
NEVER_SHARED = 4  # a stage that ZeRO does not have, for `held_parameters`


@dataclass(frozen=True)
class StepTime:
    """Seconds of a step and what they are made of; the parts add up to `total_s`.

    Attributes:
        compute_s: forward, backward and recomputation of the slowest stage.
        tensor_s: collectives of tensor and expert groups, and messages between stages.
        bubble_s: what the pipeline idles while it fills and drains.
        data_s: data-parallel collectives beyond what compute hides.
        optimizer_s: the optimizer's passes over memory.
    """

    total_s: Number
    compute_s: Number
    tensor_s: Number
    bubble_s: Number
    data_s: Number
    optimizer_s: Number


def stage_layers(shape: Shape, split: Split) -> tuple[Number, Number]:
    """Layers of the largest stage, and how many fewer the first and the last one have.

    Stages are equal, or, where embedding and head count as layers, the ends have one layer less (Llama team,
    arXiv 2407.21783, section 3.3.2).
    """
    largest = np.ceil(shape.layers / split.pipeline)
    fewer = np.where(split.pipeline > 1, (largest * split.pipeline - shape.layers) / 2, 0.0)
    return largest, fewer


def step_time(shape: Shape, split: Split, machine: Machine, known: Constants | None = None) -> StepTime:
    """Seconds of one step.

    ZeRO 0 reduces gradients at the step's end; 1 scatters them and gathers parameters; 2 scatters them for
    every micro-batch; 3 gathers parameters for every forward and backward pass too (Rajbhandari et al., arXiv
    1910.02054). The pipeline takes (m - 1) slots of its slowest stage and one of each stage (GPipe, arXiv
    1811.06965; 1F1B takes as long, arXiv 2104.04473, section 2.2); with v chunks a stage the fill and
    drain shrink to 1 / v.
    """
    known = known or fitted()
    one = layer_passes(shape, split, machine, known)
    head = head_time(shape, split, machine, known)
    layers, fewer = stage_layers(shape, split)
    forward, backward = one.forward_s * layers, one.backward_s * layers
    wait = (one.forward_wait_s + one.backward_wait_s) * layers + _between_stages(shape, split, machine, known)
    gather, reduce = _data_collectives(shape, split, machine, known)
    zero = np.asarray(split.zero)

    def beyond(compute_s: Number, collective_s: Number) -> Number:
        behind = overlapped(compute_s, collective_s, known) - compute_s
        return np.where(split.overlap, behind, collective_s)

    shown = beyond(forward, np.where(zero >= 3, gather, 0.0))
    shown = shown + beyond(backward, np.where(zero >= 3, gather, 0.0) + np.where(zero >= 2, reduce, 0.0))
    ends = np.select([zero == 0, zero == 1, zero == 2], [2 * reduce, reduce + gather, gather], 0.0)
    at_end = beyond(backward, ends)

    slot = forward + backward + wait + shown
    spared = slot / layers * fewer
    slowest = np.maximum(slot, slot - spared + head)
    # Where that is the stage with the head, it has fewer layers, which compute and wait for less.
    with_head = slowest > slot
    own = np.where(with_head, (layers - fewer) / layers, 1.0)
    compute = own * (forward + backward) + np.where(with_head, head, 0.0)
    every = slot * split.pipeline - 2 * spared + head
    bubble = (every - slowest) / split.chunks
    update = passes(_OPTIMIZER_BYTES * held_parameters(shape, split, 1), machine, known)
    m = split.micro_batches
    return StepTime(
        total_s=m * slowest + bubble + at_end + update,
        compute_s=m * compute,
        tensor_s=m * own * wait,
        bubble_s=bubble,
        data_s=at_end + m * own * shown,
        optimizer_s=update,
    )


def held_parameters(shape: Shape, split: Split, stage: int) -> Number:
    """Parameters of which an accelerator holds some value; from ZeRO's `stage` on, data ranks share it."""
    grid = split.tensor * split.pipeline
    shared = np.asarray(split.zero) >= stage
    dense = shape.dense_parameters / grid / np.where(shared, split.data, 1)
    return dense + shape.expert_parameters / grid / np.where(shared, split.data, split.expert)


def _between_stages(shape: Shape, split: Split, machine: Machine, known: Constants) -> Number:
    """Seconds of a micro-batch's activations forward and gradients back; the tensor group sends its parts."""
    size = machine.element_bytes * split.micro_batch * shape.sequence * shape.hidden / split.tensor
    once = send_time(size, split.tensor * split.data, machine, known)
    return np.where(np.asarray(split.pipeline) > 1, 2 * split.chunks * once, 0.0)


def _data_collectives(
    shape: Shape, split: Split, machine: Machine, known: Constants
) -> tuple[Number, Number]:
    """Seconds to gather a stage's parameters over the data group, and to reduce and scatter its gradients."""
    layers, _ = stage_layers(shape, split)
    grid = split.tensor * split.pipeline

    def both(element_bytes: Number) -> Number:
        dense = scatter_time(
            element_bytes * shape.dense_parameters / grid, split.data, split.tensor, machine, known, layers
        )
        routed = scatter_time(
            element_bytes * shape.expert_parameters / (grid * split.expert),
            split.data / split.expert,
            split.tensor * split.expert,
            machine,
            known,
            layers,
        )
        return dense + np.where(np.asarray(shape.expert_parameters) > 0, routed, 0.0)

    return both(machine.element_bytes), both(split.gradient_bytes)
