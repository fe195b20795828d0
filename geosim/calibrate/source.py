"""A file as text or as JSON whose shape is not to be trusted."""

import gzip
import json
import math
import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from geosim.errors import UsageError

MOST_BYTES = 1 << 30
_GZIP = b"\x1f\x8b"
_JSON = re.compile(r"\ufeff?\s*(?:\{|\[\s*[{\]])")  # and not mpirun's "[1,0]<stdout>:"


@dataclass(frozen=True)
class Source:
    """One file's text.

    Attributes:
        name: as the user gave it.
        text: decoded and decompressed.
    """

    name: str
    text: str

    @property
    def is_json(self) -> bool:
        """Whether it looks like JSON."""
        return bool(_JSON.match(self.text))

    @cached_property
    def data(self) -> Any:
        """The JSON in it.

        Raises:
            UsageError: if it is broken or cut off: one line.
        """
        text = self.text.removeprefix("\ufeff")
        try:
            return json.loads(text)
        except json.JSONDecodeError as error:
            if error.msg == "Extra data":
                second = "holds more than one JSON document: give each a file of its own"
                raise UsageError(
                    f"{self.name}: {second} (the second begins in line {error.lineno})"
                ) from None
            cut = ", as if it were cut off" if error.pos >= len(text.rstrip()) - 1 else ""
            where = f"line {error.lineno}, column {error.colno}"
            raise UsageError(f"{self.name}: broken JSON: {error.msg} in {where}{cut}") from None
        except RecursionError:
            raise UsageError(f"{self.name}: broken JSON: nested too deeply") from None
        except ValueError as error:
            raise UsageError(f"{self.name}: broken JSON: {error}") from None

    @property
    def fields(self) -> "Fields":
        """The JSON object in it, read by dotted path."""
        if not isinstance(self.data, dict):
            raise UsageError(f"{self.name}: expected a JSON object, got {_kind(self.data)}")
        return Fields(self.data, self.name)


def open_source(path: Path) -> Source:
    """Read a text file, gzip or plain.

    Raises:
        UsageError: missing, unreadable, empty, binary, or larger than `MOST_BYTES`: one line.
    """
    name = str(path)
    too_large = f"{name}: larger than {MOST_BYTES >> 30} GiB: profile or measure for less time"
    try:
        with path.open("rb") as file:
            raw = file.read(MOST_BYTES + 1)
            if raw[:2] == _GZIP:
                file.seek(0)
                raw = gzip.GzipFile(fileobj=file).read(MOST_BYTES + 1)
    except (EOFError, zlib.error, gzip.BadGzipFile):
        raise UsageError(f"{name}: broken gzip file, as if it were cut off") from None
    except OSError as error:
        raise UsageError(f"{name}: cannot read: {error.strerror or error}") from None
    except ValueError as error:
        raise UsageError(f"{name!r}: cannot read: {error}") from None
    if len(raw) > MOST_BYTES:
        raise UsageError(too_large)
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        raise UsageError(f"{name}: not a text file in UTF-8") from None
    if not text.strip("\ufeff \t\r\n\0"):
        raise UsageError(f"{name}: is empty")
    return Source(name, text)


@dataclass(frozen=True)
class Fields:
    """A JSON object read by dotted path; what is not as it should be is named.

    Attributes:
        data: the object.
        where: the file, and where in it.
    """

    data: Mapping[str, Any]
    where: str

    def find(self, path: str) -> Any:
        """What is at a path; None if there is nothing."""
        here: Any = self.data
        for part in path.split("."):
            here = here.get(part) if isinstance(here, Mapping) else None
        return here

    def has(self, path: str) -> bool:
        """Whether there is something at a path."""
        return self.find(path) is not None

    def number(self, path: str, default: float | None = None) -> float:
        """A finite number of 0 or more.

        Raises:
            UsageError: if there is none and no default, or something else.
        """
        found = self.find(path)
        if found is None and default is not None:
            return default
        try:
            if (
                isinstance(found, int | float)
                and not isinstance(found, bool)
                and 0 <= float(found) < math.inf
            ):
                return float(found)
        except OverflowError:
            pass
        raise UsageError(f"{self.where}: {path}: {_expected('a number of 0 or more', found)}")

    def whole(self, path: str, default: int | None = None) -> int:
        """A whole number from 1 to 1e15.

        Raises:
            UsageError: likewise.
        """
        found = self.find(path)
        if found is None and default is not None:
            return default
        if isinstance(found, int) and not isinstance(found, bool) and 1 <= found <= 10**15:
            return found
        raise UsageError(f"{self.where}: {path}: {_expected('a whole number of 1 or more', found)}")

    def flag(self, path: str, default: bool = False) -> bool:
        """True or false, or 1 or 0.

        Raises:
            UsageError: if it is something else.
        """
        found = self.find(path)
        if found is None:
            return default
        if isinstance(found, bool) or found in (0, 1):
            return bool(found)
        raise UsageError(f"{self.where}: {path}: {_expected('true or false', found)}")

    def word(self, path: str, default: str = "") -> str:
        """One line of text.

        Raises:
            UsageError: if it is something else.
        """
        found = self.find(path)
        if found is None:
            return default
        if isinstance(found, str):
            return " ".join(found.split())[:200]
        raise UsageError(f"{self.where}: {path}: {_expected('text', found)}")

    def items(self, path: str) -> "list[Fields]":
        """The objects of a list; empty if there is none.

        Raises:
            UsageError: if it is something else.
        """
        found = self.find(path)
        if found is None:
            return []
        if not isinstance(found, list) or not all(isinstance(item, Mapping) for item in found):
            raise UsageError(f"{self.where}: {path}: {_expected('a list of objects', found)}")
        return [Fields(item, f"{self.where}: {path}.{i}") for i, item in enumerate(found)]


def _expected(what: str, found: Any) -> str:
    if found is None:
        return f"missing: {what} is expected"
    if isinstance(found, str | int | float | bool):
        shown = (
            json.dumps(found)[:40] if not isinstance(found, int) or abs(found) < 10**20 else "a huge number"
        )
        return f"{what} is expected, got {shown}"
    return f"{what} is expected, got {_kind(found)}"


def _kind(found: Any) -> str:
    if isinstance(found, Mapping):
        return "an object"
    return "a list" if isinstance(found, list) else type(found).__name__
