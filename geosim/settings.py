"""What `--set key=value` means: changes to scenario and policy fields by their dotted paths."""

from collections.abc import Callable, Iterable, Mapping
from copy import copy
from typing import Any

from geosim.documents import parse_yaml
from geosim.errors import UsageError
from geosim.spec import Spec, keys_of_kind

_POLICY = "policy."
WrittenOut = Callable[[str, str], dict[str, Any]]


def split_settings(items: Iterable[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Sort `key=value` items into what changes the scenario and what changes the policy.

    A key that starts with ``policy.`` is a policy field, any other a scenario field. A value is read
    as YAML, so ``8`` is a number, ``80 ms`` is text and ``[a, b]`` is a list. A later item wins.

    Returns:
        (scenario changes, policy changes), dotted path -> value, the prefix removed.

    Raises:
        UsageError: an item without '=', without a field name, or with a value that is no YAML.
    """
    scenario: dict[str, Any] = {}
    policy: dict[str, Any] = {}
    for item in items:
        key, equals, text = item.partition("=")
        key = key.strip()
        if not equals:
            raise UsageError(f"--set {item}: no '=': write a field and its value, like policy.interval=8")
        if not all(key.split(".")) or key == "policy":
            raise UsageError(f'--set {item}: no field named: write its dotted path, like wan.0.rtt="80 ms"')
        if key.startswith(_POLICY):
            policy[key.removeprefix(_POLICY)] = _value(item, text)
        else:
            scenario[key] = _value(item, text)
    return scenario, policy


def _value(item: str, text: str) -> Any:
    """The value of one item, read as YAML."""
    try:
        return parse_yaml(text)
    except UsageError as error:
        reason = str(error).removeprefix("line 1: ")
        if not reason.startswith("not YAML"):
            raise UsageError(f"--set {item}: {reason}") from None
        raise UsageError(
            f"--set {item}: the value is not YAML: put text with : {{ [ or # into quotes"
        ) from None


def _plain_kind(field: str, word: str) -> dict[str, Any]:
    return {"kind": word}


def apply_settings(
    cls: type[Spec], data: dict[str, Any], changes: Mapping[str, Any], written_out: WrittenOut = _plain_kind
) -> dict[str, Any]:
    """Plain data of a spec with fields set by dotted path, whatever the order in which they are given.

    The whole of a field is set before its parts, and a `kind` before its sisters. Another kind drops what
    the old one alone knew, unless the changes themselves set it.

    Args:
        cls: the spec that the data will become.
        data: changed in place.
        changes: dotted path -> value.
        written_out: what the bare word of a field stands for, where a path goes on below it.

    Returns:
        `data`.

    Raises:
        UsageError: if a path leads nowhere.
    """
    for path in sorted(changes, key=lambda path: (path.count("."), not path.endswith(".kind"))):
        above, _, last = path.rpartition(".")
        inherited = last == "kind" and not any(f"{above}.".startswith(f"{other}.") for other in changes)
        before = _mapping_at(data, above) if inherited else {}
        set_path(data, path, changes[path], written_out)
        if before:
            _drop(cls, _mapping_at(data, above), above, before.get("kind"), changes[path])
    return data


def _drop(cls: type[Spec], here: dict[str, Any], path: str, old: Any, new: Any) -> None:
    """Leave out of the mapping at `path` what its old kind knows and its new one does not."""
    before, after = keys_of_kind(cls, path.split("."), old), keys_of_kind(cls, path.split("."), new)
    if after:
        for key in before - after:
            here.pop(key, None)


def _mapping_at(data: Any, path: str) -> dict[str, Any]:
    """The mapping at a path; empty if there is none."""
    for part in path.split("."):
        if isinstance(data, dict):
            data = data.get(part)
        elif isinstance(data, list) and part.isdecimal() and int(part) < len(data):
            data = data[int(part)]
    return data if isinstance(data, dict) else {}


def set_path(data: dict[str, Any], path: str, value: Any, written_out: WrittenOut = _plain_kind) -> None:
    """Set one field of nested plain data by its dotted path; list items by number.

    Args:
        data: changed in place.
        path: such as ``wan.0.rtt``.
        value: plain data.
        written_out: what the bare word of a field stands for, where the path goes on below it.

    Raises:
        UsageError: if the path runs through something that has no such member.
    """
    here: Any = data
    parts = path.split(".")
    for depth, part in enumerate(parts):
        last = depth == len(parts) - 1
        if isinstance(here, str):
            here = _put(data, parts[:depth], written_out(parts[depth - 1], here))
        elif depth and isinstance(here, dict | list):
            # Places that one YAML anchor stands for share what is there, and only one of them changes.
            here = _put(data, parts[:depth], copy(here))
        if isinstance(here, list):
            if not part.isdecimal() or int(part) >= len(here):
                raise UsageError(f"--set {path}: '{part}' is no item of a list of {len(here)}; count from 0")
            if last:
                here[int(part)] = value
            else:
                here = here[int(part)]
        elif isinstance(here, dict):
            if last:
                here[part] = value
            else:
                if here.get(part) is None:
                    here[part] = {}
                here = here[part]
        else:
            raise UsageError(f"--set {path}: '{'.'.join(parts[:depth])}' has no fields below it")


def _put(data: Any, parts: list[str], value: Any) -> Any:
    """Put `value` in the place of what is at `parts`, and return it."""
    here = data
    for part in parts[:-1]:
        here = here[int(part)] if isinstance(here, list) else here[part]
    key: Any = int(parts[-1]) if isinstance(here, list) else parts[-1]
    here[key] = value
    return value
