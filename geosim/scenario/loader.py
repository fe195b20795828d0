"""Scenarios from the catalog or from a YAML file."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from geosim.documents import find_document
from geosim.scenario.accelerator import resolve_accelerator
from geosim.scenario.files import read_files
from geosim.scenario.scenario import Scenario
from geosim.scenario.workload import resolve_model
from geosim.settings import apply_settings
from geosim.spec import from_dict

_CATALOG = Path(__file__).parent / "catalog"
_TABLES = ("accelerators", "models")


def scenario_names() -> list[str]:
    """Names of the built-in scenarios."""
    return sorted(path.stem for path in _CATALOG.glob("*.yaml") if path.stem not in _TABLES)


def load_scenario(name_or_file: str, changes: Mapping[str, Any] | None = None) -> Scenario:
    """A scenario by name or YAML file, with fields set by dotted path.

    Raises:
        UsageError: an unknown name, a missing file, or a field that is wrong: one line.
    """
    data = find_document("scenario", name_or_file, _CATALOG, scenario_names())
    data = apply_settings(Scenario, data, changes or {}, _written_out)
    folder = Path() if name_or_file in scenario_names() else Path(name_or_file).parent
    return from_dict(Scenario, read_files(data, folder), f"scenario {name_or_file}")


def change_scenario(scenario: Scenario, changes: Mapping[str, Any]) -> Scenario:
    """A scenario with fields set by dotted path.

    Raises:
        UsageError: a path that leads nowhere, or a value that is wrong: one line.
    """
    data = apply_settings(Scenario, scenario.to_dict(), changes, _written_out)
    return from_dict(Scenario, data, f"scenario {scenario.name}")


def _written_out(field: str, word: str) -> dict[str, Any]:
    """What a catalog name stands for, so that ``workload.model.layers=2`` changes one field of it."""
    if field == "model":
        return dict(resolve_model(word).to_dict())
    if field == "accelerator":
        return dict(resolve_accelerator(word).to_dict())
    return {"kind": word}
