"""Percentiles of a result are numpy's, over the windows of all seeds."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from geosim.cost import build
from geosim.policy import load_policy
from geosim.scenario import load_scenario
from geosim.sim.record import PARTS, Record
from geosim.sim.result import summarize

PROBLEM = build(load_scenario("laptop"), load_policy("local-sgd"))


@given(st.lists(st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=30), min_size=1, max_size=3))
def test_they_are_numpys_over_all_windows(seeds):
    parts = dict.fromkeys(PARTS, 0.1)
    sites = tuple(parts for _ in PROBLEM.sites)
    records = [
        Record(np.array(steps), np.array(steps[:1]), parts, len(steps), sum(steps), np.ones(2), sites)
        for steps in seeds
    ]
    found = summarize(PROBLEM, records, 1).step_time_s
    whole = np.concatenate([record.step_s for record in records])
    assert (found.p50, found.p95, found.p99) == pytest.approx(tuple(np.percentile(whole, (50, 95, 99))))
