"""The screen of `geosim plan`, and its plain data."""

from collections.abc import Iterable
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from geosim.cost.compute import tokens_per_accelerator
from geosim.cost.money import Money, money
from geosim.cost.room import policy_bytes
from geosim.cost.step.grid import FREE
from geosim.cost.step.plan import Choice, Plan, plan
from geosim.policy import SyncPolicy
from geosim.report import words
from geosim.report.tables import heading, plain_table
from geosim.scenario import Scenario
from geosim.units import SIZE, TIME, show


def make(
    scenario: Scenario, policy: SyncPolicy | None, count: int, settings: Iterable[str] = ()
) -> tuple[Plan, ...]:
    """One plan a site; sites that are alike but for their names share one.

    Args:
        scenario: what it states of a parallelism is varied.
        policy: what room is left for.
        count: of choices a site.
        settings: paths of fields that a user has set: of a parallelism, those are not varied.

    Raises:
        UsageError: if nothing fits a site.
    """
    fixed = [name for name in FREE if f"workload.parallel.{name}" in settings]
    kept = 0.0 if policy is None else policy_bytes(scenario, policy)
    made: dict[Any, list[str]] = {}
    for site in scenario.sites:
        made.setdefault(site.model_copy(update={"name": ""}), []).append(site.name)
    return tuple(
        plan(scenario.workload, site.model_copy(update={"name": ", ".join(names)}), kept, count, fixed)
        for site, names in made.items()
    )


def data(scenario: Scenario, made: tuple[Plan, ...]) -> dict[str, Any]:
    """For `--json`."""
    rows = []
    for one in made:
        choices = []
        for choice in one.best:
            row = {
                "parallel": choice.parallel.to_dict(),
                "step_s": choice.step_s,
                "mfu": choice.mfu,
                "memory_bytes": choice.memory_bytes,
                "bubble_share": choice.bubble_share,
            }
            cost = _money(scenario, choice)
            if cost is not None:
                row["compute_per_million_tokens"] = cost.compute_per_million_tokens
                row["currency"] = cost.currency
            choices.append(row)
        rows.append(
            {"sites": one.site, "considered": one.considered, "fitting": one.fitting, "best": choices}
        )
    return {"scenario": scenario.name, "plans": rows}


def screen(scenario: Scenario, made: tuple[Plan, ...]) -> RenderableType:
    """A table a site."""
    parts: list[RenderableType] = [heading(scenario)]
    prices = scenario.prices
    for one in made:
        title = Text(one.site, style="bold")
        title.append(f": {one.fitting} of {one.considered} parallelisms fit its memory", style="not bold")
        columns = ["MFU", "a step", "bubble", "memory", *(["a million tokens"] if prices else []), "parallel"]
        table = plain_table(*columns, right=range(len(columns) - 1), wrapped=[len(columns) - 1])
        for choice in one.best:
            cost = _money(scenario, choice)
            table.add_row(
                words.percent(choice.mfu),
                show(choice.step_s, TIME),
                words.percent(choice.bubble_share),
                show(choice.memory_bytes, SIZE),
                *([f"{cost.compute_per_million_tokens:.3g} {cost.currency}"] if cost else []),
                choice.words,
            )
        parts += ["", title, table]
    note = "A step inside a site, without the WAN. Write a choice under workload.parallel, and mfu out of it."
    return Group(*parts, "", Text(note))


def _money(scenario: Scenario, choice: Choice) -> Money | None:
    """What the scenario's accelerators cost at this choice's speed, or None where it states no prices."""
    if scenario.prices is None:
        return None
    tokens = tokens_per_accelerator(scenario.workload) * scenario.ranks
    return money(scenario, choice.step_s, tokens, {})
