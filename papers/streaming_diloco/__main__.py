"""`python -m papers.streaming_diloco`: the table cell by cell, and the figure beside it."""

import sys
from pathlib import Path

from rich.console import Console
from rich.table import Table

from geosim.console import run_quietly
from geosim.report.style import CYCLE, GREY, drawing
from papers.arguments import Arguments
from papers.streaming_diloco.reproduce import DATA, GRID_GBIT, TARGETS, cells, curve, required
from papers.tables import rows

FIGURE = Path(__file__).parent / "required_bandwidth.png"


def print_table() -> None:
    """Published / ours (grid steps between them), Gbit/s, and two variants that are predictions."""
    found = cells()
    table = Table(box=None, pad_edge=False)
    for head in ("model", "method", *(f"{t} %" for t in TARGETS)):
        table.add_column(head, justify="right" if "%" in head else "left")
    for model, method in dict.fromkeys((c.model, c.method) for c in found):
        mine = [c for c in found if (c.model, c.method) == (model, method)]
        table.add_row(model, method, *(f"{c.published:g} / {c.ours:.1f} ({c.steps:+d})" for c in mine))
    console = Console(width=140, highlight=False)
    console.print(table)
    console.print("\nPredicted, not in the table above: streaming, results due one whole step later")
    later = Table(box=None, pad_edge=False)
    for head in ("model", "payload", *(f"{t} %" for t in TARGETS)):
        later.add_column(head, justify="right" if "%" in head else "left")
    for row in (r for r in rows(DATA) if r["method"] == "streaming"):
        for payload in ("16bit", "4bit"):
            reached = curve({**row, "payload": payload}, late_steps=1)
            values = [f"{GRID_GBIT[required(reached, t)]:.1f}" for t in TARGETS]
            later.add_row(row["model"], payload, *values)
    console.print(later)


def draw(path: Path = FIGURE) -> None:
    """Compute utilization over bandwidth: our curves, the published points."""
    table = rows(DATA)
    models = list(dict.fromkeys(row["model"] for row in table))
    with drawing(path, 1, len(models), (10.0, 3.2)) as axes:
        for ax, model in zip(axes, models, strict=True):
            for colour, row in zip(CYCLE, (r for r in table if r["model"] == model), strict=False):
                name = row["method"].replace("_", " ")
                ax.plot(GRID_GBIT, 100 * curve(row), color=colour, label=name)
                ax.plot([float(row[f"cu{t}"]) for t in TARGETS], TARGETS, "o", color=colour, ms=4)
            ax.set_xscale("log")
            ax.set_title(model)
            ax.set_xlabel("bandwidth, Gbit/s")
        axes[0].set_ylabel("compute utilization, %")
        axes[0].plot([], [], "o", color=GREY, ms=4, label="published")
        axes[0].legend(fontsize=7)


def main() -> int:
    """Table and figure."""
    Arguments("python -m papers.streaming_diloco", description=str(__doc__)).parse_args()
    print_table()
    draw()
    return 0


if __name__ == "__main__":
    sys.exit(run_quietly(main, "streaming_diloco"))
