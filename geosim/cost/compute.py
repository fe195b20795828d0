"""How long a site computes for one step, from the model's sizes and the accelerator's peak.

FLOPs a token follow PaLM (arXiv 2204.02311, appendix B): 6 N for the matrices and 12 L d s for attention,
forward and backward together; with recomputed activations one more forward pass, so 8 N and 16 L d s.
"""

from geosim.errors import UsageError
from geosim.scenario import Accelerator, Model, Workload


def matrix_parameters(model: Model) -> int:
    """Parameters that take part in matrix products: all but position tables and an untied input embedding."""
    lookup = model.positions * model.d_model
    if not model.tied:
        lookup += model.vocabulary * model.d_model
    return model.param_table().numel - lookup


def flops_per_token(workload: Workload) -> float:
    """Floating-point operations for one token's forward and backward pass."""
    model = workload.model
    passes = 8 if workload.recompute else 6
    attention = 2 * passes * model.layers * model.d_model * workload.sequence
    return float(passes * matrix_parameters(model) + attention)


def tokens_per_accelerator(workload: Workload) -> int:
    """Tokens that one accelerator contributes to a step."""
    return workload.sequence * workload.batch_per_accelerator


def step_time(workload: Workload, accelerator: Accelerator) -> float:
    """Seconds of forward and backward of one step.

    A measured `workload.step_time_s` wins. Otherwise the site's FLOPs are spread evenly over its
    accelerators, whatever the parallelism, and each reaches `mfu` of its peak.

    Raises:
        UsageError: if the accelerator does not offer the workload's precision.
    """
    if workload.step_time_s is not None:
        return workload.step_time_s
    try:
        peak = accelerator.peak_flops(workload.precision)
    except UsageError as error:
        raise UsageError(f"{error}; or give workload.step_time") from None
    return tokens_per_accelerator(workload) * flops_per_token(workload) / (peak * workload.mfu)
