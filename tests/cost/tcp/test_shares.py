"""The table of shares: the window model's, and in the order that laws of the transport rest on."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments import two_way_shares as table
from geosim.cost.tcp.shares import DEPTHS, FLOWS, LENGTHS, SHARES, share_of, shares_at, two_way_shares
from geosim.cost.transport import make_path
from geosim.scenario import WanLink

ALGORITHMS = st.sampled_from(("cubic", "reno", "bbr"))
DEPTH = st.floats(0.01, 1e3)  # of the queue, in bandwidth-delay products
LENGTH = st.floats(0.1, 1e3)  # of an exchange, in the same
FACTOR = st.one_of(st.floats(1.0, 1.01), st.floats(1.0, 10.0))
COUNTS = st.integers(1, 20)


def share_at(algorithm: str, depth: float, length: float, flows: int) -> float:
    by_length = tuple(two_way_shares(algorithm, 1.0, depth, known) for known in LENGTHS)
    return float(share_of(shares_at(by_length, length), flows))


def test_the_table_is_the_nearest_one_in_order_to_what_the_committed_exchanges_say() -> None:
    wanted = table.means(table.load())
    shares = table.in_order(wanted)
    for (algorithm, length, flows, depth), share in shares.items():
        entry = SHARES[algorithm][LENGTHS.index(length)][FLOWS.index(flows)][DEPTHS.index(depth)]
        assert entry == pytest.approx(share, abs=0.0011)
    moved = [abs(shares[entry] - wanted[entry]) for entry in shares]
    assert len(moved) == 3 * len(LENGTHS) * len(FLOWS) * len(DEPTHS)
    assert sum(moved) / len(moved) < 0.02


@pytest.mark.parametrize(
    "case",
    [
        ("cubic", 6, 2, 1.0, 170, 0.02), ("cubic", 12, 1, 1.0, 170, 0.02), ("cubic", 24, 1, 4.0, 170, 0.02),
        ("reno", 6, 1, 4.0, 170, 0.02), ("bbr", 24, 2, 1.0, 170, 0.02), ("bbr", 6, 8, 0.5, 500, 0.06),
    ],
)  # fmt: skip
def test_the_committed_exchanges_are_the_window_models(case: table.Case) -> None:
    assert table.simulated(case, 1) == pytest.approx(table.load()[case][1], rel=1e-6)


def test_all_cases_are_committed() -> None:
    assert list(table.load()) == table.cases()


@given(ALGORITHMS, DEPTH, LENGTH, COUNTS, FACTOR)
def test_a_deeper_queue_never_lowers_a_share(
    algorithm: str, depth: float, length: float, flows: int, factor: float
) -> None:
    share = share_at(algorithm, depth, length, flows)
    assert 0.3 <= share <= 1
    assert share_at(algorithm, depth * factor, length, flows) >= share * (1 - 1e-12)


@given(ALGORITHMS, DEPTH, LENGTH, COUNTS, FACTOR)
def test_a_shorter_way_never_lowers_a_share(
    algorithm: str, depth: float, length: float, flows: int, factor: float
) -> None:
    """With the same queue, or with one of a bandwidth-delay product; more bandwidth takes the other way."""
    share = share_at(algorithm, depth, length, flows)
    assert share_at(algorithm, depth * factor, length * factor, flows) >= share * (1 - 1e-12)
    of_a_product = share_at(algorithm, 1.0, length, flows)
    assert share_at(algorithm, 1.0, length * factor, flows) >= of_a_product * (1 - 1e-12)


@given(ALGORITHMS, DEPTH, LENGTH, COUNTS, FACTOR)
def test_more_rate_never_carries_less(
    algorithm: str, depth: float, length: float, flows: int, factor: float
) -> None:
    """At one round trip, queue and size, the bandwidth-delay product grows with the rate."""
    slow = share_at(algorithm, depth * factor, length * factor, flows)
    assert factor * share_at(algorithm, depth, length, flows) >= slow * (1 - 1e-9)


@given(ALGORITHMS, DEPTH, LENGTH, COUNTS, FACTOR)
def test_more_bytes_never_stream_in_less_time(
    algorithm: str, depth: float, length: float, flows: int, factor: float
) -> None:
    few = length / share_at(algorithm, depth, length, flows)
    many = factor * length / share_at(algorithm, depth, length * factor, flows)
    assert many >= few * (1 - 1e-9)


def test_an_endless_queue_and_one_way_leave_all_of_the_link() -> None:
    assert all(two_way_shares("cubic", 1e6, float("inf"), length) == (1, 1, 1, 1) for length in LENGTHS)
    link = WanLink(between=("a", "b"), bandwidth_bytes_per_s=1e6, rtt_s=0.04, queue_bytes=1.0)
    assert set(make_path(link, "a", two_way=False).stream_shares) == {1.0}
