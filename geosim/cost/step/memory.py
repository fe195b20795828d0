"""Bytes of memory that one accelerator needs, by what they hold."""

from dataclasses import dataclass, fields

import numpy as np

from geosim.cost.step.numbers import Machine, Number, Shape, Split
from geosim.cost.step.step import NEVER_SHARED, held_parameters, stage_layers

_MASTER_AND_MOMENTS = 12.0
_MOMENTS = 8.0


@dataclass(frozen=True)
class Memory:
    """Bytes on the accelerator that needs most.

    Attributes:
        weights: as kernels read them; where parameters are sharded, of a layer and of the next (FSDP).
        gradients: of the step; where they are sharded, a layer's before it is reduced too.
        optimizer: fp32 parameters (beside 16-bit ones) and Adam's two moments.
        activations: what the backward pass needs, and the logits.
        exchange: what a sync policy keeps: see `exchange_bytes`.
    """

    weights: Number
    gradients: Number
    optimizer: Number
    activations: Number
    exchange: Number = 0.0

    @property
    def total(self) -> Number:
        """All of it."""
        return sum(getattr(self, field.name) for field in fields(self))


def memory(shape: Shape, split: Split, machine: Machine, exchange: Number = 0.0) -> Memory:
    """Bytes on an accelerator of the first stage, which holds most activations.

    Sharding follows ZeRO (Rajbhandari et al., arXiv 1910.02054, section 3).
    """
    element = machine.element_bytes
    layers, _ = stage_layers(shape, split)
    zero = np.asarray(split.zero)
    whole = held_parameters(shape, split, NEVER_SHARED)
    one = whole / layers
    produced = np.where(zero >= 2, one, 0.0)
    gradients = np.minimum(held_parameters(shape, split, 2) + produced, whole)
    states = np.where(np.asarray(element) >= 4, _MOMENTS, _MASTER_AND_MOMENTS)
    return Memory(
        weights=element * np.where(zero >= 3, np.minimum(2 * one, whole), whole),
        gradients=split.gradient_bytes * gradients,
        optimizer=states * held_parameters(shape, split, 1),
        activations=_activations(shape, split, machine),
        exchange=exchange,
    )


def layer_activations(shape: Shape, split: Split) -> Number:
    """Bytes that one layer keeps of one micro-batch at 16 bits.

    Korthikanti et al. (arXiv 2205.05198), eq. 2 for tensor parallelism, eq. 4 with sequence parallelism, and
    less 5 a s b s / t where attention is fused or recomputed, written for any width of queries, keys and
    feed-forward: their 24 s b h / t is 8 h for attention (6 h queries, keys and values, 2 h the output map's
    input) and 16 h = 2 x 2 ffn for the feed-forward part, or 3 x 2 ffn where it is gated. Without dropout two
    masks of 1 byte a hidden value fall away, and 3 of 5 bytes a score.
    """
    tokens = split.micro_batch * shape.sequence
    masks = np.where(shape.dropout, 2, 0)
    whole = (8 + masks) * shape.hidden / np.where(split.sequence_parallel, split.tensor, 1)
    divided = 4 * (shape.query_width + shape.kv_width)
    divided = divided + 2 * shape.top_k * shape.matrices * shape.ffn
    kept_scores = ~(np.asarray(split.fused_attention, bool) | np.asarray(split.selective, bool))
    scores = np.where(kept_scores, np.where(shape.dropout, 5, 2) * shape.heads * shape.sequence, 0)
    return tokens * (whole + (divided + scores) / split.tensor)


def _activations(shape: Shape, split: Split, machine: Machine) -> Number:
    """Bytes of all micro-batches in flight, of the layer being recomputed, and of the logits.

    A first stage holds as many micro-batches as there are stages (Korthikanti et al., section 4.2.3), with v
    chunks (1 + (p - 1) / (p v)) times as many, and with GPipe all of them.
    """
    tokens = split.micro_batch * shape.sequence
    layers, fewer = stage_layers(shape, split)
    p = split.pipeline
    ahead = np.where(np.asarray(split.chunks) > 1, p + (p - 1) / split.chunks, p)
    flying = np.where(split.all_held, split.micro_batches, np.minimum(split.micro_batches, ahead))
    each = layer_activations(shape, split)
    inputs = 2 * tokens * shape.hidden / np.where(split.sequence_parallel, split.tensor, 1)
    kept = np.where(split.full, inputs, each)
    recomputed = np.where(split.full, each, 0.0)
    logits = 6 * tokens * shape.vocabulary / split.tensor * np.where(np.asarray(p) > 1, 0, 1)
    last = np.where(
        np.asarray(p) > 1, 6 * tokens * shape.vocabulary / split.tensor + (layers - fewer) * kept, 0.0
    )
    first = flying * (layers - fewer) * kept
    middle = np.where(np.asarray(p) > 2, np.maximum(flying - 1, 0) * layers * kept, 0.0)
    size = np.asarray(machine.element_bytes) / 2
    return size * (np.maximum(np.maximum(first, middle) + logits, last) + recomputed)
