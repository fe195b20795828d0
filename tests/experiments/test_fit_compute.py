"""The committed constants are what the committed script fits, and models are held out whole."""

import datetime

import numpy as np
import pytest

from experiments.fit_compute import document, fit, tables
from geosim.cost.step.constants import FITTED_FILE, fitted


@pytest.fixture(scope="module")
def every() -> list:
    return tables()


def test_the_committed_file_is_what_the_script_writes(every: list) -> None:
    text = FITTED_FILE.read_text(encoding="utf-8")
    date = datetime.date.fromisoformat(text.split("date = ")[1].split("\n")[0])
    assert document(every, fitted(), date) == text


def test_fitting_again_finds_the_committed_constants(every: list) -> None:
    """Within 2 %: the last digits depend on the version of scipy."""
    found = fit(every)
    for name, value in vars(fitted()).items():
        assert getattr(found, name) == pytest.approx(value, rel=0.02), name


def test_no_model_of_a_cluster_is_split(every: list) -> None:
    for table in every:
        labels = np.char.add(table.rows.model, table.rows.cluster)
        if table.name == "vtrain multi-node" or table.name == "vtrain single-node":
            labels = table.rows.model
        assert not set(labels[table.fitted]) & set(labels[~table.fitted])
