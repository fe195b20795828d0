"""YAML documents: read strictly, found by name, changed by dotted path."""

from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import yaml

from geosim.errors import UsageError


class _Loader(yaml.SafeLoader):
    """Safe YAML in which a key that is given twice is an error."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                continue
            if key.value in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"'{key.value}' is given twice", key.start_mark
                )
            seen.add(key.value)
        return super().construct_mapping(node, deep)


def read_yaml(path: Path) -> dict[str, Any]:
    """A YAML mapping from a file.

    Raises:
        UsageError: if the file is missing, unreadable, no YAML or no mapping.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{path}: cannot read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UsageError(f"{path}: not a text file in UTF-8") from None
    try:
        data = yaml.load(text, _Loader)
    except yaml.YAMLError as error:
        detail = " ".join(str(error).split())
        raise UsageError(f"{path}: not YAML: {detail}") from None
    if not isinstance(data, dict):
        raise UsageError(f"{path}: expected a mapping of fields")
    return data


def set_path(
    data: dict[str, Any],
    path: str,
    value: Any,
    written_out: Callable[[str, str], dict[str, Any]] = lambda field, word: {"kind": word},
) -> None:
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
            here = _write_out(data, parts[:depth], written_out(parts[depth - 1], here))
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


def _write_out(data: Any, parts: list[str], fields: dict[str, Any]) -> dict[str, Any]:
    """Put `fields` in the place of the bare word at `parts`, and return them."""
    here = data
    for part in parts[:-1]:
        here = here[int(part)] if isinstance(here, list) else here[part]
    key: Any = int(parts[-1]) if isinstance(here, list) else parts[-1]
    here[key] = fields
    return fields


def find_document(
    kind: str,
    name_or_file: str,
    folder: Path,
    names: Sequence[str],
    changes: Mapping[str, Any] | None,
    written_out: Callable[[str, str], dict[str, Any]] = lambda field, word: {"kind": word},
) -> dict[str, Any]:
    """A built-in document by name, or a user's by its file, with fields set by dotted path.

    Args:
        kind: what it is, for messages.
        name_or_file: one of `names`, which are files of `folder`, or a path.
        folder, names: what is built in.
        changes: dotted path -> value.
        written_out: as for `set_path`.

    Raises:
        UsageError: an unknown name, a missing file, or a path that leads nowhere: one line.
    """
    path = folder / f"{name_or_file}.yaml"
    if name_or_file not in names:
        path = Path(name_or_file)
        if not path.suffix and not path.is_file():
            near = get_close_matches(name_or_file, names, n=1)
            hint = f"did you mean '{near[0]}'?" if near else f"built in: {', '.join(names)}"
            raise UsageError(f"{kind} '{name_or_file}' is neither built in nor a file: {hint}")
    data = read_yaml(path)
    for dotted, value in (changes or {}).items():
        set_path(data, dotted, value, written_out)
    return data
