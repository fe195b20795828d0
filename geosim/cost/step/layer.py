"""One micro-batch through one layer, and through the head, on one accelerator."""

from dataclasses import dataclass

import numpy as np

from geosim.cost.step.constants import Constants
from geosim.cost.step.groups import scatter_time
from geosim.cost.step.kernels import fused_attention, matmul, passes
from geosim.cost.step.numbers import Machine, Number, Shape, Split

# Bytes that must move for each score where scores are written to memory, beyond what the two products read
# and write. Forward: softmax reads and writes 2 each, dropout reads 2 and writes 2 and a mask of 1. Backward:
# dropout reads 3 and writes 2, softmax reads 4 and writes 2.
_SCORE_FORWARD, _SCORE_BACKWARD = 9.0, 11.0
# Elements read and written a token, forward: two norms 4 h and two residuals with bias and dropout 7 h, which
# sequence parallelism divides; splitting and transposing queries, keys and values 6 times the queries' width;
# the activation, which reads what each matrix up writes and writes one result. Backward reads the incoming
# gradient too: twice that.
_WHOLE, _HEADS = 11.0, 6.0
# FlashAttention-2 (arXiv 2307.08691, section 4.1) counts 2.5 forward passes for the backward one, which
# rebuilds the scores; model FLOPs count 2, and the fitted share absorbs the rest.
_ATTENTION_BACKWARD = 2.0
# Logits at 16 bits become fp32 (6 bytes), the loss reads them twice (8), and their gradient is written in
# fp32 and read, scaled and cast (10).
_LOGIT_BYTES = 24.0


@dataclass(frozen=True)
class Passes:
    """Seconds of the forward and backward pass of a micro-batch: compute, and collectives that it waits for.

    The backward pass includes what is recomputed.
    """

    forward_s: Number
    backward_s: Number
    forward_wait_s: Number
    backward_wait_s: Number


@dataclass(frozen=True)
class Kernels:
    """Seconds of a layer's kernels for a micro-batch, before what launching them adds.

    Attributes:
        products_s: matrix products of one forward pass; the backward pass has twice as much.
        attention_s, attention_backward_s: scores, softmax and weighted values.
        memory_s: what memory bounds in one forward pass; the backward pass has twice as much.
        again_s: what the backward pass recomputes.
    """

    products_s: Number
    attention_s: Number
    attention_backward_s: Number
    memory_s: Number
    again_s: Number

    @property
    def forward_s(self) -> Number:
        """One forward pass."""
        return self.products_s + self.attention_s + self.memory_s

    @property
    def backward_s(self) -> Number:
        """One backward pass, with what it recomputes."""
        return 2 * self.products_s + self.attention_backward_s + 2 * self.memory_s + self.again_s


def layer_kernels(shape: Shape, split: Split, machine: Machine, known: Constants) -> Kernels:
    """What one micro-batch makes one layer compute."""
    tokens = split.micro_batch * shape.sequence
    products = _products(shape, split, machine, known)
    core, core_backward = _attention(shape, split, machine, known)
    t, hidden = split.tensor, shape.hidden
    elements = _WHOLE * hidden / np.where(split.sequence_parallel, t, 1) + _HEADS * shape.query_width / t
    elements = elements + shape.top_k * shape.matrices * shape.ffn / t
    memory = passes(machine.element_bytes * tokens * elements, machine, known)
    again = np.where(split.full, products + core + memory, np.where(split.selective, core, 0.0))
    return Kernels(products, core, core_backward, memory, again)


def layer_passes(shape: Shape, split: Split, machine: Machine, known: Constants) -> Passes:
    """One micro-batch through one layer."""
    tokens = split.micro_batch * shape.sequence
    kernels = layer_kernels(shape, split, machine, known)
    t, hidden = split.tensor, shape.hidden
    # Each of attention and feed-forward ends in an all-reduce: a reduce-scatter and an all-gather.
    wait = 4 * scatter_time(machine.element_bytes * tokens * hidden, t, 1, machine, known)
    routed = machine.element_bytes * tokens * shape.top_k * hidden / np.where(split.sequence_parallel, t, 1)
    wait = wait + np.where(split.expert > 1, 2 * scatter_time(routed, split.expert, t, machine, known), 0.0)
    launches = 2.0 + np.where(split.full, 1.0, 0.0)
    return Passes(
        _launched(kernels.forward_s, known.launch_s, known),
        _launched(kernels.backward_s, launches * known.launch_s, known),
        wait,
        np.where(split.full, 2.0, 1.0) * wait,
    )


def head_time(shape: Shape, split: Split, machine: Machine, known: Constants) -> Number:
    """Seconds of a micro-batch's logits and loss, both passes."""
    products, memory = head_kernels(shape, split, machine, known)
    return products + memory


def head_kernels(shape: Shape, split: Split, machine: Machine, known: Constants) -> tuple[Number, Number]:
    """Its matrix products, and what memory bounds; the tensor group shares the vocabulary."""
    tokens = split.micro_batch * shape.sequence
    words = shape.vocabulary / split.tensor
    products = 3 * matmul(tokens, shape.hidden, words, machine.peak_flops, machine, known)
    return products, passes(_LOGIT_BYTES * tokens * words, machine, known)


def _products(shape: Shape, split: Split, machine: Machine, known: Constants) -> Number:
    """Forward matrix products; with experts, tokens spread evenly over them."""
    tokens = split.micro_batch * shape.sequence
    t, hidden = split.tensor, shape.hidden
    local = shape.experts / split.expert
    rows = tokens * shape.top_k / local

    def product(count: Number, inner: Number, columns: Number) -> Number:
        return matmul(count, inner, columns, machine.peak_flops, machine, known)

    attention = product(tokens, hidden, (shape.query_width + 2 * shape.kv_width) / t) + product(
        tokens, shape.query_width / t, hidden
    )
    up = (shape.matrices - 1) * product(rows, hidden, shape.ffn / t)
    return attention + local * (up + product(rows, shape.ffn / t, hidden))


def _attention(shape: Shape, split: Split, machine: Machine, known: Constants) -> tuple[Number, Number]:
    """Forward and backward seconds of scores, softmax and weighted values, without recomputation."""
    sequence, t = shape.sequence, split.tensor
    count = split.micro_batch * shape.heads / t
    width = shape.head_width
    scores = count * sequence * sequence
    fused = fused_attention(4.0 * scores * width, machine, known)
    rate = machine.attention_flops
    plain = count * (
        matmul(sequence, width, sequence, rate, machine, known)
        + matmul(sequence, sequence, width, rate, machine, known)
    )
    forward = plain + passes(_SCORE_FORWARD * scores, machine, known)
    backward = 2 * plain + passes(_SCORE_BACKWARD * scores, machine, known)
    return (
        np.where(split.fused_attention, fused, forward),
        np.where(split.fused_attention, _ATTENTION_BACKWARD * fused, backward),
    )


def _launched(compute_s: Number, launch_s: Number, known: Constants) -> Number:
    """The longer of computing and launching, rounded off: some kernels wait for one, some for the other."""
    p = known.smoothness
    largest = np.maximum(compute_s, launch_s)
    return largest * ((compute_s / largest) ** p + (launch_s / largest) ** p) ** (1 / p)
