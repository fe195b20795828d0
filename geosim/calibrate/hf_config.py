"""`config.json` of Hugging Face: the shape of a model, where geosim's model has it.

A shape is taken only if every matrix of it is: what a config has beyond it are vectors (some biases, norms of
queries and keys), which are counted and named. All else is refused in one line.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from geosim.calibrate.hf_shapes import REFUSED, SHAPES, Shape
from geosim.calibrate.reading import Fact, Reading, Unknown, Value
from geosim.calibrate.source import Source
from geosim.errors import UsageError
from geosim.scenario import Model, models
from geosim.spec import from_dict

_NAMES = ("name", "source")


@dataclass(frozen=True)
class _Counted:
    """A model, and its trainable parameters with what geosim's shape leaves out."""

    model: Model
    parameters: int


def recognise(source: Source) -> bool:
    """Whether a file is a Hugging Face config."""
    if not source.is_json or not isinstance(source.data, dict):
        return False
    return "model_type" in source.data or "architectures" in source.data


def read(source: Source) -> Reading:
    """The model.

    Raises:
        UsageError: a model type that is not known or that geosim cannot express, or a size that is missing.
    """
    config = source.fields
    kind = config.word("model_type")
    if not kind:
        raise UsageError(f"{source.name}: model_type: missing: it says what the sizes mean")
    if kind in REFUSED:
        alone = config.word("text_config.model_type") in SHAPES
        hint = "; its text_config can be read, in a file of its own" if alone else ""
        raise UsageError(f"{source.name}: model_type: {kind} cannot be expressed: {REFUSED[kind]}{hint}")
    if kind not in SHAPES:
        known = ", ".join(sorted(SHAPES))
        raise UsageError(f"{source.name}: model_type: '{kind[:40]}' is unknown: known are {known}")
    shape = SHAPES[kind](config)
    counted = _counted(source.name, kind, config.word("_name_or_path"), shape)
    model, left_out = counted.model, sum(shape.left_out.values())
    total = counted.parameters
    plain, shown = _plain(model)
    sizes = f"{model.layers} layers, d_model {model.d_model}, {model.heads} heads"
    sizes += f" ({model.kv_heads} for keys and values)" if model.kv_heads else ""
    sizes += f", {model.head_dim} wide" if model.head_dim else ""
    sizes += f", {model.experts} experts" if model.experts > 1 else ""
    values = (Value("workload.model", plain, None, sizes, shown=shown),)
    facts = [
        Fact(
            "parameters",
            f"{total:,}",
            f"of which geosim's shape has {total - left_out:,}" if left_out else "",
        )
    ]
    if model.experts > 1:
        idle = _idle(model)
        facts.append(
            Fact(
                "active parameters",
                f"{total - idle:,}",
                f"a token; {model.experts_per_token} of {model.experts} experts",
            )
        )
    return Reading(
        "hf-config",
        source.name,
        _version(config.word("transformers_version")),
        values,
        tuple(facts),
        _unknown(shape, total),
    )


def _version(text: str) -> str:
    return f"transformers {text}" if text else "no transformers_version"


def _counted(file: str, kind: str, path: str, shape: Shape) -> _Counted:
    name = path.strip("/. ").split("/")[-1][:60]
    data = {"name": name or kind, **shape.model, "source": "config.json of Hugging Face"}
    model = from_dict(Model, data, file)
    total = model.param_table().numel + sum(shape.left_out.values())
    if not name:
        billions = f"{total / 1e9:.3g}b" if total >= 1e9 else f"{total / 1e6:.3g}m"
        model = model.model_copy(update={"name": f"{kind}-{billions}"})
    return _Counted(model, total)


def _plain(model: Model) -> tuple[str | Mapping[str, Any], str]:
    """A catalog model of the same sizes by its name, else all sizes written out; and what a table shows."""
    sizes = model.model_dump(exclude=set(_NAMES))
    for name, known in models().items():
        if known.model_dump(exclude=set(_NAMES)) == sizes:
            return name, name
    return model.to_dict(), model.name


def _idle(model: Model) -> int:
    """Parameters of experts that a token does not meet."""
    matrices = 3 if model.gated else 2
    each = matrices * model.d_model * model.ffn
    return model.layers * (model.experts - model.experts_per_token) * each


def _unknown(shape: Shape, total: int) -> tuple[Unknown, ...]:
    out = [
        f"{what}: {count:,} parameters ({100 * count / total:.2g} %) that geosim's shape has not"
        for what, count in shape.left_out.items()
    ]
    out += shape.ignored
    out.append("batch, sequence and precision of the training, and how a site divides a step")
    return tuple(map(Unknown, out))
