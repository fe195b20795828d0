"""Scenarios from the catalog or from a YAML file."""

from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from geosim.errors import UsageError
from geosim.scenario.accelerator import resolve_accelerator
from geosim.scenario.scenario import Scenario
from geosim.scenario.workload import resolve_model
from geosim.spec import from_dict, read_yaml, set_path

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
    path = _CATALOG / f"{name_or_file}.yaml"
    if name_or_file not in scenario_names():
        path = Path(name_or_file)
        if not path.suffix and not path.is_file():
            near = get_close_matches(name_or_file, scenario_names(), n=1)
            hint = f"did you mean '{near[0]}'?" if near else f"built in: {', '.join(scenario_names())}"
            raise UsageError(f"scenario '{name_or_file}' is neither built in nor a file: {hint}")
    data = read_yaml(path)
    for dotted, value in (changes or {}).items():
        set_path(data, dotted, value, _written_out)
    return from_dict(Scenario, data, f"scenario {name_or_file}")


def _written_out(field: str, word: str) -> dict[str, Any]:
    """What a catalog name stands for, so that ``workload.model.layers=2`` changes one field of it."""
    if field == "model":
        return dict(resolve_model(word).to_dict())
    if field == "accelerator":
        return dict(resolve_accelerator(word).to_dict())
    return {"kind": word}
