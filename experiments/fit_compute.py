"""Fit the step model's global constants to published steps: `python -m experiments.fit_compute`.

Whole models and whole clusters are fitted or held out, never single rows. Prints the error on both; `--write`
replaces `geosim/cost/step/fitted.toml`, `--swap` fits to what is held out otherwise, and holds out the
rest. Needs scipy, which nothing else of the model does.
"""

import datetime
import sys
from dataclasses import dataclass, fields, replace

import numpy as np
from scipy.optimize import least_squares

from geosim.console import run_quietly
from geosim.cost.step.constants import FITTED_FILE, Constants
from geosim.cost.step.step import step_time
from papers.arguments import Arguments
from papers.llm_foundry import rows as llm_foundry
from papers.megatron_2021 import rows as megatron
from papers.rows import Rows
from papers.vtrain import rows as vtrain

# Where each constant starts and how far it may go.
_START_AND_RANGE = {
    "matmul_share": (0.85, 0.5, 0.999),
    "matmul_decay": (0.2, 1e-3, 0.999),
    "attention_share": (0.55, 0.1, 0.999),
    "attention_decay": (0.45, 1e-3, 0.999),
    "memory_traffic": (1.7, 1.0, 6.0),
    "launch_s": (8e-4, 1e-5, 0.1),
    "smoothness": (3.5, 1.0, 40.0),
    "network_share": (0.75, 0.2, 1.0),
    "hop_s": (5e-6, 1e-7, 1e-3),
    "interference": (0.5, 1e-3, 1.0),
}
# Absolute errors count, not squares: tables hold outliers (one row in a series 20 % off its neighbours).
_SOFT = 0.005


@dataclass(frozen=True)
class Table:
    """A published table: its rows, which of them are fitted, and what a table counts in the fit."""

    name: str
    rows: Rows
    fitted: np.ndarray
    said: str
    weight: float = 1.0


def tables() -> list[Table]:
    """All tables. The single-node one counts twice: it alone shows where launching kernels limits a step."""
    single, multi, foundry = vtrain.load("single_node"), vtrain.load("multi_node"), llm_foundry.load()
    return [
        Table("vtrain single-node", single, _of(single, layers=(12, 20)), "models of 12 and 20 layers", 2.0),
        Table("vtrain multi-node", multi, _of(multi, hidden=(3072, 8192)), "models 3.6B and 39.1B"),
        Table(
            "llm-foundry",
            foundry,
            np.isin(foundry.model, ["125m", "1b", "7b", "30b"])
            & np.array(["80GB" in cluster and "FP8" not in cluster for cluster in foundry.cluster]),
            "models 125m, 1b, 7b and 30b on A100 80GB and on H100 in BF16",
        ),
        Table("megatron 2021", megatron.load(2, 1), np.zeros(10, bool), "none", 0.0),
    ]


def swapped(every: list[Table]) -> list[Table]:
    """Each table with the other rows fitted; one of which nothing is fitted stays held out."""
    return [
        replace(table, fitted=~table.fitted, said=f"all but {table.said}") if table.fitted.any() else table
        for table in every
    ]


def _of(rows: Rows, layers: tuple[int, ...] = (), hidden: tuple[int, ...] = ()) -> np.ndarray:
    return np.isin(rows.shape.layers, layers) | np.isin(rows.shape.hidden, hidden)


def errors(table: Table, known: Constants) -> np.ndarray:
    """Predicted over measured step time, less one."""
    rows = table.rows
    return np.asarray(step_time(rows.shape, rows.split, rows.machine, known).total_s / rows.seconds - 1)


def fit(every: list[Table]) -> Constants:
    """Constants that minimise the absolute error of log step time; tables count equally however long."""
    names = [field.name for field in fields(Constants)]
    start, low, high = np.log([_START_AND_RANGE[name] for name in names]).T

    def residuals(x: np.ndarray) -> np.ndarray:
        known = Constants(*np.exp(x).tolist())
        used = [t for t in every if t.fitted.any()]
        return np.concatenate(
            [t.weight * np.log1p(errors(t, known)[t.fitted]) / np.sqrt(t.fitted.sum()) for t in used]
        )

    found = least_squares(residuals, start, bounds=(low, high), loss="soft_l1", f_scale=_SOFT)
    return Constants(*(float(f"{value:.4g}") for value in np.exp(found.x)))


def document(every: list[Table], known: Constants, today: datetime.date) -> str:
    """The text of `fitted.toml`."""
    lines = [
        "# Written by `python -m experiments.fit_compute --write`. Mean absolute errors in per cent.",
        f"date = {today.isoformat()}",
        "",
        "[constants]",
        *(f"{field.name} = {getattr(known, field.name):.4g}" for field in fields(Constants)),
    ]
    for table in every:
        off = 100 * np.abs(errors(table, known))
        lines += ["", "[[table]]", f'name = "{table.name}"', f'fitted = "{table.said}"']
        for name, chosen in (("fitted", table.fitted), ("held_out", ~table.fitted)):
            lines.append(f"rows_{name} = {int(chosen.sum())}")
            if chosen.any():
                lines.append(f"error_{name} = {off[chosen].mean():.1f}")
        lines.append(f"error_all = {off.mean():.1f}")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Fit, print, and write if told to."""
    parser = Arguments("python -m experiments.fit_compute", description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help=f"replace {FITTED_FILE.name}")
    parser.add_argument("--swap", action="store_true", help="fit to the rows held out, hold out the others")
    arguments = parser.parse_args()
    if arguments.swap and arguments.write:
        parser.error("--swap is for comparison: leave out --write")
    every = swapped(tables()) if arguments.swap else tables()
    text = document(every, fit(every), datetime.datetime.now(tz=datetime.UTC).date())
    print(text, end="")
    if arguments.write:
        FITTED_FILE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    sys.exit(run_quietly(main, "fit_compute"))
