"""The required-bandwidth table of Streaming DiLoCo (arXiv 2501.18512, table 4) from our layer graph.

Assumptions, all of them: a model is L equal layers; a layer's time is a third each forward, backward by
activation and backward by weight; one first-in first-out link each way without latency; 16 bits a parameter
cross once an exchange; bandwidths are those of the paper's grid, and a table's entry is the last one with
which the target is not yet reached.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from geosim.cost.layers import make_graph, utilization
from geosim.params import ParamSpec, ParamTable
from geosim.policy import E3M0, Blocking, Cast, Codec, Layout, Local, Streaming, SyncPolicy, make_layout
from papers.tables import rows

DATA = Path(__file__).parent / "required_bandwidth.csv"
GRID_GBIT = np.logspace(-1, 3, 50)
TARGETS = (50, 80, 90, 95, 99)
_PARAMETERS = {"1B": 1e9, "10B": 1e10, "100B": 1e11}
_LAYERS_A_FRAGMENT = 3
_PAYLOAD = {"16bit": Cast(kind="bf16"), "4bit": E3M0(group="section")}
_SHORT = {"data_parallel": "DP", "vanilla_diloco": "DL", "streaming": "ST"}


@dataclass(frozen=True)
class Cell:
    """One entry of the table: Gbit/s, and how many grid steps ours is from it."""

    model: str
    method: str
    target: int
    published: float
    ours: float
    steps: int


def make_case(row: dict[str, str], late_steps: int = 0) -> tuple[Layout, float]:
    """A row's layout, and its step time; `late_steps` more of overlap for streaming."""
    layers = int(row["layers"])
    numel = round(_PARAMETERS[row["model"]] / layers)
    table = ParamTable((ParamSpec("blocks.{layer}.weight", (numel,), "bf16", 0, layers),))
    streamed = Streaming(
        fragments=layers // _LAYERS_A_FRAGMENT, steps=int(row["tau_overlap_steps"]) + late_steps
    )
    policy = SyncPolicy(
        update=Local(),
        interval=int(row["H"]),
        codec=Codec(quantize=_PAYLOAD[row["payload"]]),
        overlap=streamed if row["method"] == "streaming" else Blocking(),
    )
    return make_layout(table, policy, 1), float(row["step_time_s"])


def curve(row: dict[str, str], late_steps: int = 0) -> np.ndarray:
    """Compute utilization at every bandwidth of the grid."""
    layout, step_s = make_case(row, late_steps)
    return utilization(make_graph(layout, step_s), layout, GRID_GBIT * 1e9 / 8)


def required(reached: np.ndarray, target: float) -> int:
    """The last place of the grid with which a target in per cent is not yet reached."""
    return int(np.flatnonzero(reached < target / 100).max())


def cells(late_steps: int = 0) -> list[Cell]:
    """The whole table."""
    out = []
    for row in rows(DATA):
        reached = curve(row, late_steps)
        for target in TARGETS:
            published = float(row[f"cu{target}"])
            there = int(np.argmin(np.abs(np.log(GRID_GBIT / published))))
            here = required(reached, target)
            ours = float(GRID_GBIT[here])
            out.append(Cell(row["model"], row["method"], target, published, ours, here - there))
    return out


def reproduce() -> dict[str, float]:
    """Our value of every claim: the largest distance of a row's five cells, and cells by distance."""
    found = cells()
    out: dict[str, float] = {}
    for cell in found:
        key = f"SD-{_SHORT[cell.method]}-{cell.model}"
        out[key] = max(out.get(key, 0), abs(cell.steps))
    late = [abs(c.steps) for c in cells(late_steps=1) if c.method == "streaming"]
    return out | {
        "SD-within": sum(abs(c.steps) <= 1 for c in found),
        "SD-exact": sum(c.steps == 0 for c in found),
        "late": max(late),
    }
