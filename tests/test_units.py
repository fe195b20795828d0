"""Quantities: what parses, what does not and what the message says, and that nothing is lost on the way."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from geosim.errors import UsageError
from geosim.units import BANDWIDTH, COMPUTE, SIZE, TIME, format_exact, parse, parse_percent, show

DIMENSIONS = [TIME, SIZE, BANDWIDTH, COMPUTE]
dimensions = st.sampled_from(DIMENSIONS)
finite = st.floats(allow_nan=False, allow_infinity=False)


@pytest.mark.parametrize(
    ("text", "dimension", "si"),
    [
        ("30 ms", TIME, 0.03),
        ("30ms", TIME, 0.03),
        ("  1.5e3 us ", TIME, 0.0015),
        ("2 min", TIME, 120.0),
        ("1 h", TIME, 3600.0),
        ("8 MiB", SIZE, 8 * 1024**2),
        ("8 MB", SIZE, 8e6),
        ("1 kB", SIZE, 1000.0),
        ("1 KiB", SIZE, 1024.0),
        ("10 Gbit/s", BANDWIDTH, 1.25e9),
        ("10 GB/s", BANDWIDTH, 1e10),
        ("1 GiB/s", BANDWIDTH, 1024.0**3),
        ("8 bit/s", BANDWIDTH, 1.0),
        ("8 Ebit/s", BANDWIDTH, 1e18),
        ("1EB", SIZE, 1e18),
        ("312 TFLOP/s", COMPUTE, 3.12e14),
        ("-3 s", TIME, -3.0),
        ("0 s", TIME, 0.0),
    ],
)
def test_a_quantity_in_si(text, dimension, si):
    assert parse(text, dimension) == si


@pytest.mark.parametrize("dimension", DIMENSIONS, ids=lambda d: d.name)
def test_the_example_of_each_dimension_parses(dimension):
    assert parse(dimension.example, dimension) > 0


@settings(deadline=None)
@given(finite, dimensions)
@example(0.0, BANDWIDTH)
@example(-0.0, TIME)
@example(5e-324, COMPUTE)
@example(1.7976931348623157e308, SIZE)
@example(1 / 3, TIME)
def test_formatting_and_parsing_give_back_the_same_float(value, dimension):
    back = parse(format_exact(value, dimension), dimension)
    assert back == value
    assert str(back) == str(value)  # the sign of zero too


@settings(deadline=None)
@given(st.integers(1, 9999), dimensions, st.data())
def test_a_short_text_stays_short(number, dimension, data):
    unit = data.draw(st.sampled_from(list(dimension.units)))
    text = format_exact(parse(f"{number} {unit}", dimension), dimension)
    assert len(text.split()[0]) <= len(str(number))


def test_the_shortest_exact_text_is_the_one_a_person_writes():
    assert format_exact(0.03, TIME) == "30 ms"
    assert format_exact(1.25e9, BANDWIDTH) == "10 Gbit/s"
    assert format_exact(8.0 * 1024**2, SIZE) == "8 MiB"


@pytest.mark.parametrize(
    ("text", "dimension", "advice"),
    [
        ("10", TIME, "30 ms"),
        ("10", BANDWIDTH, "10 Gbit/s"),
        (10, BANDWIDTH, "10 Gbit/s"),
        (0.03, TIME, "30 ms"),
        (None, SIZE, "8 MiB"),
        (True, SIZE, "8 MiB"),
        ("", COMPUTE, "312 TFLOP/s"),
        ("fast", BANDWIDTH, "10 Gbit/s"),
        ("1.2.3 ms", TIME, "30 ms"),
        ("1e999 s", TIME, "30 ms"),
        ("1e999999999 s", TIME, "30 ms"),
        ("inf s", TIME, "must be finite, like '30 ms'"),
        ("-Infinity ms", TIME, "must be finite"),
        ("nan", SIZE, "must be finite"),
        ("10 Gb", BANDWIDTH, "Gbit/s or GB/s"),
        ("10 Gb/s", BANDWIDTH, "Gbit/s or GB/s"),
        ("10 Gbps", BANDWIDTH, "Gbit/s or GB/s"),
        ("10 Gbit", BANDWIDTH, "Gbit/s"),
        ("10 GB", BANDWIDTH, "GB/s"),
        ("10 Mb", SIZE, "MB, or divide bits by 8"),
        ("10 KB", SIZE, "kB or KiB"),
        ("10 M", SIZE, "MB or MiB"),
        ("10 m", TIME, "min or ms"),
        ("10 sec", TIME, "write s"),
        ("10 TFLOPS", COMPUTE, "TFLOP/s"),
        ("10 parsecs", TIME, "ms"),
        ("10 ms", SIZE, "MiB"),
        ("10 gbit/s", BANDWIDTH, "Gbit/s"),
    ],
)
def test_what_is_no_quantity_says_what_to_write(text, dimension, advice):
    with pytest.raises(UsageError) as caught:
        parse(text, dimension)
    message = str(caught.value)
    assert repr(text) in message
    assert advice in message
    assert "\n" not in message


@settings(deadline=None)
@given(st.text(max_size=12), dimensions)
@example("1e-999999999 s", TIME)
@example("² s", TIME)
def test_any_text_parses_to_a_finite_number_or_is_a_usage_error(text, dimension):
    try:
        value = parse(text, dimension)
    except UsageError:
        return
    assert abs(value) < float("inf")


@pytest.mark.parametrize(
    ("text", "share"),
    [
        ("5 %", 0.05),
        ("0.1%", 0.001),
        (" -2.5e1 % ", -0.25),
        ("100 %", 1.0),
        ("5", None),
        ("%", None),
        ("x %", None),
    ],
)
def test_percentages(text, share):
    assert parse_percent(text) == share


def test_decimal_and_binary_prefixes_differ():
    for exponent, letter in enumerate("kMGT", start=1):
        binary = {"k": "K"}.get(letter, letter)
        assert parse(f"1 {letter}B", SIZE) == 1000.0**exponent
        assert parse(f"1 {binary}iB", SIZE) == 1024.0**exponent
        assert parse(f"8 {letter}bit/s", BANDWIDTH) == parse(f"1 {letter}B/s", BANDWIDTH) == 1000.0**exponent


@pytest.mark.parametrize(
    ("value", "dimension", "text"),
    [
        (0.03, TIME, "30 ms"),
        (0.9996, TIME, "1 s"),
        (0.0, TIME, "0 ms"),
        (0.0, BANDWIDTH, "0 bit/s"),
        (1.25e9, BANDWIDTH, "10 Gbit/s"),
        (2_500_000, SIZE, "2.5 MB"),
        (999.6 * 3600, TIME, "1,000 h"),
        (12345e12, SIZE, "12,345 TB"),
        (-0.0123, TIME, "-12.3 ms"),
        (float("inf"), TIME, "inf ns"),
    ],
)
def test_what_people_read(value, dimension, text):
    assert show(value, dimension) == text


@settings(deadline=None)
@given(st.floats(1e-9, 1e18), dimensions)
def test_what_people_read_is_within_half_a_per_cent_and_has_no_exponent(value, dimension):
    number, unit = show(value, dimension).split()
    if value >= float(dimension.units[unit]):
        assert "e" not in number
        assert float(number.replace(",", "")) * float(dimension.units[unit]) == pytest.approx(
            value, rel=5.1e-3
        )
