"""What the compute of a step is made of: kernels, waits inside a replica, and the pipeline's bubble."""

import math

from geosim.cost.step.constants import Constants, fitted
from geosim.cost.step.layer import head_kernels, layer_kernels, layer_passes
from geosim.cost.step.numbers import Machine, Shape, Split
from geosim.cost.step.step import stage_layers, step_time

# In the order in which they are shown.
NAMES = ("matmul", "attention", "memory", "recompute", "launch", "messages", "bubble")


def compute_parts(
    shape: Shape, split: Split, machine: Machine, known: Constants | None = None
) -> dict[str, float]:
    """Seconds of a step's compute by what they go to; one split, so plain numbers.

    They add up to `StepTime.compute_s + tensor_s + bubble_s`: all but the data-parallel collectives and the
    optimizer, which are parts of a step of their own. Of the slowest stage, whose time counts, the head's
    kernels count where it has the head; its layers' time is shared out as one layer's is.

    Returns:
        matmul: matrix products, of layers and head; attention: scores, softmax and weighted values;
        memory: norms, activations, residuals and logits, which memory bounds; recompute: activations once
        more in the backward pass; launch: what launching kernels adds; messages: collectives of tensor and
        expert groups and messages between stages; bubble: the pipeline's fill and drain.
    """
    known = known or fitted()
    step = step_time(shape, split, machine, known)
    kernels = layer_kernels(shape, split, machine, known)
    one = layer_passes(shape, split, machine, known)
    layers, _ = stage_layers(shape, split)
    compute, passes = float(step.compute_s), float(one.forward_s + one.backward_s)
    # A stage of layers alone takes exactly their time; where an end counts, it has the head.
    alone = math.isclose(compute, float(split.micro_batches * layers) * passes, rel_tol=1e-9)
    products, memory = (
        0.0 if alone else float(split.micro_batches * seconds)
        for seconds in head_kernels(shape, split, machine, known)
    )
    share = (
        max(0.0, compute - products - memory) / passes
    )  # below 0 by rounding, where that stage is the head
    bare = float(kernels.forward_s + kernels.backward_s)
    return {
        "matmul": products + share * float(3 * kernels.products_s),
        "attention": share * float(kernels.attention_s + kernels.attention_backward_s),
        "memory": memory + share * float(3 * kernels.memory_s),
        "recompute": share * float(kernels.again_s),
        "launch": share * (passes - bare),
        "messages": float(step.tensor_s),
        "bubble": float(step.bubble_s),
    }
