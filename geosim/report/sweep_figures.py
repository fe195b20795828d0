"""The figure of a sweep: a line over one field, a heat map over two."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from geosim.errors import UsageError
from geosim.questions.grid import Axis
from geosim.questions.sweep import Row, Sweep
from geosim.report.style import BLUE, GREY, INK, LIGHT, RED, drawing, plain_log_ticks
from geosim.report.words import policy_line
from geosim.units import show

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_WRITTEN = 100  # cells of a heat map that still have room for their number
_LOG_BELOW = 0.25  # the median over the highest value below which an axis is logarithmic
_TICKS = 12
_ROOM = 50  # letters of all ticks of a heat map that stand side by side


def check_axes(sweep: Sweep) -> None:
    """See that a sweep can be drawn.

    Raises:
        UsageError: for more than two axes.
    """
    if len(sweep.axes) > 2:
        raise UsageError(f"--figure: draws one or two fields, not {len(sweep.axes)}: leave some --grid out")


def figure(sweep: Sweep, rows: Sequence[Row], path: Path) -> None:
    """Draw the rows of a sweep over one or two fields; points that do not fit stay empty."""
    blank = float("nan")
    relative = np.array([blank if row["error"] else 100 * row["relative_to_colocated"] for row in rows])
    busy = np.array([blank if row["error"] else 100 * row["compute_utilization"] for row in rows])
    around = sweep.around
    size = (6.0, 3.8) if len(sweep.axes) == 1 else (6.6, 4.6)
    with drawing(path, 1, 1, size) as (ax,):
        if len(sweep.axes) == 1:
            _line(ax, sweep.axes[0], relative, busy)
        else:
            _heat(ax, sweep.axes, relative)
        # What the policy is, unless it is the policy that varies.
        line = "" if any(a.field.startswith("policy.") for a in sweep.axes) else policy_line(around.policy)
        ax.set_title(f"{around.scenario.name} under {around.policy.name}", pad=20 if line else 8)
        ax.text(0, 1.02, line, transform=ax.transAxes, fontsize=8, color=GREY)


def _line(ax: "Axes", axis: Axis, relative: np.ndarray, busy: np.ndarray) -> None:
    x, unit = _scale(axis)
    order = np.argsort(x, kind="stable")
    ax.plot(x[order], relative[order], color=BLUE, marker="o", ms=3.5, label="throughput, of one room's")
    ax.plot(x[order], busy[order], color=RED, marker="s", ms=3, lw=1.1, label="compute utilization")
    if axis.numbers is None:
        ax.set_xticks(*_ticks(axis))
    elif min(x) > 0 and np.median(x) < _LOG_BELOW * max(x):
        plain_log_ticks(ax, "x")
    ax.set_xlabel(f"{axis.field}{f' ({unit})' if unit else ''}")
    ax.set_ylabel("%")
    ax.set_ylim(0, 1.08 * max(100.0, float(np.nanmax(relative, initial=0.0))))
    ax.axhline(100, color=LIGHT, lw=0.8, zorder=0)
    ax.grid(axis="y")
    ax.set_axisbelow(True)
    # Below the axes: curves may lie anywhere between 0 and 100.
    ax.legend(fontsize=8, ncols=2, loc="upper left", bbox_to_anchor=(0, -0.18))


def _scale(axis: Axis) -> tuple[np.ndarray, str]:
    """Where values lie, and the unit of that: the one that the highest value reads best in."""
    if axis.numbers is None:
        return np.arange(len(axis)), ""
    if axis.dimension is None:
        return np.array(axis.numbers), ""
    unit = show(max(axis.numbers), axis.dimension).split()[1]
    return np.array(axis.numbers) / float(axis.dimension.units[unit]), unit


def _ticks(axis: Axis) -> tuple[list[int], list[str]]:
    """Ticks of a field whose values stand side by side, not more than have room."""
    every = -(-len(axis) // _TICKS)
    texts = axis.texts
    if axis.numbers is not None and axis.dimension is not None:
        texts = tuple(show(number, axis.dimension) for number in axis.numbers)
    return list(range(0, len(axis), every)), list(texts[::every])


def _heat(ax: "Axes", axes: Sequence[Axis], relative: np.ndarray) -> None:
    """The first field to the right, the second upwards, throughput as colour and number."""
    right, up = axes
    grid = relative.reshape(len(right), len(up)).T
    top = max(100.0, float(np.nanmax(grid, initial=0.0)))
    picture = ax.imshow(grid, origin="lower", aspect="auto", cmap="cividis", vmin=0, vmax=top)
    if grid.size <= _WRITTEN:
        for (i, j), value in np.ndenumerate(grid):
            if not np.isnan(value):
                colour = INK if value > 0.55 * top else "white"
                ax.text(j, i, f"{value:.3g}", ha="center", va="center", fontsize=7, color=colour)
    ax.set_xticks(*_ticks(right))
    ax.set_yticks(*_ticks(up))
    if sum(len(text) for text in _ticks(right)[1]) > _ROOM:
        ax.tick_params(axis="x", rotation=45)
    ax.set_xlabel(right.field)
    ax.set_ylabel(up.field)
    bar = ax.figure.colorbar(picture, ax=ax)
    bar.set_label("throughput (% of co-located)")
    bar.outline.set_visible(False)
    ax.tick_params(length=0)
    for spine in ax.spines.values():
        spine.set_visible(False)
