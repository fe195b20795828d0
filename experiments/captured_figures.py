"""Figures of `experiments.captured_energy`, and the words that they share with its tables."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from geosim.report.style import BLUE, GREEN, GREY, PURPLE, RED, drawing

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Result = Mapping[str, Any]
UPDATES = {"gradient": "gradient", "change": "parameter change", "noise": "Gaussian noise"}
_NAMES = {"fragment": "whole\nmodel", "piece": "each\ntensor", "random-k": "random"}
# Stages of training follow each other, so their colours do: light to dark.
_STAGES = ("#A9CFE5", "#56A5D1", BLUE, "#00334F")
_SCOPES = {"fragment": BLUE, "piece": RED, "4096": GREEN, "256": PURPLE}
_SHOWN = 0.01


def energy_figure(result: Result, path: Path) -> None:
    """Energy kept at 1 % by scope, for gradients and for changes, and by the share that travels."""
    with drawing(path, 1, 3, (12.0, 3.7)) as (gradients, changes, ratios):
        _by_scope(gradients, result, "gradient")
        gradients.set_title("Gradients, 1 % kept")
        gradients.set_ylabel("share of the squared norm (%)")
        gradients.legend(fontsize=8, loc="upper right")
        _by_scope(changes, result, "change")
        changes.set_title(f"Changes of {result['window']} steps, 1 % kept")
        _by_ratio(ratios, result)
        for ax in (gradients, changes, ratios):
            ax.set_ylim(0, 103)
            ax.grid(axis="y")
            ax.set_axisbelow(True)


def value_figure(result: Result, path: Path) -> None:
    """What quantizing the kept values costs, by scale group."""
    step = middle_step(result)
    rows = [r for r in result["values"] if (r["update"], r["step"]) == ("gradient", step)]
    with drawing(path, 1, 2, (9.6, 3.5)) as (errors, zeros):
        for row in rows:
            style: dict[str, Any] = {
                "color": _SCOPES[row["scope"]],
                "ls": "-" if row["format"] == "int8" else "--",
            }
            label = f"{row['format']}, {_inline(row['scope'])}"
            for ax, key in ((errors, "squared_error"), (zeros, "zero_share")):
                y = [100 * value for value in row[key].values()]
                ax.plot(y, marker="o", ms=4, clip_on=False, label=label, **style)
        for ax in (errors, zeros):
            groups = list(rows[0]["squared_error"])
            names = [f"{int(group):,}" if group.isdigit() else "all of\na section" for group in groups]
            ax.set_xticks(range(len(groups)), names)
            ax.set_xlabel("values that share a scale")
            ax.grid(axis="y")
            ax.set_axisbelow(True)
        errors.set(yscale="log", ylabel="squared error over squared norm (%)")
        errors.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        errors.set_title("Error of the kept values")
        zeros.set(ylabel="share of the kept values (%)", ylim=(0, None))
        zeros.set_title("Kept values that become 0")
        zeros.legend(fontsize=8, loc="center left", bbox_to_anchor=(1.02, 0.5))


def middle_step(result: Result) -> int:
    """The step that stands for all where there is room for one."""
    return result["steps"][len(result["steps"]) // 2]


def name_of(scope: str) -> str:
    """A scope's name in a heading, of one or two lines."""
    return _NAMES.get(scope) or f"{int(scope):,}"


def _inline(scope: str) -> str:
    return f"blocks of {name_of(scope)}" if scope.isdigit() else name_of(scope).replace("\n", " ")


def _by_scope(ax: "Axes", result: Result, kind: str) -> None:
    rows = [r for r in result["captured"] if r["ratio"] == _SHOWN]
    noise = next(r for r in rows if r["update"] == "noise")
    for colour, row in zip(_STAGES, (r for r in rows if r["update"] == kind), strict=False):
        _with_random(ax, row, color=colour, marker="o", ms=4, label=f"step {row['step']}")
    _with_random(ax, noise, color=GREY, marker="s", ms=3, lw=1, ls="--", label="Gaussian noise")
    names = [name_of(scope) for scope in noise["energy_share"]]
    ax.set_xticks(range(len(names)), names, fontsize=8)
    ax.set_xlabel("chosen in (numbers: blocks of so many)")


def _with_random(ax: "Axes", row: Result, **style: Any) -> None:
    """A line over the scopes; random-k, which is no scope, stands apart."""
    *y, drawn = (100 * share for share in row["energy_share"].values())
    ax.plot(y, **style)
    ax.plot([len(y)], [drawn], **{**style, "label": "_nolegend_"})


def _by_ratio(ax: "Axes", result: Result) -> None:
    step = middle_step(result)
    rows = [r for r in result["captured"] if (r["update"], r["step"]) == ("gradient", step)]
    for scope, colour in _SCOPES.items():
        x = [100 * result["kept_share"][f"{r['ratio']:g}"][scope] for r in rows]
        y = [100 * r["energy_share"][scope] for r in rows]
        ax.plot(x, y, "o-", ms=4, color=colour, label=_inline(scope))
    ax.set_xscale("log")
    ax.set_xticks([0.1, 1, 10], ["0.1", "1", "10"])
    ax.minorticks_off()
    ax.set_xlabel("values that travel (%)")
    ax.set_title(f"Gradient at step {step}")
    ax.legend(fontsize=8, loc="center left", bbox_to_anchor=(1.02, 0.5))
