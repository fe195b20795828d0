"""The simulator comes down to the paper's formulas, and leaves them where its limits are left."""

import pytest

from geosim.policy import Delayed
from papers.diloco_scaling_laws import formulas
from papers.diloco_scaling_laws import reproduce as laws

N, R, H = laws._N, laws._RANKS, laws._H


@pytest.mark.parametrize("network", formulas.NETWORKS)
def test_a_simulated_step_is_the_sum_of_the_papers_parts(network):
    w1, eps1 = formulas.NETWORKS[network]
    result = laws.run_diloco(w1, eps1)
    inner = formulas.diloco_inner(N, R, laws._M, *formulas.NETWORKS["high"])
    total = result.parts["compute"] + inner + formulas.diloco_outer(N, R, H, w1, eps1)
    assert result.step_time_s.mean == pytest.approx(total, rel=1e-6)


@pytest.mark.parametrize("network", formulas.NETWORKS)
def test_so_is_one_of_data_parallelism(network):
    w1, eps1 = formulas.NETWORKS[network]
    result = laws.run_data_parallel(w1, eps1)
    total = result.parts["compute"] + formulas.data_parallel(N, R, w1, eps1)
    assert result.step_time_s.mean == pytest.approx(total, rel=1e-9)


def test_overlap_drops_the_outer_part_only_while_compute_covers_it():
    w1, eps1 = formulas.NETWORKS["low"]
    assert laws.run_diloco(w1, eps1, Delayed()).exposed_wan_s_per_step == 0
    slow = laws.run_diloco(w1 / 10, eps1, Delayed()).exposed_wan_s_per_step
    assert 0 < slow < formulas.diloco_outer(N, R, H, w1 / 10, eps1)


def test_streaming_costs_what_diloco_does_where_only_bytes_count():
    assert laws.streaming_over_vanilla() == pytest.approx(1, rel=1e-5)
