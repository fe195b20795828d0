"""Tables that a scenario refers to by `file`: read and put in its place, so that it is complete in itself.

A CSV file has a line of column names; times and bandwidths carry their units, in the cells (``30 ms``) or,
for plain numbers, once in the name: ``at (s), bandwidth (Mbit/s), rtt (ms), loss``. A YAML file has the list
itself under `points` or `samples`.
"""

import csv
import re
from pathlib import Path
from typing import Any

from geosim.documents import read_yaml
from geosim.errors import UsageError

_LISTS = {"trace": "points", "jitter": "samples"}
_HEAD = re.compile(r"\s*([a-z]+)\s*(?:\(([^)]*)\))?\s*")


def read_files(data: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Scenario data with the content of the files that its links name; `folder`: what their paths start from.

    Raises:
        UsageError: a file that is missing or no such table: one line with its name.
    """
    links = data.get("wan")
    if not isinstance(links, list | tuple):
        return data
    return {**data, "wan": [_link(link, f"wan.{i}", folder) for i, link in enumerate(links)]}


def _link(link: Any, where: str, folder: Path) -> Any:
    if not isinstance(link, dict) or not isinstance(link.get("varies"), list | tuple):
        return link
    rows = [_variation(row, f"{where}.varies.{i}", folder) for i, row in enumerate(link["varies"])]
    return {**link, "varies": rows}


def _variation(row: Any, where: str, folder: Path) -> Any:
    if not isinstance(row, dict) or "file" not in row:
        return row
    name = _LISTS.get(str(row.get("kind")))
    if name is None:
        raise UsageError(f"{where}.file: only kinds {' and '.join(_LISTS)} read a file")
    if name in row:
        raise UsageError(f"{where}.file: give either file or {name}")
    if not isinstance(row["file"], str):
        raise UsageError(f"{where}.file: must be the name of a CSV or YAML file (got {row['file']!r})")
    rest = {key: value for key, value in row.items() if key != "file"}
    return {**rest, name: _table(folder / row["file"], name, where)}


def _table(path: Path, name: str, where: str) -> list[Any]:
    if path.suffix in (".yaml", ".yml"):
        found = read_yaml(path).get(name)
        if not isinstance(found, list) or not found:
            raise UsageError(f"{path}: expected a list under '{name}' ({where})")
        return found
    if path.suffix != ".csv":
        raise UsageError(f"{path}: {where}.file: must end in .csv, .yaml or .yml")
    try:
        with path.open(encoding="utf-8", newline="") as file:
            lines = [line for line in file if line.strip() and not line.startswith("#")]
    except OSError as error:
        raise UsageError(f"{path}: cannot read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UsageError(f"{path}: not a text file in UTF-8") from None
    rows = list(csv.reader(lines, skipinitialspace=True))
    known = ("at", "bandwidth", "rtt", "loss") if name == "points" else ("rtt",)
    if len(rows) < 2:
        raise UsageError(f"{path}: expected a line of column names ({', '.join(known)}) and one row or more")
    heads = [_head(path, text, known) for text in rows[0]]
    return [_row(path, i, row, heads) for i, row in enumerate(rows[1:], 1)]


def _head(path: Path, text: str, known: tuple[str, ...]) -> tuple[str, str]:
    """A column's name and unit."""
    match = _HEAD.fullmatch(text)
    if match is None or match[1] not in known:
        raise UsageError(f"{path}: unknown column '{text.strip()}': known columns: {', '.join(known)}")
    return match[1], match[2] or ""


def _row(path: Path, number: int, row: list[str], heads: list[tuple[str, str]]) -> dict[str, Any]:
    if len(row) != len(heads):
        raise UsageError(f"{path}: row {number} has {len(row)} cells, its head {len(heads)}")
    out: dict[str, Any] = {}
    for (name, unit), cell in zip(heads, row, strict=True):
        text = f"{cell.strip()} {unit}".strip()
        if name != "loss":
            out[name] = text
            continue
        try:
            out[name] = text if text.endswith("%") else float(text)
        except ValueError:
            raise UsageError(f"{path}: row {number}: loss '{text}' is no number") from None
    return out
