"""Figures from result dictionaries. Each function draws one figure and writes it to a path."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from geosim.report.parts import ALL, parts_of
from geosim.report.style import BLUE, CYCLE, GREY, LIGHT, RED, drawing, plain_log_ticks
from geosim.units import SIZE, TIME, show

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ResultDict = Mapping[str, Any]
Losses = Sequence[tuple[float, float, float]]

_TITLES = {"flat-ddp": "flat DDP", "co-located": "co-located", "chosen": "chosen policy"}
_COLOURS = {"flat-ddp": RED, "co-located": GREY, "chosen": BLUE}
_LEAST_SEEN = 0.002
_ALPHA = {"predicted": 0.45, "measured": 1.0}


def breakdown_figure(
    results: Mapping[str, ResultDict], path: Path | str, title: str = "Where the time of a step goes"
) -> None:
    """Where each millisecond of a step goes: one bar a result, by its label; one a site, for example."""
    with drawing(path, 1, 1, (7.0, 1.6 + 0.4 * len(results))) as (ax,):
        bars(ax, list(results.items()))
        ax.set_title(title)


def predicted_measured_figure(
    points: Sequence[Mapping[str, Any]], path: Path | str, tolerance: float = 0.12
) -> None:
    """Predicted against measured step time.

    Args:
        points: each with `predicted` and `measured` seconds and, for a legend, an optional `group`.
        path: where to write.
        tolerance: half width of the shaded band around equality.
    """
    with drawing(path, 1, 1, (4.6, 4.4)) as (ax,):
        values = [p[key] for p in points for key in ("predicted", "measured")]
        low, high = min(values) / 1.3, max(values) * 1.3
        band = [low, high]
        ax.fill_between(
            band,
            [x * (1 - tolerance) for x in band],
            [x * (1 + tolerance) for x in band],
            color=LIGHT,
            lw=0,
            label=f"within {100 * tolerance:g} %",
        )
        ax.plot(band, band, color=GREY, lw=1, label="equal")
        groups = list(dict.fromkeys(str(p.get("group", "")) for p in points))
        for colour, group in zip(CYCLE * len(groups), groups, strict=False):
            chosen = [p for p in points if str(p.get("group", "")) == group]
            ax.scatter(
                [p["measured"] for p in chosen],
                [p["predicted"] for p in chosen],
                s=24,
                color=colour,
                edgecolor="white",
                linewidth=0.5,
                zorder=3,
                label=group or None,
            )
        ax.set(xlim=band, ylim=band, aspect="equal")
        plain_log_ticks(ax, "x")
        plain_log_ticks(ax, "y")
        ax.set_xlabel("measured step time (s)")
        ax.set_ylabel("predicted step time (s)")
        ax.set_title("Predicted against measured")
        ax.legend(loc="upper left", fontsize=8)


def loss_figure(losses: Mapping[str, Losses], path: Path | str, ylabel: str = "loss (nats a token)") -> None:
    """Loss against tokens and against wall-clock time; each curve is (tokens, seconds, loss) rows."""
    with drawing(path, 1, 2, (8.0, 3.2)) as (left, right):
        loss_curves(left, losses, "tokens", ylabel)
        loss_curves(right, losses, "time", ylabel)


def closed_loop_figure(summary: Mapping[str, Any], path: Path | str) -> None:
    """Prediction beside measurement: the step, throughput, and the loss against tokens and time.

    Args:
        summary: `runs` maps `flat-ddp`, `co-located` and `chosen` to `predicted` and `measured` results
            (either may be missing) and `loss`, rows of (tokens, seconds, loss); `title` is optional.
        path: where to write.
    """
    runs = {name: summary["runs"][name] for name in _TITLES if name in summary["runs"]}
    with drawing(path, 2, 2, (10.0, 6.6)) as (step, rate, by_tokens, by_time):
        rows = [
            (f"{_TITLES[name]}\n{kind}" if kind == "predicted" else kind, run[kind])
            for name, run in runs.items()
            for kind in ("predicted", "measured")
            if run.get(kind)
        ]
        bars(step, rows)
        step.set_title("Step time")
        _throughput(rate, runs)
        losses = {_TITLES[name]: run["loss"] for name, run in runs.items() if run.get("loss")}
        colours = {_TITLES[name]: _COLOURS[name] for name in runs}
        loss_curves(by_tokens, losses, "tokens", "loss (nats a token)", colours)
        loss_curves(by_time, losses, "time", "loss (nats a token)", colours)
        by_tokens.set_title("Loss for equal tokens")
        by_time.set_title("Loss over time")
        if summary.get("title"):
            step.figure.suptitle(summary["title"], x=0.01, ha="left", fontsize=11)


def bars(ax: "Axes", rows: Sequence[tuple[str, ResultDict]]) -> None:
    """Stacked horizontal bars of step parts, first row on top, the total at each bar's end."""
    parts = [parts_of(result) for _, result in rows]
    longest = max(sum(p.values()) for p in parts)
    unit, factor = ("ms", 1e3) if longest < 1 else ("s", 1.0)
    for key, (words, colour, _) in ALL.items():
        if not any(key in p for p in parts):
            continue
        start = [factor * sum(p.get(k, 0.0) for k in _before(key)) for p in parts]
        width = [factor * p.get(key, 0.0) for p in parts]
        seen = max(width) > _LEAST_SEEN * factor * longest
        ax.barh(
            range(len(rows)),
            width,
            left=start,
            height=0.7,
            color=colour,
            label=words if seen else "_nolegend_",
        )
    for y, p in enumerate(parts):
        total = sum(p.values())
        ax.text(factor * (total + 0.01 * longest), y, show(total, TIME), va="center", fontsize=8)
    ax.set_yticks(range(len(rows)), [label for label, _ in rows])
    ax.tick_params(axis="y", length=0)
    ax.invert_yaxis()
    ax.set_xlim(0, 1.12 * factor * longest)
    ax.set_xlabel(f"time a step ({unit})")
    ax.legend(ncols=3, fontsize=8, loc="upper left", bbox_to_anchor=(0, -0.16 - 0.3 / len(rows)))


def loss_curves(
    ax: "Axes",
    losses: Mapping[str, Losses],
    against: str,
    ylabel: str,
    colours: Mapping[str, str] | None = None,
) -> None:
    """One curve a run against `tokens` or `time`, named at its end."""
    longest = max(
        (row[0 if against == "tokens" else 1] for rows in losses.values() for row in rows), default=0
    )
    unit, factor = _token_unit(longest) if against == "tokens" else _time_unit(longest)
    for i, (name, rows) in enumerate(losses.items()):
        x = [row[0 if against == "tokens" else 1] / factor for row in rows]
        colour = colours[name] if colours else CYCLE[i % len(CYCLE)]
        # Curves that coincide stay visible: each is thinner than the one below it.
        ax.plot(x, [row[2] for row in rows], color=colour, label=name, lw=max(1.1, 3.2 - i))
    ax.grid(axis="y")
    ax.set_axisbelow(True)
    ax.set_xlim(left=0)
    ax.set_xlabel(f"tokens ({unit})" if against == "tokens" else f"wall-clock time ({unit})")
    ax.set_ylabel(ylabel)
    if losses:
        ax.legend(fontsize=8, loc="upper right")


def _throughput(ax: "Axes", runs: Mapping[str, Mapping[str, Any]]) -> None:
    """Throughput relative to co-located, predicted beside measured, and the bytes each run sends."""
    labels = []
    for x, (name, run) in enumerate(runs.items()):
        for offset, kind in ((-0.2, "predicted"), (0.2, "measured")):
            if run.get(kind):
                value = 100 * run[kind]["relative_to_colocated"]
                ax.bar(x + offset, value, width=0.36, color=_COLOURS[name], alpha=_ALPHA[kind])
                ax.text(x + offset, value + 1, f"{value:.3g}", ha="center", va="bottom", fontsize=8)
        links = (run.get("measured") or run["predicted"])["links"]
        sent = sum(link["bytes_per_step"] for link in links.values())
        labels.append(f"{_TITLES[name]}\n{show(sent, SIZE)}")
    for kind, alpha in _ALPHA.items():
        ax.bar([0], [0], color=GREY, alpha=alpha, label=kind)
    ax.set_xticks(range(len(runs)), labels)
    ax.tick_params(axis="x", length=0)
    ax.set_ylim(0, 125)
    ax.set_yticks([0, 25, 50, 75, 100])
    ax.axhline(100, color=LIGHT, lw=0.8, zorder=0)
    ax.set_xlabel("below each name: bytes over the WAN a step")
    ax.set_ylabel("throughput (% of co-located)")
    ax.set_title("Throughput")
    ax.legend(ncols=2, fontsize=8, loc="upper left")


def _before(key: str) -> list[str]:
    """The parts stacked below one."""
    return list(ALL)[: list(ALL).index(key)]


def _token_unit(longest: float) -> tuple[str, float]:
    for unit, factor in (("billions", 1e9), ("millions", 1e6), ("thousands", 1e3)):
        if longest >= factor:
            return unit, factor
    return "tokens", 1.0


def _time_unit(longest: float) -> tuple[str, float]:
    for unit, factor in (("h", 3600.0), ("min", 60.0)):
        if longest >= 2 * factor:
            return unit, factor
    return "s", 1.0
