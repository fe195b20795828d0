"""Sweeps: laws along them, the same rows whoever runs them, and files that can be gone on with."""

import csv
import io
import sys
from itertools import pairwise

import pytest

from geosim.errors import UsageError
from geosim.policy import load_policy
from geosim.questions.rows import RowFile
from geosim.questions.sweep import METRICS, make_sweep
from geosim.questions.workers import run_points
from geosim.scenario import load_scenario
from geosim.sim import simulate

GRID = ["wan.0.bandwidth=20 Mbit/s:2 Gbit/s:3log", "policy.interval=4,16"]


def sweep(specs=GRID, scenario="laptop", policy="local-sgd", **more):
    more = {"seeds": 2, "windows": 10, **more}
    return make_sweep(load_scenario(scenario), load_policy(policy), specs, **more)


def rows_of(asked, jobs=1):
    return list(run_points(asked, 0, jobs, "loky"))


def test_rows_are_what_simulate_says_with_the_same_settings():
    asked = sweep(scenario="beijing-ningxia")
    rows = rows_of(asked)
    assert [(r["wan.0.bandwidth"], r["policy.interval"]) for r in rows] == [
        (b, k) for b in ("20 Mbit/s", "200 Mbit/s", "2 Gbit/s") for k in (4, 16)
    ]
    world = load_scenario("beijing-ningxia", {"wan.0.bandwidth": "200 Mbit/s"})
    alone = simulate(world, load_policy("local-sgd", {"interval": 16}), seeds=2, windows=10)
    assert rows[3]["step_time_s"] == alone.step_time_s.mean
    assert rows[3]["tokens_per_s"] == alone.tokens_per_s
    assert rows[3]["wan.0.bandwidth_bytes_per_s"] == 2.5e7
    assert list(rows[0]) == asked.columns


@pytest.mark.parametrize(
    "policy", ["local-sgd", "hierarchical-efsgd", "eager-diloco", "streaming-diloco", "ddp"]
)
def test_more_bandwidth_is_never_slower(policy):
    rows = rows_of(sweep(["wan.0.bandwidth=100 kbit/s:100 Gbit/s:16log"], policy=policy))
    steps = [row["step_time_s"] for row in rows]
    assert all(b <= a * (1 + 1e-9) for a, b in pairwise(steps))
    assert steps[-1] < steps[0]


def test_less_often_sends_less_a_step():
    rows = rows_of(sweep(["policy.interval=1:64:7log"]))
    sent = [row["wan_bytes_per_step"] for row in rows]
    assert sent == pytest.approx([sent[0] / row["policy.interval"] for row in rows], rel=0.01)


def test_points_that_do_not_fit_say_so_and_the_others_run():
    asked = sweep(["policy.interval=4,8", "policy.overlap.steps=2,6"], policy="streaming-diloco")
    rows = rows_of(asked)
    assert [bool(row["error"]) for row in rows] == [False, True, False, False]
    assert "must be below the interval" in rows[1]["error"]
    assert all(rows[1][metric] is None for metric in METRICS)


@pytest.mark.parametrize(
    ("specs", "says"),
    [
        (["wan.0.bandwith=1 Gbit/s"], ["bandwith", "did you mean 'bandwidth'"]),
        (["wan.0.bandwidth=10 Gb"], ["bandwidth", "ambiguous"]),
        (["wan.0.rtt=1 ms,40"], ["rtt", "40", "unit"]),
        (["wan.3.rtt=1 ms"], ["list of 1"]),
        (["policy.interval=1,0"], ["interval", "0"]),
        (["policy.intervall=1,2"], ["did you mean 'interval'"]),
        (["workload.model.layers=2,0"], ["layers"]),
        (["policy.codec.select.ratio=0.1,1.5", "policy.codec.select.kind=topk"], ["ratio", "1.5"]),
    ],
)
def test_a_field_or_value_that_cannot_be_is_refused_before_anything_runs(specs, says):
    with pytest.raises(UsageError) as error:
        sweep(specs)
    for words in says:
        assert words in str(error.value)


def test_axes_may_need_each_other():
    asked = sweep(["policy.codec.select.kind=topk", "policy.codec.select.ratio=0.1,0.01"])
    assert not any(row["error"] for row in rows_of(asked))


def test_one_and_two_processes_give_the_same_rows_bit_for_bit():
    pytest.importorskip("joblib")
    asked = sweep(scenario="beijing-ningxia")  # whose step times are random
    assert [repr(row) for row in rows_of(asked, 2)] == [repr(row) for row in rows_of(asked, 1)]


def write(path, asked, resume=False, upto=None):
    with RowFile(path, asked, resume) as file:
        start = len(file.rows)
        for row in list(run_points(asked, start, 1, "loky"))[: None if upto is None else upto - start]:
            file.add(row)
    return file


def test_a_csv_file_reads_as_it_was_written(tmp_path):
    asked = sweep(["policy.codec.select={kind: topk, ratio: 0.01},dense", "wan.0.rtt=1 ms,2 ms"])
    rows = write(tmp_path / "a.csv", asked).rows
    read = list(csv.DictReader(io.StringIO((tmp_path / "a.csv").read_text())))
    assert list(read[0]) == asked.columns
    assert [float(row["step_time_s"]) for row in read] == [row["step_time_s"] for row in rows]
    assert RowFile(tmp_path / "a.csv", asked, resume=True).rows == rows


@pytest.mark.parametrize("cut", [0, 5, 300, -1, -40, -200])
def test_a_file_cut_anywhere_is_completed_to_the_same_bytes(tmp_path, cut):
    asked = sweep()
    write(tmp_path / "whole.csv", asked)
    whole = (tmp_path / "whole.csv").read_bytes()
    (tmp_path / "cut.csv").write_bytes(whole[:cut])
    write(tmp_path / "cut.csv", asked, resume=True)
    assert (tmp_path / "cut.csv").read_bytes() == whole


def test_what_is_there_is_not_run_again(tmp_path):
    asked = sweep()
    write(tmp_path / "a.csv", asked, upto=4)
    assert len(RowFile(tmp_path / "a.csv", asked, resume=True).rows) == 4
    assert RowFile(tmp_path / "a.csv", asked, resume=True).rows == rows_of(asked)[:4]


def test_a_file_that_is_there_is_kept_without_resume(tmp_path):
    write(tmp_path / "a.csv", sweep())
    with pytest.raises(UsageError, match=r"is there already: add --resume"):
        RowFile(tmp_path / "a.csv", sweep(), resume=False)


@pytest.mark.parametrize(
    "other",
    [
        {"seeds": 3},
        {"windows": 11},
        {"policy": "diloco"},
        {"scenario": "beijing-ningxia"},
        {"specs": ["wan.0.bandwidth=20 Mbit/s:2 Gbit/s:4log", "policy.interval=4,16"]},
        {"specs": ["wan.0.rtt=1 ms,2 ms", "policy.interval=4,16"]},
    ],
    ids=str,
)
def test_a_file_of_another_sweep_is_refused_and_left_as_it_is(tmp_path, other):
    write(tmp_path / "a.csv", sweep(), upto=3)
    before = (tmp_path / "a.csv").read_bytes()
    with pytest.raises(UsageError, match="something else than rows of this sweep"):
        RowFile(tmp_path / "a.csv", sweep(**other), resume=True)
    assert (tmp_path / "a.csv").read_bytes() == before


@pytest.mark.parametrize("text", ["hello\n", "a,b\n1,2\n", "\x00\xff\n", '"'])
def test_a_file_of_another_kind_is_refused(tmp_path, text):
    (tmp_path / "a.csv").write_text(text)
    with pytest.raises(UsageError, match="something else"):
        RowFile(tmp_path / "a.csv", sweep(), resume=True)


def test_other_endings_are_refused(tmp_path):
    with pytest.raises(UsageError, match=r"\.csv or \.parquet"):
        RowFile(tmp_path / "a.xlsx", sweep(), resume=False)


def test_parquet_holds_the_same_rows_with_types(tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    asked = sweep()
    write(tmp_path / "a.parquet", asked, upto=4)
    assert not (tmp_path / "a.parquet").exists()
    write(tmp_path / "a.parquet", asked, resume=True)
    table = parquet.read_table(tmp_path / "a.parquet")
    assert table.to_pylist() == rows_of(asked)
    assert str(table.schema.field("policy.interval").type) == "int64"
    assert [p.name for p in tmp_path.iterdir()] == ["a.parquet"]
    assert RowFile(tmp_path / "a.parquet", asked, resume=True).is_complete
    with pytest.raises(UsageError, match="something else"):
        RowFile(tmp_path / "a.parquet", sweep(seeds=1), resume=True)


@pytest.mark.parametrize(
    ("module", "jobs", "backend", "says"),
    [
        ("joblib", 2, "loky", r"need joblib: pip install -e '\.\[sweep\]'"),
        ("distributed", 1, "dask", r"--backend dask: is not installed: pip install"),
        ("ray", 1, "ray", r"--backend ray: is not installed: pip install"),
    ],
)
def test_what_is_missing_is_said_in_one_line(monkeypatch, module, jobs, backend, says):
    if module != "joblib":
        pytest.importorskip("joblib")
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(UsageError, match=says):
        run_points(sweep(), 0, jobs, backend)


def test_parquet_without_pyarrow_is_one_line(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(UsageError, match=r"pip install -e '\.\[parquet\]'"):
        RowFile(tmp_path / "a.parquet", sweep(), resume=False)
