"""Field runs: the table's own arithmetic, and the laws behind what is predicted."""

from pathlib import Path

import numpy as np
import pytest

from papers.field_runs import chips, reproduce
from papers.field_runs.ring import HIGH, Ring, slowest_for
from papers.tables import rows

TABLE = rows(Path(reproduce.__file__).parent / "runs.csv")


def test_every_run_that_has_times_and_a_utilization_agrees_with_itself():
    checked = 0
    for row in TABLE:
        if row["compute_s_per_round"] and row["sync_s"] and row["CU_pct"]:
            compute, sync = float(row["compute_s_per_round"]), float(row["sync_s"])
            assert 100 * compute / (compute + sync) == pytest.approx(float(row["CU_pct"]), rel=0.002)
            checked += 1
    assert checked == 5


def test_a_ring_takes_the_longer_the_slower_its_slowest_link_and_the_longer_its_round_trip():
    shares = np.full(14, 0.5)
    slower = shares.copy()
    slower[7] = 0.2
    assert Ring(14, 0.05).time(slower) > Ring(14, 0.05).time(shares)
    times = [Ring(14, rtt).time(np.ones(14)) for rtt in (0.02, 0.1, 0.2, 0.4)]
    assert times == sorted(times)
    assert times[3] / times[2] == pytest.approx(2, rel=0.01)  # bytes in flight limit


def test_without_a_limit_in_flight_the_slowest_edge_is_what_the_time_implies():
    took = Ring(14, 0.005).time(np.full(14, 0.25))
    assert slowest_for(14, took) == pytest.approx(HIGH * 0.25 * 8e-9 * 1448 / 1500, rel=0.02)


def test_one_job_loses_more_than_places_that_go_on():
    for hours in (30_000.0, 100_000.0):
        assert chips.goodput(hours, False) < chips.goodput(hours, True) < 1
    assert chips.goodput(100_000.0, False) > chips.goodput(30_000.0, False)
