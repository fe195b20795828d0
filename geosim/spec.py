"""The base of everything a user writes in YAML: frozen, typed, and strict about keys and units.

A field that carries a unit has it in its name (`rtt_s`). Text uses the bare name and a unit
(``rtt: 30 ms``); Python code may also give the SI number under the full name (``rtt_s=0.03``).
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar, get_args

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError, model_validator

from geosim import units
from geosim.documents import nearest
from geosim.errors import UsageError


@dataclass(frozen=True)
class Unit:
    """Marks a float field as a quantity: its dimension, and the suffix its Python name carries."""

    dimension: units.Dimension
    suffix: str


Seconds = Annotated[float, Unit(units.TIME, "_s")]
Bytes = Annotated[float, Unit(units.SIZE, "_bytes")]
BytesPerSecond = Annotated[float, Unit(units.BANDWIDTH, "_bytes_per_s")]
FlopsPerSecond = Annotated[float, Unit(units.COMPUTE, "_flops")]


def by_kind(value: Any) -> Any:
    """Let a bare word stand for ``{kind: word}`` wherever a family of specs is expected."""
    return {"kind": value} if isinstance(value, str) else value


ByKind = BeforeValidator(by_kind)


def _unit_of(annotation: Any, metadata: list[Any]) -> Unit | None:
    """The Unit marker of a field, also where the field is optional (`Seconds | None`)."""
    for mark in metadata:
        if isinstance(mark, Unit):
            return mark
    for arg in get_args(annotation):
        for mark in getattr(arg, "__metadata__", ()):
            if isinstance(mark, Unit):
                return mark
    return None


def _takes(plain: type, annotation: Any) -> bool:
    return annotation is plain or any(_takes(plain, arg) for arg in get_args(annotation))


class Spec(BaseModel):
    """Base class. Unknown keys are errors; instances are immutable, hashable and compare by value."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @classmethod
    def quantities(cls) -> dict[str, tuple[str, Unit]]:
        """Text key -> (field name, unit) of every field that carries a unit."""
        found = {}
        for name, info in cls.model_fields.items():
            unit = _unit_of(info.annotation, info.metadata)
            if unit is not None:
                found[name.removesuffix(unit.suffix)] = (name, unit)
        return found

    @model_validator(mode="before")
    @classmethod
    def _read_units(cls, data: Any) -> Any:
        if not isinstance(data, Mapping):
            return data
        table = cls.quantities()
        out: dict[str, Any] = {}
        for key, value in data.items():
            if key in table:
                name, unit = table[key]
                if name in data and name != key:
                    raise UsageError(f"{key}: given twice, as '{key}' and as '{name}'")
                try:
                    out[name] = None if value is None else units.parse(value, unit.dimension)
                except UsageError as error:
                    raise UsageError(f"{key}: {error}") from None
            else:
                info = cls.model_fields.get(key) if isinstance(key, str) else None
                if isinstance(value, bool) and info is not None and not _takes(bool, info.annotation):
                    word = str(value).lower()
                    raise UsageError(
                        f"{key}: got {word} (as YAML also reads yes, no, on and off): write a number or name"
                    )
                share = None
                if isinstance(value, str) and info is not None and _takes(float, info.annotation):
                    share = units.parse_percent(value)
                out[key] = value if share is None else share
        return out

    def to_dict(self) -> dict[str, Any]:
        """Plain data with units as text: what `from_dict` and YAML read back without loss."""
        named = {field: (key, unit) for key, (field, unit) in self.quantities().items()}
        out: dict[str, Any] = {}
        for name in type(self).model_fields:
            value = getattr(self, name)
            if name in named:
                key, unit = named[name]
                out[key] = None if value is None else units.format_exact(value, unit.dimension)
            else:
                out[name] = _plain(value)
        return out

    def to_yaml(self) -> str:
        """YAML text of `to_dict`."""
        data = self.to_dict()
        text = yaml.safe_dump(data, sort_keys=False, allow_unicode=True, width=100)
        # PyYAML folds rare Unicode line breaks that it writes as they are: such text is escaped instead.
        return text if yaml.safe_load(text) == data else yaml.safe_dump(data, sort_keys=False, width=100)


def _plain(value: Any) -> Any:
    if isinstance(value, Spec):
        return value.to_dict()
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return value


SpecT = TypeVar("SpecT", bound=Spec)


def from_dict(cls: type[SpecT], data: Any, where: str) -> SpecT:
    """Validate plain data.

    Raises:
        UsageError: one line naming `where`, the field, the value and what would be right.
    """
    if not isinstance(data, Mapping):
        raise UsageError(f"{where}: expected {_MAPPING}, got {type(data).__name__}")
    try:
        return cls.model_validate(dict(data))
    except ValidationError as error:
        raise UsageError(f"{where}: {_one_line(cls, data, error)}") from None


_BELOW = re.compile(
    r"[a-z_]+(\.[a-z_0-9]+)*: "
)  # a message that begins with a field below where it was raised


_UNKNOWN = ("extra_forbidden", "invalid_key")
_MAPPING = "a mapping of fields"
_SHAPES = {"tuple_type": "a list", "model_type": _MAPPING, "model_attributes_type": _MAPPING}


def _one_line(cls: type[Spec], data: Any, error: ValidationError) -> str:
    """The first problem of a pydantic error, in the words of the file that the user wrote."""
    problems = error.errors(include_url=False)
    # Unknown keys explain most other complaints (a misspelt required key, for one), so they go first.
    problems.sort(key=lambda p: p["type"] not in _UNKNOWN)
    first = problems[0]
    path, value = _locate(data, first["loc"])
    message = first["msg"].removeprefix("Value error, ")
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    if first["type"] in _UNKNOWN:
        key = str(first["loc"][-1])
        known = _keys_at(cls, first["loc"][:-1])
        near = nearest(key, known)
        others = _kinds_with(cls, first["loc"])
        hint = f"did you mean '{near}'?" if near else f"known keys: {', '.join(sorted(known))}"
        if others:
            hint = f"kind '{first['loc'][-2]}' has it not, {' and '.join(others)} may: set kind too"
        return f"{path}: unknown key; {hint}{more}"
    if first["type"] == "missing":
        short = isinstance(first["loc"][-1], int)
        return f"{path}: {'too few items' if short else 'this field is required'}{more}"
    if first["type"] == "too_short":
        return (
            f"{path}: needs {first['ctx']['min_length']} or more, has {first['ctx']['actual_length']}{more}"
        )
    if first["type"] in _SHAPES:
        return f"{path}: must be {_SHAPES[first['type']]}{more}"
    if first["type"] == "union_tag_invalid":
        tag, known = first["ctx"]["tag"], first["ctx"]["expected_tags"]
        return f"{path}: unknown kind '{tag}': use one of {known}{more}"
    if first["type"] == "union_tag_not_found":
        return f"{path}: needs a 'kind'{more}"
    if path and isinstance(first.get("ctx", {}).get("error"), UsageError) and _BELOW.match(message):
        return f"{path}.{message}{more}"
    given = "null" if value is None else repr(value)
    shown = "" if isinstance(value, Mapping | list | tuple) else f" (got {given})"
    if isinstance(value, str) and repr(value) in message:
        shown = ""
    return f"{path}: {message}{shown}{more}" if path else f"{message}{more}"


def _locate(data: Any, loc: tuple[int | str, ...]) -> tuple[str, Any]:
    """The dotted path as the user wrote it: discriminator tags that pydantic adds are left out."""
    path: list[str] = []
    here = data
    for depth, part in enumerate(loc):
        last = depth == len(loc) - 1
        if isinstance(here, Mapping):
            if not last and here.get("kind") == part:
                continue  # the tag, even where a field has the same name (`momentum`)
            key = next((k for k in (part, *_text_keys(part)) if k in here), None)
            if key is None and not last:
                continue
            if key is None and isinstance(here.get("kind"), str) and here["kind"] == part:
                continue
            path.append(str(part if key is None else key))
            here = here.get(key) if key is not None else None
        elif isinstance(here, list | tuple) and isinstance(part, int) and part < len(here):
            path.append(str(part))
            here = here[part]
    return ".".join(path), here


def _text_keys(name: int | str) -> tuple[str, ...]:
    return tuple(
        str(name).removesuffix(suffix)
        for suffix in ("_bytes_per_s", "_bytes", "_flops", "_s")
        if str(name).endswith(suffix)
    )


def _keys_at(cls: type[Spec], loc: tuple[int | str, ...]) -> list[str]:
    """Every key known below `loc`; families are searched whole, since the tag may itself be wrong."""
    return [key for model in _models_at(cls, loc) for key in _keys_of(model)]


def _kinds_with(cls: type[Spec], loc: tuple[int | str, ...]) -> list[str]:
    """The other kinds of the family at `loc`, which ends in a kind and a key, that know the key."""
    if len(loc) < 2:
        return []
    family = _models_at(cls, loc[:-2])
    if not any(loc[-2] in _tags(model) for model in family):
        return []
    return [f"'{tag}'" for model in family if loc[-1] in _keys_of(model) for tag in _tags(model)]


def keys_of_kind(cls: type[Spec], path: Sequence[str], kind: Any) -> set[str]:
    """Every key that a kind of the family at `path` knows; empty if there is no such kind there."""
    models = [model for model in _models_at(cls, path) if kind in _tags(model)]
    return {key for model in models for key in (*_keys_of(model), *model.model_fields)}


def _models_at(cls: type[Spec], loc: Sequence[int | str]) -> list[Any]:
    models: list[Any] = [cls]
    for part in loc:
        step: list[Any] = []
        for model in models:
            info = model.model_fields.get(str(part))
            if info is not None:
                step += _models_in(info.annotation)
        models = step or [m for m in models if part in _tags(m)] or models
    return models


def _keys_of(model: Any) -> list[str]:
    """The fields of a spec, as they are written in YAML."""
    named = {field: key for key, (field, _) in model.quantities().items()}
    return [named.get(name, name) for name in model.model_fields]


def _tags(model: Any) -> tuple[Any, ...]:
    """The kinds that a member of a family goes by."""
    kind = model.model_fields.get("kind")
    return () if kind is None else get_args(kind.annotation)


def _models_in(annotation: Any) -> list[Any]:
    if isinstance(annotation, type) and issubclass(annotation, Spec):
        return [annotation]
    return [model for arg in get_args(annotation) for model in _models_in(arg)]


def positive(value: float) -> float:
    """Validator: finite and above zero."""
    if not math.isfinite(value):
        raise UsageError("must be finite and above 0")
    if value <= 0:
        raise UsageError("must be above 0")
    return value


def not_negative(value: float) -> float:
    """Validator: finite and at least zero."""
    if not math.isfinite(value):
        raise UsageError("must be finite and 0 or more")
    if value < 0:
        raise UsageError("must be 0 or more")
    return value


def within(least: str, most: str, dimension: units.Dimension) -> Callable[[float], float]:
    """A validator: finite, and in the range that a quantity of this world can have, bounds included.

    Args:
        least, most: text with units; a `least` of "0 s" lets zero pass, any other wants more than zero.
        dimension: of the bounds.
    """
    low, high = units.parse(least, dimension), units.parse(most, dimension)

    def check(value: float) -> float:
        if not low <= (not_negative if low == 0 else positive)(value) <= high:
            raise UsageError(f"must lie between {least} and {most}")
        return value

    return check
