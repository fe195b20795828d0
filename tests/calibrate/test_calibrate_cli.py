"""`geosim calibrate` as a user meets it: the screen, the scenario that it writes, what it refuses."""

import contextlib
import io
import json
import os
from pathlib import Path
from unittest.mock import patch

import pytest

from geosim.cli import main
from geosim.scenario import load_scenario

FIXTURES = Path(__file__).parent / "fixtures"
NAMES = (
    "ping-iputils-uneven.txt",
    "iperf3-uneven-forward.json",
    "iperf3-uneven-reverse.json",
    "iperf3-uneven-udp.json",
)
UNEVEN = [str(FIXTURES / name) for name in NAMES]

NCCL = str(FIXTURES / "nccl-1x8-h100.txt")
LAPTOP, VOID = ("--scenario", "laptop"), ("--out", "new.yaml")


@pytest.fixture(autouse=True)
def _own_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def geosim(*args, status=0):
    """Run in this process: standard output, or standard error where it ends with another status than 0."""
    out, err = io.StringIO(), io.StringIO()
    with (
        patch.dict(os.environ, {"COLUMNS": "80", "NO_COLOR": "1"}),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        pytest.raises(SystemExit) as left,
    ):
        main([*args])
    assert left.value.code == status, out.getvalue() + err.getvalue()
    return err.getvalue() if status else out.getvalue()


def fixture(name):
    return str(FIXTURES / name)


def test_the_screen_fits_80_columns_and_says_what_is_not_known():
    text = geosim("calibrate", *UNEVEN, fixture("nccl-2x8-a100.txt"), fixture("trace-gloo-rank0.json.gz"))
    assert max(map(len, text.splitlines())) <= 80
    for words in ("link.rtt", "20.38 ms", "199.5 Mbit/s", "not taken", "Could not tell", "link.window"):
        assert words in text
    # What another file answers is no longer asked.
    assert "ping tells" not in text
    assert "iperf3 -R tells" not in text


def test_a_link_is_written_and_simulated(tmp_path):
    out = tmp_path / "new.yaml"
    geosim("calibrate", *UNEVEN, "--scenario", "laptop", "--link", "east-west", "--out", str(out))
    link = load_scenario(str(out)).wan[0]
    assert link.bandwidth("east") == pytest.approx(200 * 125e3, rel=0.05)
    assert link.bandwidth("west") == pytest.approx(50 * 125e3, rel=0.05)
    assert link.rtt_s == pytest.approx(0.02, rel=0.04)
    assert (link.jitter_s, link.loss) == (pytest.approx(0.00115, rel=0.1), pytest.approx(0.002, rel=0.1))
    assert "Calibrated from ping-iputils-uneven.txt" in load_scenario(str(out)).about
    assert "of the same accelerators in one room" in geosim(
        "simulate", str(out), "--policy", "diloco", "--windows", "5"
    )


def test_a_client_at_the_other_end_swaps_the_directions(tmp_path):
    out = tmp_path / "new.yaml"
    geosim("calibrate", *UNEVEN, "--scenario", "laptop", "--link", "west-east", "--out", str(out))
    link = load_scenario(str(out)).wan[0]
    assert link.bandwidth("west") == pytest.approx(200 * 125e3, rel=0.05)
    assert link.bandwidth("east") == pytest.approx(50 * 125e3, rel=0.05)


@pytest.mark.parametrize("link", ["east-west", "west-east"])
@pytest.mark.parametrize("name", ["iperf3-clean-forward.json", "iperf3-clean-reverse.json"])
def test_one_direction_of_a_link_that_is_alike_both_ways_stands_for_both(tmp_path, link, name):
    out = tmp_path / "new.yaml"
    geosim("calibrate", fixture(name), "--scenario", "laptop", "--link", link, "--out", str(out))
    made = load_scenario(str(out)).wan[0]
    assert made.back_bandwidth_bytes_per_s is None
    assert made.bandwidth_bytes_per_s == pytest.approx(100 * 125e3, rel=0.05)


def test_one_direction_of_an_uneven_link_leaves_the_other(tmp_path):
    first, second = tmp_path / "first.yaml", tmp_path / "second.yaml"
    geosim("calibrate", *UNEVEN, "--scenario", "laptop", "--link", "east-west", "--out", str(first))
    back = fixture("iperf3-clean-reverse.json")
    geosim("calibrate", back, "--scenario", str(first), "--link", "west-east", "--out", str(second))
    before, after = load_scenario(str(first)).wan[0], load_scenario(str(second)).wan[0]
    assert after.bandwidth("east") == pytest.approx(100 * 125e3, rel=0.05)
    assert after.bandwidth("west") == before.bandwidth("west")


def test_a_new_link_needs_bandwidth_and_rtt(tmp_path):
    base = tmp_path / "base.yaml"
    base.write_text(load_scenario("laptop").model_copy(update={"wan": ()}).to_yaml())
    args = ("--scenario", str(base), "--link", "west-east", "--out", str(tmp_path / "new.yaml"))
    assert "to make one the files lack its bandwidth" in geosim("calibrate", UNEVEN[0], *args, status=2)
    assert "lack its RTT" in geosim("calibrate", UNEVEN[1], *args, status=2)
    geosim("calibrate", *UNEVEN[:2], *args)
    assert load_scenario(str(tmp_path / "new.yaml")).wan[0].between == ("west", "east")


def test_fabric_model_and_step_time_are_written(tmp_path):
    out = tmp_path / "new.yaml"
    files = [fixture(n) for n in ("nccl-1x8-h100.txt", "config-qwen2.5-7b.json", "trace-gloo-rank0.json.gz")]
    text = geosim(
        "calibrate",
        *files,
        "--scenario",
        "two-campuses",
        "--site",
        "north",
        "--site",
        "south",
        "--out",
        str(out),
    )
    made = load_scenario(str(out))
    assert made.sites[0].fabric == made.sites[1].fabric
    assert made.sites[0].fabric.intra_node.bandwidth_bytes_per_s == pytest.approx(388e9, rel=0.01)
    assert made.workload.model.name == "qwen2-7.62b"
    assert made.workload.step_time_s == pytest.approx(0.0962, rel=0.001)
    assert "they are not those of the trace" in " ".join(text.split())
    geosim("simulate", str(out), "--policy", "diloco", "--windows", "5")


def test_json_has_it_all(tmp_path):
    out = tmp_path / "new.yaml"
    found = json.loads(
        geosim(
            "calibrate", *UNEVEN, "--scenario", "laptop", "--link", "east-west", "--out", str(out), "--json"
        )
    )
    assert [file["kind"] for file in found["files"]] == ["ping", "iperf3", "iperf3", "iperf3"]
    assert {v["field"]: v["text"] for v in found["values"]}["link.bandwidth"] == "199.5 Mbit/s"
    assert {c["path"] for c in found["changes"]} >= {"wan.0.rtt", "wan.0.jitter", "wan.0.back_bandwidth"}
    assert found["scenario"]["wan"][0]["rtt"] == "20.38 ms"
    assert any("link.window" in text for text in found["unknown"])


def test_a_step_time_of_another_model_is_told():
    text = geosim("calibrate", fixture("config-gpt2.json"), *LAPTOP, *VOID)
    assert "was not measured with this model" in " ".join(text.split())


@pytest.mark.parametrize(
    ("args", "says"),
    [
        ((UNEVEN[0], "--link", "east-west"), "--link east-west: needs the scenario to put values into"),
        ((UNEVEN[0], "--out", "x.yaml"), "--out x.yaml: needs the scenario"),
        ((UNEVEN[0], "--scenario", "laptop"), "needs a file for the new one: add --out FILE"),
        ((UNEVEN[0], "--scenario", "laptop", "--out", "/nowhere/x"), "there is no folder /nowhere"),
        ((UNEVEN[0], *LAPTOP, *VOID), "--link: say which link was measured"),
        ((UNEVEN[0], *LAPTOP, "--link", "east-east", *VOID), "name two of the sites east, west"),
        ((UNEVEN[0], *LAPTOP, "--link", "east-west", "--site", "east", *VOID), "has values of a fabric"),
        ((fixture("config-gpt2.json"), *LAPTOP, "--link", "east-west", *VOID), "has values of a link"),
        ((NCCL, *LAPTOP, *VOID), "--site: say whose fabric"),
        ((NCCL, *LAPTOP, "--site", "east", *VOID), "it is of another accelerator"),
        ((NCCL, *LAPTOP, "--site", "mars", *VOID), "--site mars: sites are east, west"),
        ((UNEVEN[0], UNEVEN[0]), "given twice"),
        ((UNEVEN[0], "--as", "pong"), "--as pong: use one of iperf3, ping, nccl-tests, torch-trace"),
        ((fixture("config-gpt2.json"), fixture("config-qwen3-8b.json")), "calibrate with one of them"),
        (("nowhere.json",), "nowhere.json: cannot read: No such file"),
    ],
)  # fmt: skip
def test_mistakes_get_one_line(args, says):
    told = geosim("calibrate", *args, status=2)
    assert told.startswith("geosim: ")
    assert told.count("\n") == 1
    assert says in told
