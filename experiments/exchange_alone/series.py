"""How connections settle: one exchange after another, measured and by the window model.

python -m experiments.exchange_alone.series             # from the committed results, a minute
python -m experiments.exchange_alone.series --measure   # anew, 6 minutes
"""

from pathlib import Path
from statistics import median
from typing import Annotated, Any

import typer
from rich.table import Table

from experiments.console import console, run_app
from experiments.exchange_alone.grid import GRID, Point
from experiments.exchange_alone.measure import measure
from experiments.exchange_alone.predict import by_law, exchanges_of
from experiments.exchange_alone.store import RESULTS, load, save
from geosim.commands.shared import check_figure
from geosim.errors import UsageError
from geosim.report.style import BLUE, GREY, RED, drawing

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
SERIES = RESULTS.with_name("exchange_alone_series.json")
_NAMES = (
    "cubic-1000M-200ms-16MiB-x4-settled",
    "cubic-1000M-40ms-16MiB-x4-settled",
    "cubic-200M-100ms-4MiB-x1-settled",
    "cubic-50M-200ms-4MiB-x1-settled",
)
_YOUNG, _SETTLED = slice(1, 4), slice(40, 45)


def measured(row: dict[str, Any]) -> list[float]:
    """Seconds of all exchanges of a settled point, from the first one on."""
    return [*row["before_s"][0], *row["seconds"]]


@app.command()
def series(
    anew: Annotated[bool, typer.Option("--measure", help="measure first")] = False,
    figure: Annotated[Path | None, typer.Option(help="draw it, too")] = None,
) -> None:
    """Say what young and settled connections take."""
    points = [next(p for p in GRID if p.name == name) for name in _NAMES]
    if figure is not None:
        check_figure(figure)
    known = load(SERIES)
    for point in points if anew else ():
        console.print(f"measuring {point.name}")
        known[point.name] = measure(point, lambda done, of: None)
        save(SERIES, known)
    missing = [point.name for point in points if point.name not in known]
    if missing:
        raise UsageError(f"{SERIES}: holds no {missing[0]}: add --measure")
    table = Table(box=None, pad_edge=False)
    for head in ("", "first", "young", "settled", "window model: young", "settled", "law"):
        table.add_column(head, justify="right" if head else "left")
    both = {}
    for point in points:
        seen, said = measured(known[point.name]), exchanges_of(point, _SETTLED.stop)
        both[point.name] = seen, said
        cells = [seen[0], median(seen[_YOUNG]), median(seen[_SETTLED])]
        cells += [median(said[_YOUNG]), median(said[_SETTLED]), by_law(point, point.repeats)]
        table.add_row(point.name.removesuffix("-settled"), *(f"{cell:.3f} s" for cell in cells))
    console.print(table)
    if figure is not None:
        _draw(points, both, figure)


def _draw(points: list[Point], both: dict[str, tuple[list[float], list[float]]], path: Path) -> None:
    with drawing(path, 1, len(points), (3.1 * len(points), 3.0)) as axes:
        for ax, point in zip(axes, points, strict=True):
            seen, said = both[point.name]
            ax.plot(range(1, len(seen) + 1), seen, color=BLUE, marker="o", ms=3, lw=1, label="measured")
            ax.plot(range(1, len(said) + 1), said, color=RED, lw=1, label="window model")
            ax.axhline(by_law(point, point.repeats), color=GREY, lw=1, ls="--", label="law")
            ax.set(ylim=(0, None), xlabel="exchange", title=point.name.removesuffix("-settled"))
            ax.title.set_fontsize(9)
        axes[0].set_ylabel("seconds")
        axes[0].legend(loc="upper right", fontsize=8)


def main() -> None:
    """Console entry."""
    run_app(app, "exchange_alone.series")


if __name__ == "__main__":
    main()
