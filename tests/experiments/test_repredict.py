"""What is put together again from a kept prediction is that prediction, but for the exchange."""

import json

import pytest

from experiments.repredict import RESULTS, predict
from geosim.scenario import load_scenario

DATA = json.loads(RESULTS.read_text())


@pytest.mark.parametrize("number", [5, 9, 14, 24, 26, 34, 36, 37])
def test_all_but_the_exchange_is_as_it_was_predicted(number):
    row = DATA["points"][number - 1]
    again = predict(row, load_scenario(DATA["scenario"]))
    was = row["step_predicted_s"] - row["exposed_predicted_s"]
    assert again["step_s"] - again["exposed_s"] == pytest.approx(was, rel=0.01)


def test_with_its_own_parts_a_run_differs_by_the_exchange_alone():
    row = DATA["points"][8]
    again = predict(row, load_scenario(DATA["scenario"]), own_parts=True)
    assert again["step_s"] == pytest.approx(row["step_measured_s"], rel=0.02)
