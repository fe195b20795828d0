"""What is trained: a model, its batch, and how fast a site computes a step of it."""

from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from geosim.documents import nearest, read_built_in
from geosim.errors import UsageError
from geosim.params import ParamSpec, ParamTable
from geosim.scenario.parallel import Parallel
from geosim.scenario.ranges import StepTime
from geosim.spec import Spec, from_dict

Count = Annotated[int, Field(ge=1, le=10_000_000)]


class Model(Spec):
    """A decoder-only transformer by its sizes.

    Attributes:
        layers, d_model, heads: as usual; `kv_heads` below `heads` is grouped-query attention.
        head_dim: width of a head; None: d_model / heads.
        ffn: inner width of the feed-forward part; `gated`: three matrices (SwiGLU) and not two.
        vocabulary: tokens; `tied`: input and output embeddings are one matrix.
        positions: learned positions; 0: none (rotary).
        biases: on the linear maps, and on the norms (LayerNorm with shift; without: RMSNorm).
        experts: feed-forward parts in every layer; each token goes through `experts_per_token` of them.
    """

    name: str
    layers: Annotated[int, Field(ge=1, le=10_000)]
    d_model: Count
    heads: Count
    kv_heads: Count | None = None
    head_dim: Count | None = None
    ffn: Count
    gated: bool = True
    vocabulary: Count
    tied: bool = False
    positions: Annotated[int, Field(ge=0, le=10_000_000)] = 0
    biases: bool = False
    experts: Annotated[int, Field(ge=1, le=100_000)] = 1
    experts_per_token: Annotated[int, Field(ge=1, le=100_000)] = 1
    source: str = ""

    @model_validator(mode="after")
    def _heads(self) -> "Model":
        if self.head_dim is None and self.d_model % self.heads:
            raise UsageError(
                f"heads: {self.heads} does not divide d_model ({self.d_model}): give head_dim too, if heads "
                f"have a width of their own"
            )
        if self.kv_heads is not None and self.heads % self.kv_heads:
            raise UsageError(f"kv_heads: {self.kv_heads} does not divide heads ({self.heads})")
        if self.experts_per_token > self.experts:
            raise UsageError(
                f"experts_per_token: {self.experts_per_token} is more than experts ({self.experts})"
            )
        return self

    @property
    def head_width(self) -> int:
        """Width of a head."""
        return self.head_dim or self.d_model // self.heads

    def param_table(self, dtype: str = "fp32") -> ParamTable:
        """All trainable tensors, tied weights once."""
        d, out = self.d_model, []
        queries, kv = self.heads * self.head_width, (self.kv_heads or self.heads) * self.head_width

        def add(name: str, *shape: int, per_layer: bool = True, bias: bool = True) -> None:
            layer, repeat = (0, self.layers) if per_layer else (None, 1)
            prefix = "blocks.{layer}." if per_layer else ""
            out.append(ParamSpec(f"{prefix}{name}.weight", shape, dtype, layer, repeat))
            if self.biases and bias:
                out.append(ParamSpec(f"{prefix}{name}.bias", shape[:-1] or shape, dtype, layer, repeat))

        add("embedding", self.vocabulary, d, per_layer=False, bias=False)
        if self.positions:
            add("positions", self.positions, d, per_layer=False, bias=False)
        add("norm1", d)
        add("attention.qkv", queries + 2 * kv, d)
        add("attention.out", d, queries)
        add("norm2", d)
        each = (self.experts,) if self.experts > 1 else ()
        if each:
            add("router", self.experts, d, bias=False)
        add("mlp.up", *each, self.ffn, d)
        if self.gated:
            add("mlp.gate", *each, self.ffn, d)
        add("mlp.down", *each, d, self.ffn)
        add("norm", d, per_layer=False)
        if not self.tied:
            add("head", self.vocabulary, d, per_layer=False, bias=False)
        return ParamTable(tuple(out))


@cache
def models() -> dict[str, Model]:
    """The built-in models by name."""
    data = read_built_in(Path(__file__).parent / "catalog" / "models.yaml")
    return {name: from_dict(Model, {"name": name, **row}, f"model {name}") for name, row in data.items()}


def resolve_model(value: Any) -> Any:
    """Validator: a catalog name, or a model written out."""
    if not isinstance(value, str):
        return value
    if value not in models():
        near = nearest(value, models())
        meant = f"did you mean '{near}'? " if near else ""
        raise UsageError(
            f"unknown model '{value}': {meant}use one of {', '.join(models())}, or write one out"
        )
    return models()[value]


class Workload(Spec):
    """One training step of a site.

    Attributes:
        model: a catalog name or a model written out.
        sequence: tokens in a sequence.
        batch_per_accelerator: sequences an accelerator and step.
        batch: "equal", every accelerator takes as many; "by-speed", faster sites take more of them, so that
            none waits for another (`scenario.batch`).
        precision: of the matrix products.
        gradient_dtype: of the gradients reduced inside a site and by plain DDP.
        mfu: achieved over peak FLOP/s; None: as `parallel` makes it, and 0.4 where that is not given either.
        step_time_s: measured compute time of a step (forward and backward), overriding `mfu` and `parallel`.
        step_jitter: coefficient of variation of a site's step time.
        recompute: activations are recomputed in the backward pass: 8 FLOPs a parameter and token, not 6.
        parallel: how a site divides a step; with it, step time and memory follow from the shapes.
    """

    model: Annotated[Model, BeforeValidator(resolve_model)]
    sequence: Count = 2048
    batch_per_accelerator: Count = 1
    batch: Literal["equal", "by-speed"] = "equal"
    precision: Literal["fp32", "tf32", "bf16", "fp16", "fp8"] = "bf16"
    gradient_dtype: Literal["fp32", "bf16", "fp16"] = "fp32"
    mfu: Annotated[float, Field(gt=0, le=1)] | None = None
    step_time_s: StepTime | None = None
    step_jitter: Annotated[float, Field(ge=0, le=1)] = 0.0
    recompute: bool = False
    parallel: Parallel | None = None

    @model_validator(mode="after")
    def _said_once(self) -> "Workload":
        if self.parallel is not None and self.recompute:
            raise UsageError("recompute: say it in parallel.recompute (none, selective or full), not twice")
        return self

    def to_dict(self) -> dict[str, Any]:
        """Plain data; a catalog model goes by its name."""
        out = super().to_dict()
        if models().get(self.model.name) == self.model:
            out["model"] = self.model.name
        return out
