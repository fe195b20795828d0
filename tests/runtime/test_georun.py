"""The command: errors in one line with their status, and results as JSON."""

import json
import math
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from runtime.cli import _json

DDP = ("emulate", "laptop", "--policy", "ddp", "--steps", "4")
ROOT = Path(__file__).resolve().parents[2]


TINY = (
    "workload.model={name: tiny, layers: 1, d_model: 16, heads: 1, ffn: 64, gated: false, "
    "vocabulary: 256, tied: true, positions: 32}"
)


def write_text(folder):
    """A small corpus."""
    path = folder / "text.txt"
    path.write_text("".join(f"line {n} of a text that repeats itself\n" for n in range(3000)))
    return str(path)


def georun(*arguments):
    """Run the command; it must end by itself."""
    return subprocess.run(
        [sys.executable, "-m", "runtime.cli", *arguments],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=60,
    )


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["emulate", "laptop", "--policy", "nope", "--steps", "4"], "'nope' is neither built in nor a file"),
        (["emulate", "nowhere", "--policy", "ddp", "--steps", "4"], "'nowhere' is neither built in"),
        (["emulate", "laptop", "--policy", "hierarchical-efsgd", "--steps", "20"], "use 16 or 32"),
        ([*DDP, "--pace", "80"], "no unit"),
        ([*DDP, "--wan", "maybe"], "use 'tun' or 'none'"),
        ([*DDP, "--set", "interval"], "no '='"),
        ([*DDP, "--set", "wan.0.rtt=-1 ms"], "must be 0 or more"),
        ([*DDP, "--set", "policy.interval=0"], "interval"),
        (["emulate", "laptop", "--policy", "ddp"], "--steps"),
        ([*DDP, "--data", "/no/such"], "/no/such"),
        ([*DDP, "--save-every", "2"], "add --save FOLDER"),
        ([*DDP, "--set", "workload.model.positions=0"], "workload.model.positions: 0"),
        ([*DDP, "--wan", "none", "--out", "/dev/null/out"], "--out /dev/null/out: a file is in the way"),
        ([*DDP, "--wan", "none", "--save", "/dev/null/s"], "--save /dev/null/s: a file is in the way"),
        (["train", "--site", "mars", "--rendezvous", "a:1", *DDP[2:]], "no such site"),
    ],
)  # fmt: skip
def test_usage_errors_are_one_line_and_status_two(arguments, words):
    done = georun(*arguments)
    assert done.returncode == 2, done.stderr
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("georun: ")
    assert words in lines[0]


def test_help_loads_no_torch():
    code = "import sys, runtime.cli; sys.exit('torch' in sys.modules or 'geosim.policy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


def test_json_is_all_there_is_on_standard_output(tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("".join(f"line {n} of a text that repeats itself\n" for n in range(3000)))
    done = georun(
        "emulate", "laptop", "--policy", "local-sgd", "--steps", "4", "--wan", "none", "--json",
        "--data", text,
        "--set", "policy.interval=2", "--set", TINY, "--set", "workload.sequence=16",
        "--out", str(tmp_path / "out"),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["steps"] == 4
    assert json.loads((tmp_path / "out" / "result.json").read_text()) == json.loads(done.stdout)
    assert "interval: 2" in (tmp_path / "out" / "policy.yaml").read_text()


def test_train_on_two_sites_ends_with_equal_parameters(tmp_path):
    """As on real machines: one command a site, here of one rank each."""
    text = write_text(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    started = []
    for site in ("west", "east"):
        settings = [TINY, "workload.sequence=16", "policy.interval=2"]
        settings += [f"sites.{i}.accelerators_per_node=1" for i in (0, 1)]
        argv = ["train", "--site", site, "--rendezvous", f"127.0.0.1:{port}", "--policy", "diloco"]
        argv += ["--steps", "6", "--data", text, "--json", "--timeout", "30"]
        for setting in settings:
            argv += ["--set", setting]
        started.append(
            subprocess.Popen([sys.executable, "-m", "runtime.cli", *argv], stdout=subprocess.PIPE, cwd=ROOT)
        )
    figures = [json.loads(command.communicate(timeout=60)[0]) for command in started]
    assert [command.returncode for command in started] == [0, 0]
    assert [f["site"] for f in figures] == ["west", "east"]
    assert figures[0]["params_hash"] == figures[1]["params_hash"]
    assert figures[0]["validation"][-1] == figures[1]["validation"][-1]


def test_json_has_null_for_what_is_not_finite():
    said = _json({"loss": [[1, math.nan], (2, 0.5)], "val_loss": math.inf})
    assert json.loads(said) == {"loss": [[1, None], [2, 0.5]], "val_loss": None}


def test_doctor_looks_at_everything():
    found = {row["what"]: row["works"] for row in json.loads(georun("doctor", "--json").stdout)}
    assert found["torch"]
    assert found["gloo"]
    assert "emulated WAN" in found
