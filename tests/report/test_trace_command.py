"""`geosim simulate --trace --figure` and `geosim trace`, as they are typed."""

import json

import pytest
from typer.testing import CliRunner

from geosim.cli import app
from geosim.errors import UsageError

LAPTOP = ["simulate", "laptop", "--policy", "local-sgd", "--set", "policy.interval=4", "--windows", "4"]


def geosim(*arguments):
    return CliRunner().invoke(app, list(arguments), catch_exceptions=False, standalone_mode=False)


def test_a_trace_and_a_figure_of_one_run_and_the_traces_lanes(tmp_path):
    trace, figure, both = (tmp_path / name for name in ("a.json", "a.png", "both.json"))
    said = geosim(*LAPTOP, "--trace", str(trace), "--figure", str(figure)).stdout
    # A path longer than the screen is broken.
    assert f"trace: {trace} (open it at ui.perfetto.dev) figure: {figure}" in " ".join(said.split())
    assert figure.read_bytes().startswith(b"\x89PNG")
    said = geosim("trace", str(trace), str(trace), "--out", str(both)).stdout
    assert "site collective" in said
    assert "+0.0 %" in said
    assert json.loads(both.read_text())["traceEvents"]
    told = json.loads(geosim("trace", str(trace), "--json").stdout)
    result = json.loads(geosim(*LAPTOP, "--json").stdout)
    busy = {
        row["name"]: row["simulated"]
        for row in told["spans_s_per_step"]
        if row["process"] == "east" and row["track"] == "train"
    }
    for part in ("compute", "wait"):
        assert busy[part] == pytest.approx(result["site_parts"]["east"][part], rel=1e-6)


def test_a_figure_of_another_kind_is_refused(tmp_path):
    with pytest.raises(UsageError, match=r"--figure .*a\.txt: write to a file that ends in"):
        geosim(*LAPTOP, "--figure", str(tmp_path / "a.txt"))


def test_a_file_that_is_no_trace_is_refused(tmp_path):
    (tmp_path / "a.json").write_text("{}")
    with pytest.raises(UsageError, match="is no trace of this geosim's"):
        geosim("trace", str(tmp_path / "a.json"))
