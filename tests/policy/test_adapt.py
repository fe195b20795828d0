"""How K follows the network: the same integer on every site, whatever the order in which headers are read."""

import math
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from geosim.errors import UsageError
from geosim.policy import Fixed, HideExchange, next_interval

micro = st.integers(1, 1 << 50)
headers = st.lists(st.tuples(micro, micro), min_size=1, max_size=8)
rules = st.builds(
    HideExchange, least=st.integers(1, 100), most=st.integers(100, 1 << 40), margin=st.floats(1, 10)
)


@settings(deadline=None)
@given(rules, st.integers(1, 1000), headers, st.randoms())
def test_every_site_gets_the_same_whole_number_within_bounds(rule, interval, sites, random):
    answers = set()
    for _ in range(3):
        random.shuffle(sites)
        exchange, step = zip(*sites, strict=True)
        answers.add(next_interval(rule, interval, exchange, step))
    (answer,) = answers
    assert type(answer) is int
    assert rule.least <= answer <= rule.most


@settings(deadline=None)
@given(rules, headers)
def test_it_is_the_fewest_steps_that_cover_the_slowest_exchange(rule, sites):
    exchange, step = zip(*sites, strict=True)
    exact = Fraction(max(exchange)) * Fraction(round(rule.margin * 1000), 1000) / max(step)
    assert next_interval(rule, 1, exchange, step) == min(max(math.ceil(exact), rule.least), rule.most)


@settings(deadline=None)
@given(headers, st.integers(1, 1 << 50))
def test_a_slower_network_never_shortens_the_interval(sites, more):
    rule = HideExchange(most=1 << 60)
    exchange, step = zip(*sites, strict=True)
    slower = [exchange[0] + more, *exchange[1:]]
    assert next_interval(rule, 1, slower, step) >= next_interval(rule, 1, exchange, step)


def test_large_numbers_are_not_rounded():
    # 2^60 + 1 exchanges' worth over one step: a float would lose the last one.
    rule = HideExchange(margin=1.0, most=1 << 62)
    assert next_interval(rule, 1, [2**60 + 1], [1]) == 2**60 + 1
    assert next_interval(rule, 1, [3 * (2**58 + 1) + 1], [3]) == 2**58 + 2


def test_examples():
    rule = HideExchange(least=2, most=64, margin=1.2)
    assert next_interval(rule, 16, [800_000, 700_000], [100_000, 90_000]) == 10  # 0.96 s over 0.1 s
    assert next_interval(rule, 16, [10], [100_000]) == 2
    assert next_interval(rule, 16, [10**9], [100_000]) == 64


def test_without_a_finished_round_k_stays():
    rule = HideExchange()
    assert next_interval(rule, 16, [], []) == 16
    assert next_interval(rule, 16, [100], [0]) == 16
    assert next_interval(Fixed(), 16, [10**9], [1]) == 16


def test_bounds_that_cross_are_refused_at_once():
    with pytest.raises((UsageError, ValueError), match="most: 3 is below least"):
        HideExchange(least=4, most=3)
