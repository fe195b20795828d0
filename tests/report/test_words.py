"""Words for numbers, policies and verdicts."""

import pytest

from geosim.policy import load_policy, preset_names
from geosim.report import words
from geosim.report.verdict import cover_s, hiding
from geosim.scenario import load_scenario


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0 %"),
        (1.0, "100 %"),
        (0.01, "1 %"),
        (0.003, "0.3 %"),
        (0.98765, "98.8 %"),
        (0.99981, "99.98 %"),
        (0.99999, "99.99 %"),
        (1 - 1e-12, "100 %"),
        (1.36, "136 %"),
        (80.5, "8,050 %"),
        (1e-7, "< 0.001 %"),
    ],
)
def test_percent(value, text):
    assert words.percent(value) == text


def test_count():
    assert [words.count(v) for v in (850, 3.28e6, 6.738e9, 1e12)] == [
        "850",
        "3.28 million",
        "6.74 billion",
        "1 trillion",
    ]


def test_a_rate_is_never_rounded_to_nothing():
    assert [words.rate(v) for v in (12345.6, 99.96, 0.000284)] == ["12,346", "100", "0.000284"]


def test_every_preset_has_its_line():
    lines = {name: words.policy_line(load_policy(name)) for name in preset_names()}
    assert len(set(lines.values())) == len(lines)
    assert lines["hierarchical-efsgd"] == "accumulate, K = 16, 1 % int8, with residual, delayed, direct"
    assert lines["ddp"] == "accumulate, K = 1, dense fp32, blocking, flat-ring"
    assert "streaming, 4 x 5 steps" in lines["streaming-diloco"]


def test_many_links_are_given_as_ranges():
    text = words.links(load_scenario("four-regions"))
    assert text == "6 links, 360 Mbit/s to 1.02 Gbit/s, 67 ms to 223 ms"
    assert words.links(load_scenario("llama-405b-four-campuses")) == "6 links, 400 Gbit/s, 1.14 ms to 2.15 ms"
    assert words.links(load_scenario("laptop")) == "100 Mbit/s, 40 ms"


def _result(step, exposed, exchange, sent=1.0):
    return {
        "step_time_s": {"mean": step},
        "exposed_wan_s_per_step": exposed,
        "exchange_time_s": {"mean": exchange},
        "links": {"a->b": {"bytes_per_step": sent, "utilization": 0.1}},
    }


def test_cover_is_the_work_between_sending_and_use():
    result = _result(1.1, 0.1, 0.5)
    assert cover_s(load_policy("ddp"), result) == 0
    assert cover_s(load_policy("hierarchical-efsgd"), result) == pytest.approx(16)
    assert cover_s(load_policy("streaming-diloco"), result) == pytest.approx(5)


@pytest.mark.parametrize(
    ("policy", "result", "says"),
    [
        (
            "hierarchical-efsgd",
            _result(1.0, 0.0, 4.0),
            "hides behind compute: an exchange takes 4 s of the 16 s",
        ),
        ("hierarchical-efsgd", _result(1.0, 0.0, 4.0), "12 s slack"),
        (
            "hierarchical-efsgd",
            _result(2.0, 1.0, 32.0),
            "does not hide: an exchange takes 32 s, compute 16 s",
        ),
        ("hierarchical-efsgd", _result(1.2, 0.2, 4.0), "but the sites wait for the slower one"),
        ("local-sgd", _result(2.0, 1.0, 16.0), "does not hide, since the policy blocks"),
        ("ddp", _result(2.0, 1.0, 1.5), "does not hide behind the backward pass"),
        ("ddp", _result(2.0, 0.0, 1.5), "hides behind the backward pass"),
        ("ddp", _result(2.0, 0.0, 0.0, sent=0.0), "nothing crosses a WAN"),
    ],
)
def test_the_verdict(policy, result, says):
    assert says in hiding(load_policy(policy), result)
