"""Bytes of memory that one accelerator needs, by what they hold."""

from dataclasses import dataclass, fields, replace

import numpy as np

from geosim.cost.step.numbers import Machine, Number, Shape, Split
from geosim.cost.step.step import stage_layers

_MASTER_AND_MOMENTS = 12.0
_MOMENTS = 8.0
# A micro-batch's logits at 16 bits, and their gradient in fp32, by element.
_LOGIT_BYTES = 6.0


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


@dataclass(frozen=True)
class _Stage:
    """What a pipeline stage has: layers, micro-batches in flight, and whether an embedding or the head."""

    layers: Number
    flying: Number
    has_end: Number
    has_head: Number


def memory(shape: Shape, split: Split, machine: Machine, exchange: Number = 0.0) -> Memory:
    """Bytes on an accelerator of the stage that needs most.

    That is the first one, which has most activations in flight, the second, which may have a layer more, or
    the last, which has the logits. Sharding follows ZeRO (Rajbhandari et al., arXiv 1910.02054, section 3).
    """
    needs = [_of_stage(shape, split, machine, stage) for stage in _stages(shape, split)]
    totals = np.stack(np.broadcast_arrays(*(need.total for need in needs)))
    most = totals.argmax(axis=0)

    def of_most(name: str) -> Number:
        return np.choose(most, [getattr(need, name) for need in needs])

    return Memory(
        of_most("weights"), of_most("gradients"), of_most("optimizer"), of_most("activations"), exchange
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


def _stages(shape: Shape, split: Split) -> tuple[_Stage, _Stage, _Stage]:
    """The first stage, the second and the last one; without a pipeline all three are the whole model.

    Stage r of p holds p - r micro-batches (Korthikanti et al., section 4.2.3), with GPipe all of them, and
    with v chunks (2 (p - r - 1) + (v - 1) p + 1) / v: what its warm-up runs ahead by, and one more
    (Narayanan et al., arXiv 2104.04473, section 2.2, and Megatron-LM's schedule).
    """
    most, fewer = stage_layers(shape, split)
    p, v = np.asarray(split.pipeline), np.asarray(split.chunks)

    def flying(rank: Number) -> Number:
        chunked = (2 * (p - rank - 1) + (v - 1) * p + 1) / v
        ahead = np.where(v > 1, chunked, p - rank)
        return np.where(split.all_held, split.micro_batches, np.minimum(split.micro_batches, ahead))

    piped = p > 1
    inner = p > 2
    return (
        _Stage(most - fewer, flying(0), has_end=True, has_head=~piped),
        _Stage(np.where(inner, most, most - fewer), flying(np.where(inner, 1, 0)), ~inner, ~piped),
        _Stage(most - fewer, flying(p - 1), has_end=True, has_head=True),
    )


def _of_stage(shape: Shape, split: Split, machine: Machine, stage: _Stage) -> Memory:
    """Bytes on one accelerator of a stage, without what a policy keeps."""
    element = machine.element_bytes
    zero = np.asarray(split.zero)
    whole = _parameters(shape, split, stage, 1, split.expert)
    shared = _parameters(shape, split, stage, split.data, split.data)
    one = whole / np.maximum(stage.layers, 1)
    produced = np.where(zero >= 2, one, 0.0)
    gradients = np.minimum(np.where(zero >= 2, shared, whole) + produced, whole)
    states = np.where(np.asarray(element) >= 4, _MOMENTS, _MASTER_AND_MOMENTS)
    return Memory(
        weights=element * np.where(zero >= 3, np.minimum(2 * one, whole), whole),
        gradients=split.gradient_bytes * gradients,
        optimizer=states * np.where(zero >= 1, shared, whole),
        activations=_activations(shape, split, machine, stage),
    )


def _parameters(shape: Shape, split: Split, stage: _Stage, dense_by: Number, experts_by: Number) -> Number:
    """Parameters of a stage on an accelerator, where so many ranks share them beside the tensor group.

    Embedding and head lie with the ends (tied ones with both), and the rest is divided as the layers are.
    """
    attention = 2 * shape.hidden * (shape.query_width + shape.kv_width)
    inner = np.where(np.asarray(shape.experts) > 1, 0, shape.matrices * shape.hidden * shape.ffn)
    outside = np.maximum(shape.dense_parameters - shape.layers * (attention + inner), 0.0)
    ends = np.minimum(outside, shape.vocabulary * shape.hidden)
    share = stage.layers / shape.layers
    piped = (shape.dense_parameters - outside) * share + np.where(stage.has_end, ends, 0.0)
    dense = np.where(np.asarray(split.pipeline) > 1, piped, shape.dense_parameters)
    return (dense / dense_by + shape.expert_parameters * share / experts_by) / split.tensor


def _activations(shape: Shape, split: Split, machine: Machine, stage: _Stage) -> Number:
    """Bytes of a stage's micro-batches in flight, of what is recomputed of a layer, and of the logits."""
    tokens = split.micro_batch * shape.sequence
    whole = layer_activations(shape, replace(split, selective=False))
    inputs = 2 * tokens * shape.hidden / np.where(split.sequence_parallel, split.tensor, 1)
    kept = np.where(split.full, inputs, layer_activations(shape, split))
    # While a layer is recomputed it has all again, of which what was kept is a part.
    recomputed = (whole - kept) * np.minimum(stage.layers, 1)
    logits = np.where(stage.has_head, _LOGIT_BYTES * tokens * shape.vocabulary / split.tensor, 0.0)
    size = np.asarray(machine.element_bytes) / 2
    return size * (stage.flying * stage.layers * kept + recomputed + logits)
