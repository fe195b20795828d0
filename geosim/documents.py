"""YAML documents, read strictly and found by name; and the known name that a wrong one was meant for."""

import os
import re
from collections.abc import Iterable, Sequence
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any

import yaml

from geosim.errors import UsageError

_NEAR = 0.6


class _Loader(yaml.SafeLoader):
    """Safe YAML in which a key that is given twice is an error."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                continue
            if key.value in seen:
                raise _Twice(None, None, f"'{key.value}' is given twice", key.start_mark)
            seen.add(key.value)
        return super().construct_mapping(node, deep)

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep)
        except (ValueError, TypeError, AttributeError, KeyError):
            # What PyYAML's own readers of dates and numbers let through: 2024-13-45, !!int x.
            what = f"'{node.value}' is no value" if isinstance(node, yaml.ScalarNode) else "no value"
            raise yaml.constructor.ConstructorError(None, None, what, node.start_mark) from None


class _Twice(yaml.constructor.ConstructorError):
    """A key that is given twice."""


def parse_yaml(text: str) -> Any:
    """Plain data from YAML text.

    Raises:
        UsageError: one line, ``line N: reason``.
    """
    try:
        return yaml.load(text, _Loader)
    except _Twice as error:
        raise UsageError(f"line {_line(text, error)}: {error.problem}") from None
    except yaml.YAMLError as error:
        reason = getattr(error, "problem", None) or getattr(error, "reason", None) or "cannot be read"
        raise UsageError(f"line {_line(text, error)}: not YAML: {' '.join(str(reason).split())}") from None
    except RecursionError:
        raise UsageError("line 1: not YAML: nested too deeply") from None


def _line(text: str, error: yaml.YAMLError) -> int:
    """The line that an error is about, counted from 1."""
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    if mark is not None:
        return int(mark.line) + 1
    return text.count("\n", 0, getattr(error, "position", 0)) + 1


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
    except ValueError as error:
        raise UsageError(f"{str(path)!r}: cannot read: {error}") from None
    try:
        data = parse_yaml(text)
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from None
    if not isinstance(data, dict):
        empty = "is empty: " if data is None else ""
        raise UsageError(f"{path}: {empty}expected a mapping of fields")
    return data


def read_built_in(path: Path) -> dict[str, Any]:
    """A YAML mapping from a file of geosim's own, by libyaml where PyYAML has it: ten times as fast.

    What users write is read by `read_yaml`, which says what is wrong and where.
    """
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return dict(yaml.load(path.read_text(encoding="utf-8"), loader))


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known word that another was probably meant for; the order of its parts does not matter.

    ``bandwidth_back`` is as near to ``back_bandwidth`` as can be. None if nothing is near.
    """
    best = max(known, key=lambda name: _likeness(word, name), default=None)
    return best if best is not None and _likeness(word, best) >= _NEAR else None


def _likeness(a: str, b: str) -> float:
    """From 0 to 1, as `difflib` has it, of the words as they are or with their parts sorted."""
    return max(SequenceMatcher(None, y, x).ratio() for x, y in ((a, b), (_sorted(a), _sorted(b))))


def _sorted(word: str) -> str:
    return " ".join(sorted(re.split(r"[_\-\s]+", word.lower())))


def find_document(kind: str, name_or_file: str, folder: Path, names: Sequence[str]) -> dict[str, Any]:
    """A built-in document by name, or a user's by its file.

    Args:
        kind: what it is, for messages.
        name_or_file: one of `names`, which are files of `folder`, or a path.
        folder, names: what is built in.

    Raises:
        UsageError: an unknown name, or a file that is missing or no mapping: one line.
    """
    if name_or_file in names:
        return read_built_in(folder / f"{name_or_file}.yaml")
    path = Path(name_or_file)
    # Not Path.is_file(): a pipe, as in --policy <(command), is fine, and so is a name of any length.
    if not path.suffix and (not os.path.exists(path) or path.is_dir()):
        near = nearest(name_or_file, names)
        hint = f"did you mean '{near}'?" if near else f"built in: {', '.join(names)}"
        raise UsageError(f"{kind} '{name_or_file}' is neither built in nor a file: {hint}")
    return read_yaml(path)
