"""How figures look: colours that stay apart for colour-blind readers, thin axes, no decoration."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from geosim.errors import UsageError
from geosim.files import whole_file

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Okabe and Ito (2008), with greys for what is always there.
BLUE, ORANGE, GREEN, RED, SKY, PURPLE = "#0072B2", "#E69F00", "#009E73", "#D55E00", "#56B4E9", "#CC79A7"
YELLOW = "#F0E442"
GREY, LIGHT, INK = "#8C8C8C", "#D9D9D9", "#222222"
CYCLE = (BLUE, RED, GREEN, PURPLE, ORANGE, SKY)

_SETTINGS: Any = {
    "figure.dpi": 150,
    "savefig.dpi": 150,
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": GREY,
    "axes.labelcolor": INK,
    "axes.grid": False,
    "grid.color": LIGHT,
    "grid.linewidth": 0.6,
    "xtick.color": INK,
    "ytick.color": INK,
    "text.color": INK,
    "legend.frameon": False,
    "lines.linewidth": 1.6,
}


@contextmanager
def drawing(path: Path | str, rows: int, columns: int, size: tuple[float, float]) -> "Iterator[list[Axes]]":
    """A figure without a window: yields its axes in reading order, then writes it to `path`.

    Raises:
        UsageError: if matplotlib is not installed or the file cannot be written.
    """
    try:
        import matplotlib as mpl
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise UsageError("figures need matplotlib: pip install -e '.[docs]'") from None
    path = Path(path)
    with mpl.rc_context(_SETTINGS):
        figure = Figure(figsize=size, layout="constrained")
        FigureCanvasAgg(figure)
        yield list(figure.subplots(rows, columns, squeeze=False).flat)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with whole_file(path) as part:
                figure.savefig(part)
        except OSError as error:
            raise UsageError(f"{path}: cannot write: {error.strerror}") from None


def plain_log_ticks(ax: "Axes", which: Literal["x", "y"]) -> None:
    """A logarithmic axis: ticks at 1, 2 and 5 of each decade, or at the decades of many, as plain numbers."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axis = ax.xaxis if which == "x" else ax.yaxis
    ax.set(**{f"{which}scale": "log"})
    low, high = axis.get_view_interval()
    subs = (1.0, 2.0, 5.0) if high / low < 300 else (1.0,)
    axis.set_major_locator(LogLocator(subs=subs))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())
    ax.tick_params(axis=which, which="both", colors=INK)
