"""The published tables that lie beside the claims: CSV, the lines about their source begin with '#'."""

import csv
from pathlib import Path


def rows(path: Path) -> list[dict[str, str]]:
    """The rows of a table, by column."""
    with path.open(encoding="utf-8") as file:
        return list(csv.DictReader(line for line in file if not line.startswith("#")))
