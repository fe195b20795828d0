"""The front and the choice, as plain functions of throughput and order."""

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from geosim.tune.front import first_within, front

throughputs = st.lists(st.floats(0.01, 100), min_size=1, max_size=40).map(np.array)


@given(throughputs, st.randoms())
def test_nothing_on_the_front_is_dominated_and_nothing_off_it_dominates(values, random):
    order = list(range(len(values)))
    random.shuffle(order)
    line = front(values, order)
    place = {i: n for n, i in enumerate(order)}
    assert [place[i] for i in line] == sorted(place[i] for i in line)
    assert all(values[a] < values[b] for a, b in pairwise(line))
    for i in order:
        if i not in line:
            assert any(place[f] < place[i] and values[f] >= values[i] for f in line)


@given(throughputs, st.floats(0, 0.5))
def test_the_choice_is_within_the_tolerance_and_on_the_front(values, tolerance):
    order = list(range(len(values)))
    chosen = first_within(values, order, tolerance)
    assert values[chosen] >= (1 - tolerance) * values.max()
    assert all(values[i] < (1 - tolerance) * values.max() for i in order[:chosen])
    assert chosen in front(values, order, 0.2, keep=chosen)


def test_small_gains_are_left_out_and_unknown_values_ignored():
    values = np.array([1.0, 1.005, np.nan, 1.5, 1.504])
    assert front(values, range(5), 0.01) == [0, 3]
    assert front(values, range(5), 0.01, keep=4) == [0, 3, 4]
    assert front(values, range(5), 2.0) == [0]
    assert first_within(values, range(5), 0.05) == 3
