"""1-bit Adam's throughput: the bar, and that each constant does what it says."""

import pytest

from papers.onebit_adam import reproduce as onebit

FOUND = onebit.table()


def test_the_bar():
    assert len(FOUND) == 16
    assert sum(abs(row.error) for row in FOUND) / len(FOUND) <= 0.15
    assert max(abs(row.error) for row in FOUND) <= 0.30


def test_one_gpu_sends_nothing():
    assert onebit.adam_s(1) == 0
    assert onebit.onebit_s(1) == 0


def test_compression_pays_across_nodes_only_where_the_network_is_slow():
    fast = 100e9
    assert onebit.adam_s(16) > 5 * onebit.onebit_s(16)
    assert onebit.adam_s(16, one_flow=fast) < 2.5 * onebit.onebit_s(16, one_flow=fast, many_flows=1.0)


@pytest.mark.parametrize("gpus", [8, 16, 64])
def test_an_all_reduce_cannot_beat_its_bytes(gpus):
    assert onebit.adam_s(gpus) >= 2 * (gpus - 1) / gpus * 2 * onebit.PARAMETERS / (4.1e9 / 8)
