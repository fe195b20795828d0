"""What a sweep prints: a table of its rows, or of its fastest where there are many; and its plain data."""

from collections.abc import Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from geosim.questions.sweep import Row, Sweep
from geosim.report import words
from geosim.report.tables import heading, plain_table
from geosim.units import SIZE, TIME, show

_SHOWN = 40  # rows; of more the fastest
_FASTEST = 10


def data(sweep: Sweep, rows: Sequence[Row]) -> dict[str, Any]:
    """For `--json`: what was asked, and the rows as in the file."""
    around = sweep.around
    return {
        "scenario": around.scenario.name,
        "policy": around.policy.name,
        "grid": [{"field": axis.field, "values": list(axis.values)} for axis in sweep.axes],
        "seeds": around.seeds,
        "windows": around.windows,
        "rows": list(rows),
    }


def screen(sweep: Sweep, rows: Sequence[Row], out: str | None) -> RenderableType:
    """The rows in grid order, or the fastest of many; what did not fit, and where the rows are."""
    fit = [row for row in rows if not row["error"]]
    few = len(rows) <= _SHOWN
    shown = rows if few else sorted(fit, key=lambda row: -row["tokens_per_s"])[:_FASTEST]
    varied = ", ".join(f"{axis.field} ({len(axis)} values)" for axis in sweep.axes)
    blocks: list[RenderableType] = [heading(sweep.around.scenario, sweep.around.policy)]
    blocks += [Text(f"varied: {varied}", style="dim"), ""]
    if not few:
        blocks.append(Text(f"the {len(shown)} fastest of {len(rows):,} points", style="bold"))
    blocks.append(_table(sweep, shown))
    refused = [row for row in rows if row["error"]]
    if refused:
        many = "1 point does" if len(refused) == 1 else f"{len(refused):,} points do"
        blocks += ["", Text(f"{many} not fit; the first: {refused[0]['error']}")]
    if out is not None:
        blocks += ["", Text(f"rows: {out}")]
    return Group(*blocks)


def _table(sweep: Sweep, rows: Sequence[Row]) -> RenderableType:
    fields = [axis.field for axis in sweep.axes]
    heads = [_head(field) for field in fields]
    table = plain_table(
        *heads, "step", "compute\nutilization", "tokens/s", "of one\nroom's", "WAN bytes\na step",
        right=range(len(fields) + 5), wrapped=range(len(fields)),
    )  # fmt: skip
    for row in rows:
        place = [str(row[field]) for field in fields]
        if row["error"]:
            table.add_row(*place, "does not fit", style="dim")
            continue
        table.add_row(
            *place,
            show(row["step_time_s"], TIME),
            words.percent(row["compute_utilization"]),
            words.rate(row["tokens_per_s"]),
            words.percent(row["relative_to_colocated"]),
            show(row["wan_bytes_per_step"], SIZE),
        )
    return table


def _head(field: str) -> str:
    """A field over several lines, as "wan.0.rtt" over the last two of its parts."""
    parts = field.removeprefix("policy.").split(".")
    if len(parts) < 2:
        return parts[0]
    return f"{'.'.join(parts[:-1])}.\n{parts[-1]}"
