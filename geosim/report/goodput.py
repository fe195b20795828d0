"""What `geosim goodput` prints and draws: goodput of each policy, and where the rest of the time went."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType

from geosim.questions.goodput import Asked, Goodput
from geosim.report import words
from geosim.report.style import GREY, INK, ORANGE, PURPLE, RED, drawing
from geosim.report.tables import heading, listing, plain_table
from geosim.scenario.faults import Faults
from geosim.sim.goodput import PARTS
from geosim.units import TIME, show

_HEADS = {
    "stragglers": "stragglers",
    "links": "link\nfaults",
    "restarts": "restarts",
    "checkpoints": "check-\npoints",
}
_COLOURS = {"stragglers": ORANGE, "links": RED, "restarts": PURPLE, "checkpoints": GREY}
_KINDS = {
    "straggler": "stragglers",
    "link": "link faults",
    "accelerator": "accelerators lost",
    "site": "sites lost",
}


def data(asked: Asked, found: Sequence[Goodput]) -> dict[str, Any]:
    """For `--json`."""
    assert asked.scenario.faults is not None
    return {
        "scenario": asked.scenario.name,
        "days": asked.days,
        "seeds": asked.seeds,
        "faults": asked.scenario.faults.to_dict(),
        "policies": [asdict(row) for row in found],
    }


def screen(asked: Asked, found: Sequence[Goodput]) -> RenderableType:
    """A table of the policies, and what was assumed."""
    faults = asked.scenario.faults
    assert faults is not None
    table = plain_table("policy", "goodput", *_HEADS.values(), "of one\nroom", right=range(1, 7), wrapped=[0])
    for row in found:
        lost = (words.percent(row.lost[part]) for part in PARTS)
        table.add_row(row.policy, words.percent(row.goodput), *lost, words.percent(row.relative_to_colocated))
    return Group(
        heading(asked.scenario),
        "",
        _happens(asked, found[0]),
        "",
        table,
        listing("Notes", _notes(asked, faults, found)),
    )


def _happens(asked: Asked, row: Goodput) -> str:
    seen = [f"{number:.3g} {_KINDS[kind]}" for kind, number in row.faults.items() if number]
    runs = "one run" if asked.seeds == 1 else f"mean of {asked.seeds} runs"
    return f"{asked.days:g} days, {runs}: {', '.join(seen) or 'no faults'}"


def _notes(asked: Asked, faults: Faults, found: Sequence[Goodput]) -> list[str]:
    out = ["Goodput: of the policy's own throughput without faults; what follows are shares of the time."]
    if asked.seeds > 1 and any(row.most > row.least for row in found):
        wide = max(found, key=lambda row: row.most - row.least)
        out.append(
            f"Runs differ: {wide.policy} from {words.percent(wide.least)} to {words.percent(wide.most)}."
        )
    out.append(
        f"Restarts: {show(faults.restart_s, TIME)} and the work since the last checkpoint; one is due every "
        f"{show(faults.checkpoint.interval_s, TIME)}."
    )
    if faults.on_site_loss == "continue":
        out.append(
            "on_site_loss: continue is of the simulator alone: sums over the sites present; the runtime "
            "does not do that. Plain data parallelism always waits."
        )
    return out


def figure(asked: Asked, found: Sequence[Goodput], path: Path) -> None:
    """Bars of the time of each policy."""
    with drawing(path, 1, 1, (6.6, 0.9 + 0.42 * len(found))) as (ax,):
        names = [row.policy for row in found]
        left = [0.0] * len(found)
        for part in PARTS:
            values = [100 * row.lost[part] for row in found]
            ax.barh(names, values, left=left, color=_COLOURS[part], label=part, height=0.62)
            left = [a + b for a, b in zip(left, values, strict=True)]
        most = max(left) or 1.0
        for i, (row, end) in enumerate(zip(found, left, strict=True)):
            ax.text(end + 0.01 * most, i, words.percent(row.goodput), va="center", fontsize=8, color=INK)
        ax.invert_yaxis()
        ax.set_xlim(0, 1.15 * most)
        ax.set_xlabel("lost, % of the time; beside the bar the goodput", color=INK)
        ax.set_title(f"{asked.scenario.name}: {asked.days:g} days with faults", pad=20)
        ax.legend(fontsize=7, ncols=4, loc="lower left", bbox_to_anchor=(0, 1.0), borderaxespad=0.2)
        ax.tick_params(axis="y", length=0)
