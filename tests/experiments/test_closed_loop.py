"""The closed loop from end to end on a tiny model, and what it refuses."""

import json
import subprocess
import sys

import pytest

from geosim.policy import load_policy, policy_from_dict
from runtime.emulate import missing

TINY = ["--set", "workload.model=byte-gpt-tiny", "--set", "workload.sequence=32"]
FILES = {"calibration.yaml", "closed_loop.png", "policy.yaml", "summary.json", "trace.json"}
KEYS = {
    "title", "scenario", "policy", "calibration", "steps", "paced", "seconds", "runs", "against_colocated",
    "against_flat_ddp",
}  # fmt: skip


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "experiments.closed_loop", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)


@pytest.mark.skipif(missing() is not None, reason="needs TUN devices and network namespaces")
def test_the_loop_closes(tmp_path) -> None:
    out = tmp_path / "loop"
    done = run("laptop", *TINY, "--steps", "8", "--pace", "60 ms", "--repeats", "1", "--out", str(out))
    assert done.returncode == 0, done.stderr
    assert {path.name for path in out.iterdir()} == FILES
    summary = json.loads((out / "summary.json").read_text())
    assert summary.keys() == KEYS
    assert summary["paced"]
    assert load_policy(str(out / "policy.yaml")) == policy_from_dict(summary["policy"])
    assert summary["steps"] % summary["policy"]["interval"] == 0
    assert summary["steps"] >= 8
    assert summary["runs"].keys() == {"co-located", "chosen", "flat-ddp"}
    for run_ in summary["runs"].values():
        assert run_.keys() == {"measured", "loss", "predicted"}
        assert len(run_["loss"]) == summary["steps"]
        for kind in ("measured", "predicted"):
            assert run_[kind]["step_time_s"]["mean"] > 0.06
    sent = {
        name: sum(link["bytes_per_step"] for link in run_["measured"]["links"].values())
        for name, run_ in summary["runs"].items()
    }
    assert sent["co-located"] == 0 < sent["chosen"] < sent["flat-ddp"]
    assert f"{100 * summary['against_colocated']:.1f} % of co-located throughput" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["laptopp"], "did you mean 'laptop'"),
        (["laptop", "--set", "wan.0.rtt=40"], "rtt"),
        (["laptop", "--set", "wan.0.latency=40 ms"], "latency"),
        (["laptop", "--set", "policy.interval=8"], "--set policy.interval"),
        (["laptop", "--pace", "60"], "--pace"),
        (["laptop", "--steps", "0"], "--steps"),
        (["laptop", "--steps", "some"], "--steps"),
        (["laptop", "--out", __file__], "--out"),
    ],
)
def test_a_mistake_is_one_line(arguments, words) -> None:
    done = run(*arguments)
    assert done.returncode == 2
    assert done.stdout == ""
    assert words in done.stderr
    assert done.stderr.startswith("closed_loop: ")
    assert len(done.stderr.strip().splitlines()) == 1
