"""Figures: measured exchanges against predicted ones, and windows over time, measured and simulated."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from geosim.report.style import BLUE, GREEN, GREY, LIGHT, RED, drawing, plain_log_ticks

_COLOURS = {"cubic": BLUE, "bbr": RED, "reno": GREEN}
_BAND = 0.25


def comparison_figure(rows: Sequence[dict[str, Any]], windows: dict[str, Any] | None, path: Path) -> None:
    """Predicted against measured, and one connection's window.

    Args:
        rows: of `compare.rows_of`; those over sockets are drawn.
        windows: `name` of a point, `measured` and `simulated`: (second, segments) of its first exchange's
            sender; None leaves the panel out.
        path: where to write.
    """
    panels = 1 if windows is None else 2
    with drawing(path, 1, panels, (4.6 * panels, 4.2)) as axes:
        _scatter(axes[0], [row for row in rows if row["carrier"] == "sockets"])
        if windows is not None:
            ax = axes[1]
            for kind, colour in (("measured", BLUE), ("simulated", RED)):
                times, sizes = zip(*windows[kind], strict=True)
                ax.step([1e3 * t for t in times], sizes, where="post", color=colour, label=kind, lw=1.4)
            ax.set(
                xlabel="since the exchange began (ms)", ylabel="congestion window (segments)", ylim=(0, None)
            )
            ax.set_title(windows["title"])
            ax.legend(loc="upper left", fontsize=8)


def _scatter(ax: Any, rows: list[dict[str, Any]]) -> None:
    values = [row[f"{kind}_s"] for row in rows for kind in ("measured", "windows")]
    ends = [min(values) / 1.3, max(values) * 1.3]
    ax.fill_between(
        ends, [x * (1 - _BAND) for x in ends], [x * (1 + _BAND) for x in ends], color=LIGHT, lw=0,
        label=f"within {100 * _BAND:g} %",
    )  # fmt: skip
    ax.plot(ends, ends, color=GREY, lw=1)
    for lossy, marker in ((False, "o"), (True, "^")):
        for algorithm, colour in _COLOURS.items():
            some = [r for r in rows if r["name"].startswith(algorithm) and r["lossy"] == lossy]
            if some:
                ax.scatter(
                    [r["measured_s"] for r in some], [r["windows_s"] for r in some], s=18, color=colour,
                    marker=marker, edgecolor="white", linewidth=0.4, zorder=3,
                    label=algorithm + (", with loss" if lossy else ""),
                )  # fmt: skip
    ax.set(xlim=ends, ylim=ends, aspect="equal")
    plain_log_ticks(ax, "x")
    plain_log_ticks(ax, "y")
    ax.set(xlabel="measured exchange (s)", ylabel="window model (s)", title="One exchange alone")
    ax.legend(loc="upper left", fontsize=8)
