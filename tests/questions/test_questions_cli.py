"""`geosim sweep`, `require` and `sensitivity` as a user meets them."""

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
import time
from unittest.mock import patch

import pytest

from geosim.cli import main

FAST = ["--seeds", "1", "--windows", "10"]
SWEEP = ("sweep", "laptop", "--policy", "local-sgd", *FAST)
REQUIRE = ("require", "laptop", "--policy", "local-sgd", *FAST)
SENSITIVITY = ("sensitivity", "laptop", "--policy", "local-sgd", *FAST)
GRID = ("--grid", "wan.0.bandwidth=10 Mbit/s:10 Gbit/s:4log", "--grid", "policy.interval=1,4,16")


def geosim(*args, status=0):
    """Run in this process; what it said, after checking the exit status."""
    out, err = io.StringIO(), io.StringIO()
    with (
        patch.dict(os.environ, {"COLUMNS": "80", "NO_COLOR": "1"}),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        pytest.raises(SystemExit) as left,
    ):
        main(list(args))
    assert left.value.code == status, out.getvalue() + err.getvalue()
    return subprocess.CompletedProcess(args, status, out.getvalue(), err.getvalue())


@pytest.mark.parametrize(
    ("args", "says"),
    [
        ((*SWEEP, *GRID), ["varied: wan.0.bandwidth (4 values)", "10 Gbit/s", "tokens/s"]),
        ((*SWEEP, "--grid", "wan.0.rtt=1 ms:100 ms:50"), ["the 10 fastest of 50 points"]),
        ((*SWEEP, "--grid", "policy.streams=1,2", "--set", "wan.0.rtt=7 ms"), ["7 ms"]),
        ((*REQUIRE, "--utilization", "60 %"), ["60 % it takes", "bandwidth", "RTT", "loss"]),
        ((*REQUIRE, "--relative", "0.97"), ["not reachable", "as round trips"]),
        (
            ("require", "four-regions", "--policy", "diloco", "--relative", "0.6", "--vary", "wan.5.rtt",
             "--vary", "wan.*.bandwidth", "--set", "policy.interval=100", *FAST),
            ["tokyo-frankfurt", "all links", "in proportion"],
        ),
        (SENSITIVITY, ["10 Mbit/s more", "K = 17", "closed"]),
        (
            ("sensitivity", "beijing-ningxia", "--policy", "hierarchical-efsgd", *FAST),
            ["does not hold here (compute or delay is random)"],
        ),
    ],
    ids=lambda v: " ".join(v[:2]),
)  # fmt: skip
def test_screens_fit_80_columns(args, says):
    text = geosim(*args).stdout
    assert max(map(len, text.splitlines())) <= 80
    for words in says:
        assert words in text


def test_sweep_prints_rows_as_json_and_progress_elsewhere():
    done = geosim(*SWEEP, *GRID, "--json")
    found = json.loads(done.stdout)
    assert found["grid"][1] == {"field": "policy.interval", "values": [1, 4, 16]}
    assert len(found["rows"]) == 12
    assert found["rows"][0].keys() >= {"wan.0.bandwidth", "step_time_s", "relative_to_colocated", "error"}
    assert "12 of 12 points" in done.stderr


def test_sweep_resumes_what_is_there(tmp_path):
    file = tmp_path / "rows.csv"
    geosim(*SWEEP, *GRID, "--out", str(file))
    whole = file.read_bytes()
    assert whole.count(b"\n") == 13
    assert "is there already" in geosim(*SWEEP, *GRID, "--out", str(file), status=2).stderr
    file.write_bytes(whole[:-150])
    assert "of 12 points are there already" in geosim(*SWEEP, *GRID, "--out", str(file), "--resume").stderr
    assert file.read_bytes() == whole


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_sweep_that_is_killed_goes_on_to_the_identical_file(tmp_path, jobs):
    if jobs > 1:
        pytest.importorskip("joblib")
    grid = ["--grid", "wan.0.bandwidth=10 Mbit/s:10 Gbit/s:10log", "--grid", "policy.interval=1,4,16"]
    asked = ["sweep", "laptop", "--policy", "local-sgd", "--seeds", "1", "--windows", "400", *grid]
    file = tmp_path / "rows.csv"
    command = [sys.executable, "-m", "geosim.cli", *asked, "--out", str(file), "--jobs", str(jobs)]
    running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while running.poll() is None and not (file.exists() and file.read_bytes().count(b"\n") >= 4):
        time.sleep(0.01)
    running.send_signal(signal.SIGTERM)
    out, err = running.communicate(timeout=60)
    assert running.returncode == 128 + signal.SIGTERM
    assert out == ""
    assert all(line.startswith("geosim") for line in err.splitlines()), err
    assert 4 <= file.read_bytes().count(b"\n") < 31
    geosim(*asked, "--out", str(file), "--resume")
    geosim(*asked, "--out", str(tmp_path / "whole.csv"))
    assert file.read_bytes() == (tmp_path / "whole.csv").read_bytes()


@pytest.mark.parametrize(
    "args",
    [
        (*SWEEP, "--grid", "wan.0.rtt=1 ms:200 ms:5"),
        (*SWEEP, "--grid", "wan.0.bandwidth=1 Mbit/s:10 Gbit/s:6log"),
        (*SWEEP, "--grid", "policy.codec.quantize=fp32,bf16,int8"),
        (*SWEEP, *GRID),
        ("sweep", "laptop", "--policy", "streaming-diloco", *FAST, "--grid", "policy.interval=2,8",
         "--grid", "policy.overlap.steps=1,4"),
        SENSITIVITY,
    ],
    ids=str,
)  # fmt: skip
def test_figures(tmp_path, args):
    said = geosim(*args, "--figure", str(tmp_path / "a.png")).stdout
    assert said.endswith(f"\n\nfigure: {tmp_path / 'a.png'}\n")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


def test_require_json_says_what_to_set():
    found = json.loads(geosim(*REQUIRE, "--utilization", "0.6", "--vary", "wan.0.bandwidth", "--json").stdout)
    (answer,) = found["answers"]
    assert answer["passes"]["reached"] >= 0.6 > answer["fails"]["reached"]
    again = json.loads(
        geosim("simulate", "laptop", "--policy", "local-sgd", *FAST, "--json", "--set", *answer["set"]).stdout
    )
    assert again["compute_utilization"] == answer["passes"]["reached"]


def test_sensitivity_json():
    found = json.loads(geosim(*SENSITIVITY, "--json").stdout)
    assert found["closed_form_applies"]
    assert {change["change"] for change in found["changes"]} >= {"10 Mbit/s more", "1 ms less RTT"}


MISTAKES = [
    (SWEEP, ["--grid: nothing to vary"]),
    ((*SWEEP, "--grid", "wan.0.bandwith=1 Gbit/s,2 Gbit/s"), ["bandwith", "did you mean 'bandwidth'"]),
    ((*SWEEP, "--grid", "wan.0.rtt=1 ms,4 m"), ["rtt", "4 m", "write min or ms"]),
    ((*SWEEP, "--grid", "policy.interval="), ["empty value"]),
    ((*SWEEP, "--grid", "policy.seed=0:200000:200000"), ["200,000 points", "--yes"]),
    ((*SWEEP, *GRID, "--backend", "spark"), ["--backend spark", "loky, dask, ray"]),
    ((*SWEEP, *GRID, "--resume"), ["--resume", "--out"]),
    ((*SWEEP, *GRID, "--out", "rows.txt"), [".csv or .parquet"]),
    ((*SWEEP, *GRID, "--out", "no/such/rows.csv"), ["no/such", "create it"]),
    ((*SWEEP, *GRID, "--figure", "a.gif"), ["a.gif", ".png"]),
    ((*SWEEP, *GRID, "--grid", "policy.streams=1,2", "--figure", "a.png"), ["one or two fields, not 3"]),
    (REQUIRE, ["--utilization 0.95", "--relative"]),
    ((*REQUIRE, "--utilization", "0.9", "--relative", "0.9"), ["--utilization 0.95", "or --relative"]),
    ((*REQUIRE, "--utilization", "1.5"), ["--utilization 1.5", "at most 1"]),
    ((*REQUIRE, "--utilization", "much"), ["--utilization much", "0.95 or '95 %'"]),
    ((*REQUIRE, "--utilization", "0.9", "--vary", "wan.1.rtt"), ["--vary wan.1.rtt", "wan.N.rtt"]),
    ((*SENSITIVITY, "--set", "policy.shards=64"), ["shards", "64"]),
    ((*SENSITIVITY, "--figure", "a.txt"), ["a.txt", ".png"]),
]


@pytest.mark.parametrize(("args", "says"), MISTAKES, ids=lambda v: " ".join(v[-2:]))
def test_a_mistake_is_one_line_and_status_2(args, says):
    result = geosim(*args, status=2)
    assert result.stdout == ""
    assert result.stderr.startswith("geosim: ")
    assert result.stderr.count("\n") == 1
    for words in says:
        assert words in result.stderr


def test_no_wan_is_said_in_one_line(tmp_path):
    world = tmp_path / "alone.yaml"
    world.write_text(
        "sites:\n  - {name: a, accelerator: cpu-core, accelerators_per_node: 2,\n"
        "     fabric: {intra_node: {bandwidth: 2 GB/s, latency: 50 us}}}\n"
        "workload: {model: byte-gpt-3m, precision: fp32, step_time: 250 ms}\n"
    )
    args = ("--policy", "local-sgd", *FAST)
    assert "nothing to vary" in geosim("require", str(world), *args, "--utilization", "0.9", status=2).stderr
    assert "1 % less compute time" in geosim("sensitivity", str(world), *args).stdout


def test_sweep_and_require_load_neither_jax_nor_joblib():
    code = (
        "import sys; from geosim.cli import app;"
        f"app({[*SWEEP, *GRID]!r}, standalone_mode=False);"
        f"app({[*REQUIRE, '--utilization', '0.6']!r}, standalone_mode=False);"
        "print([m for m in ('torch', 'jax', 'joblib', 'matplotlib') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.splitlines()[-1] == "[]"
