"""All 45 cells of the published table, and what they turn on."""

from pathlib import Path

import numpy as np
import pytest

import papers.streaming_diloco as streaming
from papers.streaming_diloco.__main__ import draw, print_table
from papers.streaming_diloco.reproduce import GRID_GBIT, cells, curve
from papers.tables import rows

FOUND = cells()
TABLE = Path(streaming.__file__).parent / "required_bandwidth.csv"


@pytest.mark.parametrize("cell", FOUND, ids=lambda c: f"{c.model}-{c.method}-{c.target}")
def test_every_cell_within_one_grid_step(cell):
    assert abs(cell.steps) <= 1


def test_there_are_45_cells_and_most_are_exact():
    assert len(FOUND) == 45
    assert sum(c.steps == 0 for c in FOUND) >= 40


def test_published_values_lie_on_the_grid():
    rounded = np.round(GRID_GBIT, 1)
    # The paper prints some values a tenth off the grid's own rounding.
    assert all(np.abs(rounded - c.published).min() <= 0.11 for c in FOUND)


def test_it_turns_on_when_results_are_due():
    """Due one whole step later, streaming needs less than half in most cells."""
    late = [c.ours / c.published for c in cells(late_steps=1) if c.method == "streaming"]
    assert sum(ratio < 0.7 for ratio in late) >= 10


def test_four_bits_need_a_quarter():
    row = next(r for r in rows(TABLE) if r["method"] == "streaming")
    assert np.interp(50.0, 100 * curve(row), GRID_GBIT) == pytest.approx(
        4 * np.interp(50.0, 100 * curve({**row, "payload": "4bit"}), GRID_GBIT), rel=0.02
    )


def test_table_and_figure(tmp_path, capsys):
    print_table()
    assert len(capsys.readouterr().out.splitlines()) >= 10
    draw(tmp_path / "figure.png")
    assert (tmp_path / "figure.png").stat().st_size > 10_000
