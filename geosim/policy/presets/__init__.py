"""Named policies: each is one YAML file in this folder."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from geosim.documents import find_document
from geosim.policy.policy import SyncPolicy, policy_from_dict
from geosim.settings import apply_settings

_FOLDER = Path(__file__).parent


def preset_names() -> list[str]:
    """Names of the built-in policies."""
    return sorted(path.stem for path in _FOLDER.glob("*.yaml"))


def load_policy(name_or_file: str, changes: Mapping[str, Any] | None = None) -> SyncPolicy:
    """A policy by preset name or YAML file, with fields set by dotted path.

    Raises:
        UsageError: an unknown name, a missing file, or a field that is wrong: one line.
    """
    data = find_document("policy", name_or_file, _FOLDER, preset_names())
    data = apply_settings(SyncPolicy, data, changes or {})
    return policy_from_dict(data, f"policy {name_or_file}")
