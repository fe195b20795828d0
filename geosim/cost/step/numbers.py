"""What the step model computes with: plain numbers, or numpy arrays that broadcast against each other."""

from dataclasses import dataclass
from typing import Any

Number = Any  # float, bool or numpy array: every formula below broadcasts


@dataclass(frozen=True)
class Shape:
    """A decoder-only transformer and the tokens of one sequence.

    Attributes:
        layers, hidden, heads, head_width, kv_width: `kv_width` is the width of keys (and of values) of all
            heads.
        ffn, matrices: inner width of the feed-forward part and its matrices (2, or 3 where it is gated).
        vocabulary, sequence: tokens.
        experts, top_k: of a mixture of experts; 1 and 1 for a dense model.
        dropout: masks are kept for the backward pass.
        dense_parameters: of all tensors but experts' (with a dense model: all).
        expert_parameters: of all experts of all layers.
    """

    layers: Number
    hidden: Number
    heads: Number
    head_width: Number
    kv_width: Number
    ffn: Number
    matrices: Number
    vocabulary: Number
    sequence: Number
    dense_parameters: Number
    expert_parameters: Number = 0.0
    experts: Number = 1
    top_k: Number = 1
    dropout: Number = False

    @property
    def query_width(self) -> Number:
        """Width of the queries of all heads; hidden, unless heads have a width of their own."""
        return self.heads * self.head_width


@dataclass(frozen=True)
class Machine:
    """An accelerator and the tiers of network around it. FLOP/s, bytes, bytes/s, seconds.

    `attention_flops` is the peak at which attention runs, 16 bits where the other products run at 8;
    `inter_bytes_per_s` is an accelerator's share of its node's network cards; `element_bytes` is the size
    of an activation or of a parameter as kernels read it.
    """

    peak_flops: Number
    attention_flops: Number
    memory_bytes_per_s: Number
    per_node: Number
    intra_bytes_per_s: Number
    intra_latency_s: Number
    inter_bytes_per_s: Number
    inter_latency_s: Number
    element_bytes: Number = 2.0


@dataclass(frozen=True)
class Split:
    """How one step is divided. Degrees are counts of accelerators; tensor x pipeline x data are all of them.

    Attributes:
        tensor, pipeline, data: degrees. `expert` divides `data`: groups of `expert` data ranks share the
            experts.
        micro_batch: sequences in one pass; `micro_batches`: passes a step and pipeline.
        chunks: model chunks a stage (interleaved schedule); 1: GPipe or 1F1B.
        all_held: all micro-batches' activations are in memory at once (GPipe).
        full, selective: what is recomputed in the backward pass: whole layers, or attention's core only.
        sequence_parallel: norms and dropout are split over the tensor group.
        zero: 0 to 3 (ZeRO stage; 3 is fully sharded).
        fused_attention: FlashAttention's kind of kernel; otherwise scores are written to memory.
        overlap: data-parallel collectives run behind compute.
        gradient_bytes: a gradient element on the wire.
    """

    tensor: Number
    pipeline: Number
    data: Number
    micro_batch: Number
    micro_batches: Number
    expert: Number = 1
    chunks: Number = 1
    all_held: Number = False
    full: Number = False
    selective: Number = False
    sequence_parallel: Number = False
    zero: Number = 0
    fused_attention: Number = True
    overlap: Number = True
    gradient_bytes: Number = 4.0
