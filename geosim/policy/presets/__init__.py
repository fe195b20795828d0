"""Named policies: each is one YAML file in this folder."""

from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from geosim.errors import UsageError
from geosim.policy.policy import SyncPolicy, policy_from_dict
from geosim.spec import read_yaml, set_path

_FOLDER = Path(__file__).parent


def preset_names() -> list[str]:
    """Names of the built-in policies."""
    return sorted(path.stem for path in _FOLDER.glob("*.yaml"))


def load_policy(name_or_file: str, changes: Mapping[str, Any] | None = None) -> SyncPolicy:
    """A policy by preset name or YAML file, with fields set by dotted path.

    Raises:
        UsageError: an unknown name, a missing file, or a field that is wrong: one line.
    """
    path = _FOLDER / f"{name_or_file}.yaml"
    if name_or_file not in preset_names():
        path = Path(name_or_file)
        if not path.suffix and not path.is_file():
            near = get_close_matches(name_or_file, preset_names(), n=1)
            hint = f"did you mean '{near[0]}'?" if near else f"built in: {', '.join(preset_names())}"
            raise UsageError(f"policy '{name_or_file}' is neither built in nor a file: {hint}")
    data = read_yaml(path)
    for dotted, value in (changes or {}).items():
        set_path(data, dotted, value)
    return policy_from_dict(data, f"policy {name_or_file}")
