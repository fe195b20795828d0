"""Where measured points are kept: raw repeats by name."""

import json
import platform
from pathlib import Path
from typing import Any

from geosim.files import whole_file

RESULTS = Path(__file__).resolve().parents[1] / "results" / "exchange_alone.json"


def load(file: Path) -> dict[str, dict[str, Any]]:
    """Measured points by name; none where there is no file."""
    if not file.exists():
        return {}
    points: dict[str, dict[str, Any]] = json.loads(file.read_text())["points"]
    return points


def save(file: Path, points: dict[str, dict[str, Any]]) -> None:
    """Write all of them: one line a list."""
    file.parent.mkdir(parents=True, exist_ok=True)
    rows = []
    for name in sorted(points):
        fields = (f"   {json.dumps(key)}: {json.dumps(value)}" for key, value in points[name].items())
        rows.append(f"  {json.dumps(name)}: {{\n" + ",\n".join(fields) + "\n  }")
    head = f'{{\n "kernel": {json.dumps(platform.release())},\n "points": {{\n'
    with whole_file(file) as part:
        part.write_text(head + ",\n".join(rows) + "\n }\n}\n")
