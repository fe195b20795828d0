"""What a user has set for the tuner, and it therefore does not choose."""

from collections.abc import Iterator, Mapping
from typing import Any

HELD = (
    "name", "about", "interval", "codec.select", "codec.quantize", "codec.residual", "overlap", "streams",
    "topology",
)  # fmt: skip
# Set alone, these say how to do what the tuner chooses, and leave the choice open.
_MANNER = ("codec.select.scope", "codec.quantize.group", "codec.quantize.rounding")


def held_fields(changes: Mapping[str, Any]) -> tuple[str, ...]:
    """The fields of `HELD` that changes set, in that order.

    Args:
        changes: dotted path of a policy field -> value, as for `apply_settings`.
    """
    paths = list(_paths(changes))
    return tuple(
        field
        for field in HELD
        if any(f"{path}.".startswith(f"{field}.") and path not in _MANNER for path in paths)
    )


def _paths(changes: Mapping[str, Any], above: str = "") -> Iterator[str]:
    """The dotted path of every value, those inside of mappings too."""
    for key, value in changes.items():
        yield f"{above}{key}"
        if isinstance(value, Mapping):
            yield from _paths(value, f"{above}{key}.")
