"""The screen of the tuner, and its plain data."""

from collections.abc import Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from geosim.report import words
from geosim.report.tables import heading, listing, plain_table
from geosim.scenario import Scenario
from geosim.tune import Tuned
from geosim.units import SIZE, show


def data(tuned: Tuned, reasons: Sequence[str]) -> dict[str, Any]:
    """For `--json`: the policy, what is predicted for it, the front and the reason."""
    return {
        "policy": tuned.chosen.policy.to_dict(),
        "predicted": tuned.chosen.result.to_dict(),
        "front": [point.to_dict() for point in tuned.front],
        "reason": list(reasons),
        "held_fixed": {field: _value(tuned, field) for field in tuned.held},
    }


def _value(tuned: Tuned, path: str) -> Any:
    """The plain value of one field of the chosen policy."""
    here: Any = tuned.chosen.policy.to_dict()
    for part in path.split("."):
        here = here[part]
    return here


def screen(scenario: Scenario, tuned: Tuned, reasons: Sequence[str]) -> RenderableType:
    """The choice, the reason, and the front with the choice marked."""
    table = plain_table("", "K", "sends", "overlap", "streams", "a step", "of one room's", right=(1, 4, 5, 6))
    for point in tuned.front:
        chosen = point is tuned.chosen
        table.add_row(
            ">" if chosen else "",
            str(point.policy.interval),
            words.codec(point.policy.codec),
            words.overlap(point.policy.overlap),
            str(point.policy.streams),
            show(point.sent_bytes_per_step, SIZE),
            words.percent(point.relative),
            style="bold" if chosen else "",
        )
    choice = Text("chosen: ", style="bold") + Text(words.policy_line(tuned.chosen.policy))
    title = Text("The front, from the least aggressive policy to the fastest", style="bold")
    title.append(" (gains of 3 % and more)", style="not bold")
    return Group(heading(scenario), "", choice, listing("Why", reasons), "", title, table)
