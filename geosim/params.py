"""The shape of a model: all that policy and scenario share."""

import hashlib
import json
import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from geosim.errors import UsageError

DTYPE_BYTES = {"fp32": 4, "bf16": 2, "fp16": 2}


@dataclass(frozen=True)
class ParamSpec:
    """One tensor, or `repeat` alike tensors in `repeat` consecutive layers.

    Attributes:
        name: parameter name; with `repeat` above 1 it holds ``{layer}``.
        shape: dimensions; the empty tuple is a scalar.
        dtype: "fp32", "bf16" or "fp16".
        layer: index of the (first) transformer layer, or None outside the layers.
        repeat: number of alike layers.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str = "fp32"
    layer: int | None = None
    repeat: int = 1

    def __post_init__(self) -> None:
        if self.dtype not in DTYPE_BYTES:
            raise UsageError(
                f"{self.name}: dtype {self.dtype!r} is unknown: use one of {', '.join(DTYPE_BYTES)}"
            )
        if self.repeat < 1 or any(d < 0 for d in self.shape):
            raise UsageError(f"{self.name}: repeat must be 1 or more and dimensions 0 or more")
        if self.repeat > 1 and (self.layer is None or "{layer}" not in self.name):
            raise UsageError(
                f"{self.name}: a repeated tensor needs its first layer, and '{{layer}}' in its name"
            )

    @property
    def numel(self) -> int:
        """Elements of one of the tensors."""
        return math.prod(self.shape)


@dataclass(frozen=True)
class ParamTable:
    """All trainable tensors of a model, tied weights once, in model order."""

    params: tuple[ParamSpec, ...]

    @property
    def numel(self) -> int:
        """Trainable parameters in all."""
        return sum(p.numel * p.repeat for p in self.params)

    @property
    def layers(self) -> int:
        """Number of transformer layers (1 + the highest layer index; 0 if none is named)."""
        return max((p.layer + p.repeat for p in self.params if p.layer is not None), default=0)

    def tensors(self) -> tuple[ParamSpec, ...]:
        """One entry a tensor: repeats written out, layer by layer, in model order."""
        return _written_out(self.params)

    def fingerprint(self) -> str:
        """A hash of names, shapes and dtypes, equal on every site that trains the same model."""
        rows = [(p.name, p.shape, p.dtype, p.layer) for p in self.tensors()]
        return hashlib.blake2b(json.dumps(rows).encode(), digest_size=8).hexdigest()


@lru_cache(maxsize=16)  # a thousand for a large model, asked for by every policy of a search
def _written_out(params: tuple[ParamSpec, ...]) -> tuple[ParamSpec, ...]:
    out: list[ParamSpec] = []
    run: list[ParamSpec] = []

    def flush() -> None:
        # A run of specs with the same first layer and repeat is one block written `repeat` times.
        if run:
            first = run[0].layer or 0
            for i in range(run[0].repeat):
                for p in run:
                    name = p.name.replace("{layer}", str(first + i))
                    out.append(ParamSpec(name, p.shape, p.dtype, first + i))
            run.clear()

    for p in params:
        if run and (p.repeat != run[0].repeat or p.layer != run[0].layer):
            flush()
        if p.layer is not None and "{layer}" in p.name:
            run.append(p)
        else:
            flush()
            out.append(p)
    flush()
    return tuple(out)


def table(rows: Iterable[tuple[str, tuple[int, ...]]], dtype: str = "fp32") -> ParamTable:
    """A ParamTable from (name, shape) rows, such as `named_parameters` yields.

    The layer is the first number among the dotted parts of the name ("blocks.3.attn.weight" -> 3).
    """
    specs = []
    for name, shape in rows:
        layer = next((int(part) for part in name.split(".") if part.isdigit()), None)
        specs.append(ParamSpec(name, tuple(int(d) for d in shape), dtype, layer))
    return ParamTable(tuple(specs))
