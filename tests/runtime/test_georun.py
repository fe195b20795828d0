"""The command: errors in one line with their status, and results as JSON."""

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
import typer.main
from pool import free_port

from geosim.errors import RunError
from runtime import cli
from runtime.cli import _json
from runtime.ending import conclude, told
from runtime.saved import only_writer

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
        ([*DDP, "--pace", "-5 ms"], "--pace -5 ms: must be above 0"),
        ([*DDP, "--lr", "inf"], "--lr inf: must be finite and above 0"),
        ([*DDP, "--timeout", "inf"], "--timeout inf: must be finite and above 0"),
        ([*DDP, "--data", ""], "--data '': names nothing"),
        ([*DDP, "--resume", "/no/such"], "--resume /no/such: no such folder"),
        ([*DDP, "--wan", "maybe"], "use 'tun' or 'none'"),
        ([*DDP, "--set", "interval"], "no '='"),
        ([*DDP, "--set", "wan.0.rtt=-1 ms"], "must be 0 or more"),
        ([*DDP, "--set", "policy.interval=0"], "interval"),
        (["emulate", "laptop", "--policy", "ddp"], "--steps"),
        ([*DDP, "--data", "/no/such"], "/no/such"),
        ([*DDP, "--save-every", "2"], "add --save FOLDER"),
        ([*DDP, "--save-every", "-2"], "--save-every -2: must be 0 or more"),
        ([*DDP, "--validations", "-1"], "--validations -1: must be 0 or more"),
        ([*DDP, "--set", "workload.model.head_dim=8"], "workload.model.head_dim: 8"),
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


def small_run(folder, *arguments):
    """A run of a tiny model, without a WAN."""
    options = ["--wan", "none", "--data", write_text(folder), "--set", TINY, "--set", "workload.sequence=16"]
    return georun("emulate", *arguments, *options)


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        (["local-sgd", "--set", "policy.interval=2"], "2 of 2 rounds skipped: sites 'east', 'west' were not"),
        (["ddp"], "the run has diverged: it ended with loss nan"),
    ],
)
def test_a_run_that_learnt_nothing_fails_and_shows_its_figures(tmp_path, policy, words):
    out = tmp_path / "out"
    done = small_run(tmp_path, "laptop", "--policy", *policy, "--steps", "4", "--lr", "1e30", "--json",
                     "--out", str(out))  # fmt: skip
    assert done.returncode == 1
    assert json.loads(done.stdout) == json.loads((out / "result.json").read_text())
    said = [line for line in done.stderr.splitlines() if line.startswith("georun: ")]
    assert len(said) == 1
    assert words in said[0]
    assert "lower the learning rate" in said[0]


def test_some_rounds_skipped_are_a_warning(capsys):
    figures = {"skipped_rounds": 1, "rounds": 6, "not_finite": ["west"]}
    conclude(1.0, 1.0, figures)
    said = capsys.readouterr().err
    assert said.startswith("georun: warning: 1 of 6 rounds skipped: site 'west' was not finite: lower the ")
    assert said.count("\n") == 1
    conclude(1.0, 1.0, figures | {"skipped_rounds": 0, "not_finite": []})
    assert capsys.readouterr().err == ""
    with pytest.raises(RunError, match=r"ended with loss 1 and validation loss nan \(1 of 6 rounds"):
        conclude(1.0, math.nan, figures)


ALONE = """
name: alone
about: One site.
sites:
  - name: east
    accelerator: cpu-core
    nodes: 1
    accelerators_per_node: 2
    fabric: {intra_node: {bandwidth: 2 GB/s, latency: 50 us}}
workload: {model: byte-gpt-3m, sequence: 128, batch_per_accelerator: 2}
"""


@pytest.mark.parametrize("policy", ["ddp", "local-sgd"])
def test_one_site_speaks_of_no_wan(tmp_path, policy):
    scenario, out = tmp_path / "alone.yaml", tmp_path / "out"
    scenario.write_text(ALONE)
    settings = [] if policy == "ddp" else ["--set", "policy.interval=2"]
    done = small_run(
        tmp_path, str(scenario), "--policy", policy, *settings, "--steps", "4", "--out", str(out)
    )
    assert done.returncode == 0, done.stderr
    assert "a step" in done.stdout
    for word in ("WAN", "exchange", "co-located"):
        assert word not in done.stdout
    result = json.loads((out / "result.json").read_text())
    assert result["exposed_wan_s_per_step"] == 0
    assert result["payload_bytes"] == {"east": 0}
    if policy == "ddp":
        assert result["parts"]["wait"] == 0 < result["parts"]["site_collective"]


def test_a_trace_that_cannot_be_written_loses_no_figure(tmp_path):
    out = tmp_path / "out"
    done = small_run(
        tmp_path, "laptop", "--policy", "local-sgd", "--set", "policy.interval=2", "--steps", "4",
        "--trace", "/dev/full", "--out", str(out),
    )  # fmt: skip
    assert done.returncode == 2
    assert (
        done.stderr.splitlines()[-1] == "georun: /dev/full: cannot write the trace: No space left on device"
    )
    assert json.loads((out / "result.json").read_text())["steps"] == 4
    assert "rounds" in done.stdout
    assert "\n\nNo WAN lay between the sites; link figures" in done.stdout
    assert "trace:" not in done.stdout


def test_a_ranks_trace_that_cannot_be_written_loses_no_figure(tmp_path):
    scenario = tmp_path / "alone.yaml"
    scenario.write_text(ALONE.replace("per_node: 2", "per_node: 1"))
    argv = ["train", "--site", "east", "--rendezvous", f"127.0.0.1:{free_port()}", "--policy", "local-sgd"]
    argv += ["--steps", "4", "--scenario", str(scenario), "--data", write_text(tmp_path), "--set", TINY]
    argv += ["--set", "workload.sequence=16", "--set", "policy.interval=2"]
    done = georun(*argv, "--trace", "/dev/full")
    assert done.returncode == 2
    assert (
        done.stderr.splitlines()[-1] == "georun: /dev/full: cannot write the trace: No space left on device"
    )
    assert "rounds" in done.stdout
    assert "trace:" not in done.stdout
    trace = tmp_path / "trace.json"
    done = georun(*argv, "--trace", str(trace))
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith(f"\n\ntrace: {trace} (open it at ui.perfetto.dev)\n")
    assert json.loads(trace.read_text())["traceEvents"]


def test_every_option_has_its_help():
    group = typer.main.get_command(cli.app)
    commands = [*group.commands.values(), *group.commands["bench"].commands.values()]
    silent = [
        f"{command.name} {option.name}"
        for command in commands
        for option in command.params
        if not getattr(option, "help", None)
    ]
    assert silent == []


@pytest.mark.parametrize(("flat", "who"), [(True, "another rank"), (False, "another rank of the site")])
def test_who_a_rank_has_waited_for(flat, who):
    """Under flat DDP it may be another site's."""
    error = RuntimeError(
        "[gloo/unbound_buffer.cc:81] Timed out waiting 5000ms for recv operation to complete"
    )
    line = f"{who} has said nothing for 5 s: look for it, or raise --timeout"
    assert told(error, flat=flat) == (line, 1)


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_a_stream_that_cannot_be_written(tmp_path, stream, monkeypatch):
    """A full disk behind the figures is one line and a failure, behind the progress it is nothing."""
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
    options = ["--policy", "local-sgd", "--set", "policy.interval=2", "--steps", "2", "--wan", "none"]
    options += ["--data", write_text(tmp_path), "--set", TINY, "--set", "workload.sequence=16", "--json"]
    argv = [
        sys.executable,
        "-m",
        "runtime.cli",
        "emulate",
        "laptop",
        *options,
        "--out",
        str(tmp_path / "out"),
    ]
    with open("/dev/full", "w") as full:
        streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | {stream: full}
        done = subprocess.run(argv, text=True, cwd=ROOT, timeout=60, check=False, **streams)
    assert json.loads((tmp_path / "out" / "result.json").read_text())["steps"] == 2
    if stream == "stderr":
        assert done.returncode == 0
        assert json.loads(done.stdout)["steps"] == 2
    else:
        assert done.returncode == 1
        assert done.stderr.splitlines()[-1] == "georun: cannot write: No space left on device"
        assert "Traceback" not in done.stderr


def test_a_reader_that_has_gone_is_no_traceback():
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-m", "runtime.cli", "doctor", "--json"], stdout=writer, stderr=subprocess.PIPE,
        text=True, cwd=ROOT, timeout=60, check=False,
    )  # fmt: skip
    os.close(writer)
    assert (done.returncode, done.stderr) == (1, "")


def test_a_folder_that_another_run_saves_in_is_refused(tmp_path):
    with only_writer(tmp_path):
        done = small_run(
            tmp_path, "laptop", "--policy", "local-sgd", "--set", "policy.interval=2", "--steps", "2",
            "--save", str(tmp_path),
        )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr == f"georun: --save {tmp_path}: another run saves there now: name another folder\n"


@pytest.mark.parametrize(("rank", "world"), [("x", "2"), ("0", "two"), ("2", "2")])
def test_an_environment_that_is_not_torchruns(monkeypatch, rank, world):
    monkeypatch.setenv("RANK", rank)
    monkeypatch.setenv("WORLD_SIZE", world)
    done = georun("train", "--site", "east", "--rendezvous", "127.0.0.1:1", *DDP[2:])
    assert done.returncode == 2
    assert done.stderr.startswith(f"georun: RANK={rank} and WORLD_SIZE={world} in the environment: ")
    assert done.stderr.count("\n") == 1


def test_a_rendezvous_that_cannot_be_served_is_one_line():
    settings = [f"sites.{site}.accelerators_per_node=1" for site in (0, 1)]
    changes = [part for setting in settings for part in ("--set", setting)]
    where = ["--site", "east", "--rendezvous", "nowhere.invalid:29600"]
    done = georun("train", *where, *DDP[2:], *changes, "--timeout", "1")
    assert done.returncode == 1
    assert "cannot serve the sites' store there" in done.stderr
    assert done.stderr.count("\n") == 1


def test_train_on_two_sites_ends_with_equal_parameters(tmp_path):
    """As on real machines: one command a site, here of one rank each."""
    text = write_text(tmp_path)
    port = free_port()
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
