"""Axes of a grid from text."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geosim.errors import UsageError
from geosim.questions.grid import check_size, parse_grid
from geosim.units import BANDWIDTH, TIME, parse


def axis(spec, whole=None):
    (one,) = parse_grid([spec], lambda field: whole)
    return one


def test_a_list_is_taken_as_it_is_written():
    one = axis("wan.0.bandwidth=1 Gbit/s,2.50 Gbit/s, 100 Mbit/s")
    assert one.texts == ("1 Gbit/s", "2.50 Gbit/s", "100 Mbit/s")
    assert one.numbers == (1.25e8, 3.125e8, 1.25e7)
    assert one.dimension is BANDWIDTH


def test_commas_inside_of_brackets_and_quotes_part_nothing():
    one = axis('policy.codec.select={kind: topk, ratio: 0.01},dense,"a,b",[1, 2]')
    assert one.values == ({"kind": "topk", "ratio": 0.01}, "dense", "a,b", [1, 2])
    assert one.numbers is None


@pytest.mark.parametrize(
    ("spec", "texts"),
    [
        ("policy.interval=1:10:4", ("1", "4", "7", "10")),
        ("policy.interval=1:64:7log", ("1", "2", "4", "8", "16", "32", "64")),
        ("policy.interval=1:4:8log", ("1", "2", "3", "4")),
        ("wan.0.rtt=10 ms:1 s:3log", ("10 ms", "100 ms", "1 s")),
        ("wan.0.rtt=300 ms:100 ms:3", ("300 ms", "200 ms", "100 ms")),
        ("wan.0.loss=1 %:5 %:3lin", ("1 %", "3 %", "5 %")),
        ("wan.0.loss=0.000001:0.0001:3log", ("0.000001", "0.00001", "0.0001")),
    ],
)
def test_a_range_has_its_ends_as_written_and_numbers_between(spec, texts):
    assert axis(spec).texts == texts


def test_whole_numbers_follow_the_field_where_that_is_known():
    assert axis("x=0:1:3", whole=False).texts == ("0", "0.5", "1")
    assert axis("x=0:1:3", whole=True).texts == ("0", "1")


@given(st.floats(1e-3, 1e3), st.floats(1.5, 1e3), st.integers(2, 40), st.booleans())
def test_ranges_are_even_to_six_digits(low, factor, count, log):
    one = axis(f"wan.0.rtt={low:.6f} ms:{low * factor:.6f} ms:{count}{'log' if log else ''}")
    assert one.dimension is TIME
    assert len(one) <= count
    if len(one) == count > 2 and not log:
        steps = [b - a for a, b in zip(one.numbers, one.numbers[1:], strict=False)]
        assert max(steps) - min(steps) <= 3e-5 * max(one.numbers)
    if len(one) == count > 2 and log:
        ratios = [b / a for a, b in zip(one.numbers, one.numbers[1:], strict=False)]
        assert max(ratios) / min(ratios) == pytest.approx(1, abs=1e-4 + 2e-3 * (low < 0.1))
    assert all(math.isclose(n, parse(t, TIME)) for n, t in zip(one.numbers, one.texts, strict=True))


@pytest.mark.parametrize(
    ("specs", "says"),
    [
        ([], ["nothing to vary", "policy.interval=1,4,16"]),
        (["policy.interval"], ["policy.interval", "write a field and its values"]),
        (["=1,2"], ["write a field"]),
        (["policy.interval="], ["empty value"]),
        (["policy.interval=1,,2"], ["empty value"]),
        (["policy.interval=1,1"], ["twice"]),
        (["policy.interval=1,2", "policy.interval=3"], ["policy.interval", "given twice"]),
        (["wan.0.rtt=1 ms:2 ms:many"], ["'many' is no count", "LOW:HIGH:COUNTlog"]),
        (["wan.0.rtt=1 ms:2 ms:1"], ["from 2 to"]),
        (["wan.0.rtt=1 ms:2 ms:10000000000"], ["from 2 to"]),
        (["wan.0.rtt=1 ms:1 ms:3"], ["two different ends"]),
        (["wan.0.rtt=0 ms:1 ms:3log"], ["above 0"]),
        (["wan.0.rtt=1 ms:1 Gbit/s:3"], ["two numbers of one kind"]),
        (["wan.0.rtt=1:5 ms:3"], ["two numbers of one kind"]),
        (["policy.codec.select={kind: topk"], ["not YAML"]),
    ],
)
def test_bad_grids_are_one_line(specs, says):
    with pytest.raises(UsageError) as error:
        parse_grid(specs, lambda field: None)
    assert str(error.value).startswith("--grid")
    assert "\n" not in str(error.value)
    for words in says:
        assert words in str(error.value)


def test_more_than_100_000_points_need_yes():
    with pytest.raises(UsageError, match=r"200,000 points are more than 100,000.*--yes"):
        parse_grid(["a=1:200000:200000"], lambda field: True)  # said before the values are read
    axes = parse_grid(["a=0:1:400", "b=0:1:251"], lambda field: False)
    with pytest.raises(UsageError, match=r"100,400 points are more than 100,000.*--yes"):
        check_size(axes, yes=False)
    assert check_size(axes, yes=True) == 100_400
