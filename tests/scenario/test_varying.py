"""Links that vary, as specs: processes and their averages, files, and what is refused."""

from itertools import takewhile

import numpy as np
import pytest
import yaml

from geosim.errors import UsageError
from geosim.questions.knobs import Knob
from geosim.report import words
from geosim.scenario import WanLink, load_scenario
from geosim.scenario.loader import change_scenario
from geosim.spec import from_dict
from geosim.tune.sensitivity import with_bandwidth
from runtime.wan import emulated_wan

BASE = {"between": ["a", "b"], "bandwidth": "1 Gbit/s", "rtt": "20 ms"}
KINDS = [
    {"kind": "gilbert-elliott", "mean_good": "40 s", "mean_bad": "10 s", "bad_loss": 0.02, "bad_share": 0.5},
    {"kind": "range", "low": 0.1, "high": 0.8, "holds": "30 s"},
    {"kind": "diurnal", "swing": 0.6},
    {"kind": "diurnal", "hours": [0.5] * 12 + [1.0] * 12},
    {"kind": "cross-traffic", "share": 0.3},
    {"kind": "cross-traffic", "share": 0.3, "mean_on": "20 s", "mean_off": "60 s"},
    {"kind": "outages", "mean_between": "100 s", "mean_lasts": "10 s"},
    {
        "kind": "trace",
        "repeat": "10 s",
        "points": [
            {"at": "0 s", "bandwidth": "1 Gbit/s", "rtt": "20 ms", "loss": 0.0},
            {"at": "5 s", "bandwidth": "0.5 Gbit/s", "rtt": "60 ms", "loss": 0.01},
        ],
    },
]


def link(*varies, **fields) -> WanLink:
    return from_dict(WanLink, {**BASE, "varies": list(varies), **fields}, "link")


def walk(variation, seed=0, until=2e6):
    """(from, to, condition) of a process up to a time."""
    changes = takewhile(lambda c: c[0] < until, variation.changes(np.random.default_rng(seed)))
    points = list(changes)
    times = [at for at, _ in points] + [until]
    return [(a, b, condition) for a, b, (_, condition) in zip(times, times[1:], points, strict=False)]


@pytest.mark.parametrize("kind", KINDS, ids=lambda k: k["kind"])
def test_a_process_averages_to_its_mean_and_is_the_same_for_a_seed(kind):
    variation = link(kind).varies[0]
    one = walk(variation)
    assert one == walk(variation)
    times = [a for a, _, _ in one]
    assert times == sorted(times)
    assert variation.is_random == (walk(variation, 1) != one)

    def average(value):
        return sum((b - a) * value(c) for a, b, c in one) / 2e6

    mean = variation.mean()
    known = [c for _, _, c in one if c.bandwidth_bytes_per_s]
    if known:
        assert average(lambda c: c.bandwidth_bytes_per_s) == pytest.approx(
            mean.bandwidth_bytes_per_s, rel=0.01
        )
        assert average(lambda c: c.rtt_s) == pytest.approx(mean.rtt_s, rel=0.01)
        assert average(lambda c: c.own_loss) == pytest.approx(mean.own_loss, rel=0.01)
    if kind["kind"] == "outages":
        down = sum(b - a for a, b, c in one if not c.up) / 2e6
        assert 1 - down == pytest.approx(mean.share, rel=0.02)
    elif kind["kind"] != "trace":
        assert average(lambda c: c.share) == pytest.approx(mean.share, rel=0.02)
        assert average(lambda c: c.loss) == pytest.approx(mean.loss, rel=0.05)


@pytest.mark.parametrize("kind", KINDS, ids=lambda k: k["kind"])
def test_yaml_goes_in_and_out_without_loss(kind):
    made = link(kind)
    assert from_dict(WanLink, yaml.safe_load(made.to_yaml()), "link") == made


def test_the_sinusoid_is_lowest_at_the_busiest_time_and_whole_half_a_day_later():
    variation = link({"kind": "diurnal", "swing": 0.6, "busiest": "20 h", "starts": "6 h"}).varies[0]
    day = {round((a / 3600 + 6) % 24, 2): c.share for a, _, c in walk(variation, until=86400.0)}
    assert min(day.values()) == pytest.approx(0.4, abs=0.002)
    assert max(day.values()) == pytest.approx(1.0, abs=0.002)
    assert min(day, key=day.get) in (19.5, 20.0)
    assert max(day, key=day.get) in (7.5, 8.0)


@pytest.mark.parametrize("fit", ["empirical", "lognormal", "gamma"])
def test_fitted_jitter_has_the_moments_of_its_samples(fit):
    samples = [f"{t} ms" for t in (20.1, 20.3, 20.2, 21.0, 25.0, 20.4, 40.0, 22.0)]
    made = link({"kind": "jitter", "samples": samples, "fit": fit})
    random = np.random.default_rng(0)
    drawn = np.array([made.varies[0].draw(random) for _ in range(200_000)])
    want = np.array([float(t.split()[0]) * 1e-3 for t in samples])
    assert drawn.mean() == pytest.approx(0, abs=1e-4)
    assert drawn.std() == pytest.approx(want.std(), rel=0.05)
    assert drawn.min() >= (want - want.mean()).min() - 1e-12
    assert made.average().jitter_s == pytest.approx(want.std())


def test_variations_compose():
    made = link(
        {"kind": "cross-traffic", "share": 0.5},
        {"kind": "gilbert-elliott", "mean_good": "1 s", "mean_bad": "1 s", "bad_loss": 0.2, "bad_share": 0.5},
        loss=0.1,
        back_bandwidth="2 Gbit/s",
    ).average()
    assert made.bandwidth_bytes_per_s == pytest.approx(125e6 * 0.5 * 0.75)
    assert made.back_bandwidth_bytes_per_s == pytest.approx(250e6 * 0.5 * 0.75)
    assert made.loss == pytest.approx(1 - 0.9 * 0.9)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (
            "trace.csv",
            "# measured\nat (s), bandwidth (Mbit/s), rtt, loss\n0,1000,20 ms,0\n60,500,40 ms,0.5 %\n",
        ),
        (
            "trace.yaml",
            "points:\n- {at: 0 s, bandwidth: 1000 Mbit/s, rtt: 20 ms, loss: 0}\n"
            "- {at: 60 s, bandwidth: 500 Mbit/s, rtt: 40 ms, loss: 0.005}\n",
        ),
    ],
)
def test_a_trace_is_read_from_a_file_beside_the_scenario(tmp_path, name, text):
    (tmp_path / name).write_text(text)
    data = load_scenario("laptop").to_dict()
    data["wan"][0]["varies"] = [{"kind": "trace", "file": name}]
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(data))
    points = load_scenario(str(tmp_path / "mine.yaml")).wan[0].varies[0].points
    assert [p.bandwidth_bytes_per_s for p in points] == [125e6, 62.5e6]
    assert [p.rtt_s for p in points] == [0.02, 0.04]
    assert [p.loss for p in points] == [0, 0.005]


def test_samples_are_read_from_a_file(tmp_path):
    path = tmp_path / "ping.csv"
    path.write_text("rtt (ms)\n20\n30\n")
    made = load_scenario("laptop", {"wan.0.varies": [{"kind": "jitter", "file": str(path)}]})
    assert [s.rtt_s for s in made.wan[0].varies[0].samples] == [0.02, 0.03]
    assert change_scenario(made, {"wan.0.rtt": "50 ms"}).wan[0].varies == made.wan[0].varies


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("at,speed\n0 s,1\n", "unknown column 'speed'"),
        ("at (s),bandwidth (Mbit/s)\n", "expected a line of column names"),
        ("at (s),bandwidth (Mbit/s)\n0\n", "row 1 has 1 cells, its head 2"),
        ("at (s),loss\n0,much\n", "row 1: loss 'much' is no number"),
        ("at,bandwidth\n0 s,100\n", "has no unit"),
        ("at (s),bandwidth (Mbit/s)\n5,100\n", "points: times must start at '0 s'"),
    ],
)
def test_a_file_that_is_no_table_is_refused_by_name(tmp_path, content, says):
    path = tmp_path / "bad.csv"
    path.write_text(content)
    with pytest.raises(UsageError, match=says):
        load_scenario("laptop", {"wan.0.varies": [{"kind": "trace", "file": str(path)}]})


@pytest.mark.parametrize(
    ("varies", "says"),
    [
        ([{"kind": "trace", "file": "none.csv"}], "none.csv: cannot read"),
        ([{"kind": "trace", "file": "none.txt"}], "must end in .csv"),
        ([{"kind": "range", "file": "none.csv"}], "only kinds trace and jitter read a file"),
        ([{"kind": "trace", "file": "x.csv", "points": []}], "give either file or points"),
        ([{"kind": "range", "low": 0.8, "high": 0.5, "holds": "1 s"}], "low: 0.8 must be below high"),
        ([{"kind": "outages"}], "give either times or mean_between"),
        ([{"kind": "outages", "mean_between": "1 h"}], "mean_between: goes with mean_lasts"),
        (
            [{"kind": "outages", "times": [{"at": "0 s", "lasts": "9 s"}, {"at": "5 s", "lasts": "1 s"}]}],
            "an outage must be over before the next begins",
        ),
        ([{"kind": "cross-traffic", "share": 0.5, "mean_on": "1 s"}], "mean_on: goes with mean_off"),
        ([{"kind": "diurnal", "hours": [1.0]}], "hours: needs 24 shares"),
        ([{"kind": "diurnal"}], "swing: give either swing or hours"),
        ([{"kind": "jitter", "samples": ["1 ms"]}], "samples"),
        ([{"kind": "jitter", "samples": ["1 ms", "2 ms"]}] * 2, "a link has one jitter"),
        ([{"kind": "trace", "points": [{"at": "0 s", "rtt": "1 ms"}]}] * 2, "a link follows one trace"),
        (
            [{"kind": "trace", "points": [{"at": "0 s", "rtt": "1 ms"}, {"at": "1 s", "loss": 0.1}]}],
            "give rtt at every point or at none",
        ),
        ([{"kind": "storm"}], "unknown kind 'storm'"),
        ([{"kind": "range", "lo": 0.8, "holds": "1 s"}], "unknown key; did you mean 'low'"),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_line(varies, says):
    with pytest.raises(UsageError, match=says) as error:
        load_scenario("laptop", {"wan.0.varies": varies})
    assert "\n" not in str(error.value)


def test_a_trace_scales_with_the_link_and_shares_stay():
    trace = {"kind": "trace", "points": [{"at": "0 s", "bandwidth": "1 Gbit/s"}]}
    made = load_scenario("laptop", {"wan.0.varies": [trace, {"kind": "cross-traffic", "share": 0.5}]})
    for wider in (Knob("bandwidth").turned(made, 2 * 12.5e6), with_bandwidth(made, 2.0)):
        point, share = wider.wan[0].varies
        assert point.points[0].bandwidth_bytes_per_s == 2 * 125e6
        assert share == made.wan[0].varies[1]


def test_the_emulator_refuses_what_it_cannot_follow():
    made = load_scenario("laptop", {"wan.0.varies": [{"kind": "range", "low": 0.5, "holds": "1 s"}]})
    with pytest.raises(UsageError, match=r"wan.0.varies: the emulator follows 'trace' alone"):
        emulated_wan(made, 0)


def test_screens_show_averages_of_links_that_vary():
    made = load_scenario("laptop", {"wan.0.varies": [{"kind": "range", "low": 0.5, "holds": "1 s"}]})
    assert words.links(made) == "75 Mbit/s, 40 ms on average"
    assert words.links(load_scenario("laptop")) == "100 Mbit/s, 40 ms"
