"""What `--set key=value` means: changes to scenario and policy fields by their dotted paths."""

from collections.abc import Iterable
from typing import Any

import yaml

from geosim.errors import UsageError

_POLICY = "policy."


def split_settings(items: Iterable[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Sort `key=value` items into what changes the scenario and what changes the policy.

    A key that starts with ``policy.`` is a policy field, any other a scenario field. A value is read
    as YAML, so ``8`` is a number, ``80 ms`` is text and ``[a, b]`` is a list. A later item wins.

    Returns:
        (scenario changes, policy changes), dotted path -> value, the prefix removed.

    Raises:
        UsageError: an item without '=', without a field name, or with a value that is no YAML.
    """
    scenario: dict[str, Any] = {}
    policy: dict[str, Any] = {}
    for item in items:
        key, equals, text = item.partition("=")
        key = key.strip()
        if not equals:
            raise UsageError(f"--set {item}: no '=': write a field and its value, like policy.interval=8")
        if not all(key.split(".")) or key == "policy":
            raise UsageError(f'--set {item}: no field named: write its dotted path, like wan.0.rtt="80 ms"')
        if key.startswith(_POLICY):
            policy[key.removeprefix(_POLICY)] = _value(item, text)
        else:
            scenario[key] = _value(item, text)
    return scenario, policy


def _value(item: str, text: str) -> Any:
    """The value of one item, read as YAML."""
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError:
        raise UsageError(
            f"--set {item}: the value is not YAML: put text with : {{ [ or # into quotes"
        ) from None
