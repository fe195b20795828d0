"""How a site divides a step over its accelerators."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from geosim.errors import UsageError
from geosim.spec import Spec

Degree = Annotated[int, Field(ge=1, le=1_000_000)]


class Parallel(Spec):
    """Degrees and what goes with them; tensor x pipeline x data is a site's accelerators.

    Ranks are placed as Megatron-LM does it: a tensor group on neighbours, then data, then pipeline.

    Attributes:
        tensor, pipeline: degrees.
        data: degree; None: what tensor and pipeline leave of a site.
        expert: data ranks that share the experts of a mixture.
        micro_batch: sequences in one pass.
        micro_batches: passes a step; None: as many as `batch_per_accelerator` makes. With many accelerators a
            replica a step has less than one sequence for each: then say it here, and it stands.
        schedule: `gpipe` holds every micro-batch's activations, `1f1b` those of as many as there are stages,
            `interleaved` (Narayanan et al., arXiv 2104.04473) gives each stage `chunks` parts of the model.
        chunks: for `interleaved`, 2 or more.
        recompute: in the backward pass: nothing, attention's core (`selective`, Korthikanti et al.,
            arXiv 2205.05198), or whole layers (`full`).
        sequence_parallel: norms and dropout are split over the tensor group too.
        zero: what data ranks share: 1 optimizer states, 2 gradients too, 3 parameters too (FSDP).
        attention: `fused` (FlashAttention), or `standard`: scores go to memory.
        overlap: data-parallel collectives run behind compute.
    """

    tensor: Degree = 1
    pipeline: Degree = 1
    data: Degree | None = None
    expert: Degree = 1
    micro_batch: Degree = 1
    micro_batches: Degree | None = None
    schedule: Literal["gpipe", "1f1b", "interleaved"] = "1f1b"
    chunks: Degree = 1
    recompute: Literal["none", "selective", "full"] = "none"
    sequence_parallel: bool = False
    zero: Annotated[int, Field(ge=0, le=3)] = 0
    attention: Literal["fused", "standard"] = "fused"
    overlap: bool = True

    @model_validator(mode="after")
    def _consistent(self) -> "Parallel":
        if self.schedule == "interleaved" and (self.chunks < 2 or self.pipeline < 2):
            raise UsageError(
                "chunks: schedule 'interleaved' needs 2 or more, and pipeline 2 or more"
                f" (got {self.chunks} and {self.pipeline})"
            )
        if self.schedule != "interleaved" and self.chunks != 1:
            raise UsageError(f"chunks: {self.chunks} needs schedule 'interleaved', not '{self.schedule}'")
        if self.sequence_parallel and self.tensor == 1:
            raise UsageError("sequence_parallel: splits over the tensor group: set tensor to 2 or more")
        if self.zero >= 2 and self.pipeline > 1:
            raise UsageError(
                f"zero: stage {self.zero} gathers or reduces for every micro-batch, which a pipeline of"
                f" {self.pipeline} multiplies: use zero 1 with a pipeline, or pipeline 1"
            )
        return self
