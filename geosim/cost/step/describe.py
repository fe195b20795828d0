"""Scenario objects as the plain numbers that the step model computes with."""

from functools import lru_cache

from geosim.cost.step.numbers import Machine, Shape, Split
from geosim.errors import UsageError
from geosim.params import DTYPE_BYTES
from geosim.scenario import Accelerator, Model, Parallel, Site, Workload


@lru_cache(maxsize=64)
def shape_of(model: Model, sequence: int) -> Shape:
    """A model at a sequence length."""
    matrices = 3 if model.gated else 2
    numel = model.param_table().numel
    routed = expert_parameters(model)
    return Shape(
        layers=model.layers,
        hidden=model.d_model,
        heads=model.heads,
        head_width=model.head_width,
        kv_width=(model.kv_heads or model.heads) * model.head_width,
        ffn=model.ffn,
        matrices=matrices,
        vocabulary=model.vocabulary,
        sequence=sequence,
        dense_parameters=float(numel - routed),
        expert_parameters=float(routed),
        experts=model.experts,
        top_k=model.experts_per_token,
    )


def expert_parameters(model: Model) -> int:
    """Parameters of all experts of all layers; 0 for a dense model."""
    if model.experts == 1:
        return 0
    matrices = 3 if model.gated else 2
    biases = (model.ffn * (matrices - 1) + model.d_model) if model.biases else 0
    return model.layers * model.experts * (matrices * model.d_model * model.ffn + biases)


def machine_of(accelerator: Accelerator, site: Site, precision: str) -> Machine:
    """An accelerator among those of a site.

    Raises:
        UsageError: if it does not offer the precision.
    """
    try:
        peak = accelerator.peak_flops(precision)
    except UsageError as error:
        raise UsageError(f"{error}; or give workload.step_time") from None
    wide = precision in ("fp32", "tf32")
    vector = peak if wide else (accelerator.bf16_flops or accelerator.fp16_flops or accelerator.fp32_flops)
    inner, outer = site.fabric.intra_node, site.fabric.inter_node or site.fabric.intra_node
    return Machine(
        peak_flops=peak,
        attention_flops=vector,
        memory_bytes_per_s=accelerator.memory_bandwidth_bytes_per_s,
        per_node=site.accelerators_per_node,
        intra_bytes_per_s=inner.bandwidth_bytes_per_s,
        intra_latency_s=inner.latency_s,
        inter_bytes_per_s=outer.bandwidth_bytes_per_s,
        inter_latency_s=outer.latency_s,
        element_bytes=4.0 if wide else 2.0,
    )


def sequences_per_accelerator(workload: Workload) -> float:
    """Sequences a step, on average; below 1 where an accelerator holds a part of a replica."""
    parallel = workload.parallel
    if parallel is None or parallel.micro_batches is None:
        return float(workload.batch_per_accelerator)
    return parallel.micro_batch * parallel.micro_batches / (parallel.tensor * parallel.pipeline)


def site_batch(workload: Workload, ranks: int) -> float:
    """Sequences that `ranks` accelerators take in a step; where degrees leave some over, those of whole
    replicas."""
    parallel = workload.parallel
    if parallel is None or parallel.micro_batches is None:
        return sequences_per_accelerator(workload) * ranks
    replicas = max(1, ranks // (parallel.tensor * parallel.pipeline))
    return float(parallel.micro_batch * parallel.micro_batches * replicas)


def split_of(parallel: Parallel, workload: Workload, ranks: int) -> Split:
    """A stated parallelism on `ranks` accelerators; `valid.first_fault` says whether it divides."""
    grid = parallel.tensor * parallel.pipeline
    data = parallel.data or ranks // grid or 1
    batch = site_batch(workload, ranks)
    return Split(
        tensor=parallel.tensor,
        pipeline=parallel.pipeline,
        data=data,
        micro_batch=parallel.micro_batch,
        micro_batches=batch / data / parallel.micro_batch,
        expert=parallel.expert,
        chunks=parallel.chunks,
        all_held=parallel.schedule == "gpipe",
        full=parallel.recompute == "full",
        selective=parallel.recompute == "selective",
        sequence_parallel=parallel.sequence_parallel,
        zero=parallel.zero,
        fused_attention=parallel.attention == "fused",
        overlap=parallel.overlap,
        gradient_bytes=float(DTYPE_BYTES[workload.gradient_dtype]),
    )
