"""`python -m papers.streaming_diloco`: the table cell by cell, and the figure beside it."""

from pathlib import Path

from rich.console import Console
from rich.table import Table

from geosim.report.style import CYCLE, GREY, drawing
from papers.streaming_diloco.reproduce import _DATA, GRID_GBIT, TARGETS, cells, curve
from papers.tables import rows

FIGURE = Path(__file__).parent / "required_bandwidth.png"


def print_table() -> None:
    """Published / ours (grid steps between them), Gbit/s."""
    found = cells()
    table = Table(box=None, pad_edge=False)
    for head in ("model", "method", *(f"{t} %" for t in TARGETS)):
        table.add_column(head, justify="right" if "%" in head else "left")
    for model, method in dict.fromkeys((c.model, c.method) for c in found):
        mine = [c for c in found if (c.model, c.method) == (model, method)]
        table.add_row(model, method, *(f"{c.published:g} / {c.ours:.1f} ({c.steps:+d})" for c in mine))
    Console(width=120, highlight=False).print(table)


def draw(path: Path = FIGURE) -> None:
    """Compute utilization over bandwidth: our curves, the published points."""
    table = rows(_DATA)
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


if __name__ == "__main__":
    print_table()
    draw()
