"""How long a site computes for one step.

Without a stated parallelism: the model's FLOPs over the accelerator's peak and an `mfu`. With one:
    `cost.step`.
FLOPs a token follow PaLM (arXiv 2204.02311, appendix B): 6 N for the matrices and 12 L H Q s for attention (H
heads of width Q), forward and backward together; with recomputed activations one more forward pass, so 8 N
and 16 L H Q s.
"""

from dataclasses import dataclass

from geosim.cost.step.describe import (
    expert_parameters,
    machine_of,
    sequences_per_accelerator,
    shape_of,
    split_of,
)
from geosim.cost.step.parts import compute_parts
from geosim.cost.step.step import NEVER_SHARED, held_parameters
from geosim.cost.step.step import step_time as model_step
from geosim.errors import UsageError
from geosim.scenario import Accelerator, Model, Site, Workload

DEFAULT_MFU = 0.4


@dataclass(frozen=True)
class SiteStep:
    """Seconds of one step of a site.

    Attributes:
        compute_s: forward and backward, and what inside a replica they wait for.
        data_s: data-parallel collectives beyond what compute hides; None: no parallelism is stated.
        optimizer_s: the optimizer's; None likewise.
    """

    compute_s: float
    data_s: float | None = None
    optimizer_s: float | None = None


def matrix_parameters(model: Model) -> int:
    """Parameters a token meets in products: no position tables, untied input embeddings, other experts."""
    lookup = model.positions * model.d_model
    if not model.tied:
        lookup += model.vocabulary * model.d_model
    idle = expert_parameters(model) * (model.experts - model.experts_per_token) // model.experts
    return model.param_table().numel - lookup - idle


def flops_per_token(workload: Workload) -> float:
    """Floating-point operations for one token's forward and backward pass."""
    model = workload.model
    passes = 8 if workload.recompute else 6
    attention = 2 * passes * model.layers * model.heads * model.head_width * workload.sequence
    return float(passes * matrix_parameters(model) + attention)


def tokens_per_accelerator(workload: Workload) -> float:
    """Tokens that one accelerator contributes to a step, on average over those that hold a replica."""
    return workload.sequence * sequences_per_accelerator(workload)


def step_time(workload: Workload, accelerator: Accelerator) -> float:
    """Seconds of forward and backward of one step where no parallelism is stated, or a measured value
    overrides it.

    A measured `workload.step_time_s` wins. Otherwise the site's FLOPs are spread evenly over its
    accelerators, and each reaches `mfu` of its peak.

    Raises:
        UsageError: if the accelerator does not offer the workload's precision.
    """
    if workload.step_time_s is not None:
        return workload.step_time_s
    try:
        peak = accelerator.peak_flops(workload.precision)
    except UsageError as error:
        raise UsageError(f"{error}; or give workload.step_time") from None
    mfu = DEFAULT_MFU if workload.mfu is None else workload.mfu
    return tokens_per_accelerator(workload) * flops_per_token(workload) / (peak * mfu)


def site_step(workload: Workload, site: Site, accelerator: Accelerator | None = None) -> SiteStep:
    """Seconds of one step of a site; a given step time or `mfu` replaces the compute that `parallel` makes.

    `accelerator` takes the place of the site's own. Degrees have to divide: `cost.step.check` says.

    Raises:
        UsageError: if the accelerator does not offer the workload's precision.
    """
    device = accelerator or site.accelerator
    if workload.parallel is None:
        return SiteStep(step_time(workload, device))
    given = workload.step_time_s is not None or workload.mfu is not None
    try:
        machine = machine_of(device, site, workload.precision)
    except UsageError:
        if workload.step_time_s is None:
            raise
        machine = machine_of(device, site, "fp32")
    split = split_of(workload.parallel, workload, site.ranks)
    step = model_step(shape_of(workload.model, workload.sequence), split, machine)
    data_s, optimizer_s = float(step.data_s), float(step.optimizer_s)
    whole = float(step.total_s) - data_s - optimizer_s
    return SiteStep(step_time(workload, device) if given else whole, data_s, optimizer_s)


def site_compute_parts(workload: Workload, site: Site) -> dict[str, float]:
    """What a site's `SiteStep.compute_s` is made of, as `cost.step.parts.compute_parts` says.

    Empty where no parallelism is stated, or a step time (here or of all) or `mfu` is given in its place:
    nothing is known below the sum then.

    Raises:
        UsageError: if the accelerator does not offer the workload's precision.
    """
    given = (workload.step_time_s, workload.mfu, site.step_time_s)
    if workload.parallel is None or any(value is not None for value in given):
        return {}
    machine = machine_of(site.accelerator, site, workload.precision)
    split = split_of(workload.parallel, workload, site.ranks)
    return compute_parts(shape_of(workload.model, workload.sequence), split, machine)


def held_elements(workload: Workload, site: Site) -> float:
    """Parameters an accelerator updates: as `parallel` has it; else its share, as with ZeRO 1, which sends no
    byte more than an all-reduce does. Processors update all, as torch's DDP does.

    Memory does not come into it: an accelerator with more of it is then never slower.
    """
    numel = workload.model.param_table().numel
    if workload.parallel is not None:
        split = split_of(workload.parallel, workload, site.ranks)
        return float(held_parameters(shape_of(workload.model, workload.sequence), split, 1))
    return float(numel) if site.accelerator.is_processor else numel / site.ranks


def replica_group(workload: Workload, site: Site) -> tuple[Site, float]:
    """The accelerators that hold the same part of the model, laid out as a site of their own, and that part's
    share of all parameters.

    With tensor parallelism inside a node its neighbours hold other parts: each accelerator then receives its
    own over its own network card, and none over NVLink.
    """
    if workload.parallel is None:
        return site, 1.0
    split = split_of(workload.parallel, workload, site.ranks)
    shape = shape_of(workload.model, workload.sequence)
    inside = min(split.data, max(1, site.accelerators_per_node // split.tensor))
    group = {"nodes": -(-split.data // inside), "accelerators_per_node": inside}
    share = float(held_parameters(shape, split, NEVER_SHARED)) / (
        shape.dense_parameters + shape.expert_parameters
    )
    return site.model_copy(update=group), share


def as_utilization(workload: Workload, site: Site) -> Workload:
    """The workload with the MFU that its parallelism reaches at a site in place of the parallelism.

    For what-ifs that change sizes which degrees have to divide.
    """
    if workload.parallel is None:
        return workload
    compute = site_step(workload, site).compute_s
    ideal = tokens_per_accelerator(workload) * flops_per_token(workload)
    mfu = ideal / (compute * site.accelerator.peak_flops(workload.precision))
    batch = max(1, round(sequences_per_accelerator(workload)))
    changes = {"parallel": None, "mfu": min(1.0, mfu), "batch_per_accelerator": batch}
    return workload.model_copy(update=changes)
