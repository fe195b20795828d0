"""`geosim goodput` as a user meets it."""

import contextlib
import io
import json
import os
from unittest.mock import patch

import pytest

from geosim.cli import main
from geosim.policy import load_policy
from geosim.questions.goodput import Asked, goodput
from geosim.scenario import load_scenario
from geosim.sim import simulate

FAULTS = {
    "faults.accelerator.mtbf": "40 h",
    "faults.link.mtbf": "10 h",
    "faults.straggler.mtbf": "40 h",
    "faults.checkpoint.time": "5 s",
}
SET = [text for key, value in FAULTS.items() for text in ("--set", f"{key}={value}")]
FEW = ["--policy", "ddp", "--policy", "local-sgd", "--days", "1", "--windows", "20", "--seeds", "2"]


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
    return out.getvalue() if status == 0 else err.getvalue()


def test_the_screen_and_the_figure_and_the_json_say_the_same(tmp_path):
    figure = tmp_path / "goodput.png"
    screen = geosim("goodput", "laptop", *SET, *FEW, "--figure", str(figure))
    assert screen.endswith(f"\n\nfigure: {figure}\n")
    assert figure.stat().st_size > 5000
    data = json.loads(geosim("goodput", "laptop", *SET, *FEW, "--json"))
    assert [row["policy"] for row in data["policies"]] == ["ddp", "local-sgd"]
    for row in data["policies"]:
        line = next(line for line in screen.splitlines() if line.startswith(row["policy"]))
        assert f"{100 * row['goodput']:.3g} %" in line
        assert 0 < row["least"] <= row["goodput"] <= row["most"] < 1
        assert row["goodput"] + sum(row["lost"].values()) == pytest.approx(1)
        assert row["tokens_per_s"] == pytest.approx(row["goodput"] * row["fault_free_tokens_per_s"])
        assert row["faults"]["accelerator"] > 0
    assert "1 days, mean of 2 runs" in screen


def test_a_trace_shows_faults_beside_what_sites_and_links_do(tmp_path):
    path = tmp_path / "trace.json"
    args = ["--policy", "local-sgd", "--days", "0.02", "--windows", "10", "--seeds", "1"]
    often = ["--set", "faults.accelerator.mtbf=1 h", "--set", "faults.link.mtbf=2 min"]
    geosim("goodput", "laptop", *often, *args, "--trace", str(path))
    events = json.loads(path.read_text())["traceEvents"]
    names = {event["name"] for event in events if event["ph"] == "X" and event["cat"] == "faults"}
    assert names == {"outage", "restart"}
    assert max(e["ts"] + e["dur"] for e in events if e["ph"] == "X") <= 0.02 * 86400e6 + 1


def test_any_number_of_jobs_gives_the_same_bit_for_bit():
    pytest.importorskip("joblib")
    asked = Asked(load_scenario("laptop", FAULTS), 0.5, 1, 10, None)
    rules = [load_policy(name) for name in ("ddp", "local-sgd")]
    assert goodput(asked, rules, jobs=2) == goodput(asked, rules)


def test_zero_rates_are_the_fault_free_result_exactly():
    asked = Asked(load_scenario("laptop", {"faults": {}}), 7.0, 2, 20, None)
    for name in ("ddp", "local-sgd"):
        (found,) = goodput(asked, [load_policy(name)])
        base = simulate(asked.scenario, load_policy(name), windows=20)
        assert found.goodput == 1.0
        assert found.tokens_per_s == base.tokens_per_s
        assert found.relative_to_colocated == base.relative_to_colocated


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["goodput", "laptop"], "scenario laptop states no faults: add faults:"),
        (["goodput", "laptop", "--set", "faults.link.mtbf=5"], "is not a time"),
        (["goodput", "laptop", "--set", "faults.links.mtbf=5 h"], "did you mean 'link'"),
        (["goodput", "laptop", "--set", "faults.accelerator.mtbf=1 s"], "are more than 200,000: use --days"),
        (["goodput", "laptop", *SET, "--policy", "nothing"], "neither built in nor a file"),
        (["goodput", "laptop", *SET, "--figure", "x.txt"], "write to a file that ends in"),
        (["goodput", "laptop", *SET, "--policy", "ddp", "--trace", "x.json"], "are too many: use --days"),
        (
            ["goodput", "laptop", *SET, "--set", "faults.on_site_loss=continue", "--trace", "x.json"],
            "--trace: shows runs that wait for a lost site",
        ),
        (
            ["goodput", "laptop", *SET, "--policy", "local-sgd", "--set", "policy.shards=64"],
            "policy local-sgd: shards",
        ),
    ],
)
def test_mistakes_get_one_line(args, says):
    said = geosim(*args, status=2)
    assert says in said
    assert len(said.strip().splitlines()) == 1
