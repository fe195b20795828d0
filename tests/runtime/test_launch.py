"""Whole runs: a process a rank, over loopback and over the emulated WAN, and what happens when one dies."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from geosim.errors import RunError, UsageError
from geosim.policy import load_policy
from geosim.scenario import load_scenario
from runtime import checkpoint
from runtime.emulate import missing
from runtime.inputs import check_inputs
from runtime.job import Job
from runtime.launch import emulate

TINY = {
    "name": "tiny",
    "layers": 2,
    "d_model": 32,
    "heads": 2,
    "ffn": 128,
    "gated": False,
    "vocabulary": 256,
    "tied": True,
    "positions": 32,
}
KEYS = {
    "scenario", "policy", "step_time_s", "compute_utilization", "exchange_time_s", "exposed_wan_s_per_step",
    "tokens_per_s", "relative_to_colocated", "links", "wan_bytes_vs_ddp",
}  # fmt: skip
needs_wan = pytest.mark.skipif(missing() is not None, reason=str(missing()))


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    """A small corpus."""
    path = tmp_path_factory.mktemp("text") / "text.txt"
    lines = [f"{n} times {n} is {n * n}, and {n} plus {n} is {n + n}.\n" for n in range(4000)]
    path.write_text("".join(lines))
    return str(path)


def scenario(**changes):
    """Two sites of two ranks and a tiny model."""
    base = {"workload.model": dict(TINY), "workload.sequence": 32, "workload.batch_per_accelerator": 4}
    return load_scenario("laptop", base | changes)


def left_over():
    """Workers that still run, by process number."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                command = (entry / "cmdline").read_bytes()
                parent = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
            except OSError:
                continue
            if b"runtime.worker" in command and parent == os.getpid():
                found.append(int(entry.name))
    return found


def test_a_run_without_a_wan(text, tmp_path):
    steps = []
    policy = load_policy("hierarchical-efsgd", {"interval": 4})
    result = emulate(
        scenario(), policy, 24, wan="none", data=text, pace_s=0.02, validations=1, save=str(tmp_path /
        "saved"), progress=lambda step, of, loss: steps.append((step, of)),
    )  # fmt: skip
    assert set(result) >= KEYS
    json.dumps(result)
    assert steps[-1] == (24, 24)
    assert result["warmup_steps"] == 8
    # Windows 3 to 6 are measured, without the one after the validation at step 12.
    assert result["measured_steps"] == 12
    assert result["step_time_s"]["mean"] >= 0.02
    assert result["paced"]
    assert len(result["loss"]) == 24
    assert [step for step, _ in result["val_curve"]] == [12, 24]
    assert result["val_loss"] < result["loss"][0][1]
    assert len(set(result["params_hash"].values())) == 1
    assert result["payload_bytes"]["east"] == result["payload_bytes"]["west"] > 0
    assert sorted(result["links"]) == ["east->west", "west->east"]
    assert sorted(p.name for p in (tmp_path / "saved").iterdir()) == [
        f"{site}.rank-{rank}.step-24.pt" for site in ("east", "west") for rank in (0, 1)
    ]
    assert result["late_steps"] <= result["measured_steps"]
    assert not left_over()


def test_a_resumed_run_ends_with_the_same_parameters(text, tmp_path):
    policy = load_policy("hierarchical-efsgd", {"interval": 2})
    options = {"wan": "none", "data": text, "seed": 3}
    whole = emulate(scenario(), policy, 8, save=str(tmp_path), save_every=6, **options)
    # As if one rank had been killed before it wrote the last one.
    checkpoint.path_of(tmp_path, "west", 1, 8).unlink()
    again = emulate(scenario(), policy, 8, resume=str(tmp_path), **options)
    assert again["params_hash"] == whole["params_hash"]
    assert again["chain_hash"] == whole["chain_hash"]
    assert again["loss"] == whole["loss"][6:]
    # One round of four: bytes are of this run's steps.
    assert again["rounds"] == 1
    assert {site: 4 * sent for site, sent in again["payload_bytes"].items()} == whole["payload_bytes"]
    assert again["links"]["east->west"]["bytes_per_step"] == whole["links"]["east->west"]["bytes_per_step"]
    assert again["wan_bytes_vs_ddp"] == whole["wan_bytes_vs_ddp"]


def test_a_resumed_run_says_what_it_does_otherwise_and_does_it(text, tmp_path):
    policy = load_policy("hierarchical-efsgd", {"interval": 2})
    options = {"wan": "none", "data": text}
    whole = emulate(scenario(), policy, 8, save=str(tmp_path / "saved"), save_every=6, **options)
    for site in ("east", "west"):
        for rank in (0, 1):
            checkpoint.path_of(tmp_path / "saved", site, rank, 8).unlink()
    notes = []
    again = emulate(
        scenario(), policy, 12, resume=str(tmp_path / "saved"), lr=1e-3, seed=5, note=notes.append, **options
    )
    assert [step for step, _ in again["loss"]] == list(range(7, 13))
    assert [note.split(":")[0] for note in notes] == ["--steps", "--lr", "--seed"]
    assert notes[0] == (
        "--steps: the resumed run had 8 and this one has 12: the learning rate follows the schedule of 12 "
        "steps from step 7 on"
    )
    slower = emulate(scenario(), policy, 8, resume=str(tmp_path / "saved"), lr=1e-3, **options)
    assert slower["params_hash"] != whole["params_hash"]


@pytest.mark.parametrize(
    ("changes", "settings", "words"),
    [
        ({"workload.batch_per_accelerator": 2}, {}, "workload.batch_per_accelerator 4 and this one has 2"),
        ({"workload.sequence": 16}, {}, "workload.sequence 32 and this one has 16"),
        ({"workload.model": dict(TINY, layers=1)}, {}, "workload.model.layers 2 and this one has 1"),
        ({}, {"interval": 4}, "policy.interval 2 and this one has 4"),
    ],
)
def test_another_run_is_not_resumed(saved, text, tmp_path, changes, settings, words):
    policy = load_policy("local-sgd", {"interval": 2} | settings)
    with pytest.raises(UsageError) as error:
        emulate(
            scenario(**changes), policy, 8, wan="none", data=text, resume=saved, out=tmp_path / "out",
            save=str(tmp_path / "save"),
        )  # fmt: skip
    assert words in str(error.value)
    assert "\n" not in str(error.value)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"data": "/no/such"}, "'/no/such' does not exist"),
        ({"data": "/dev/zero"}, "not a regular file"),
        ({"resume": "/no/such"}, "--resume /no/such: no such folder"),
        ({"resume": "/dev"}, "--resume /dev: no step that all ranks have saved"),
        ({"resume": None, "steps": 4}, "--steps 4: the checkpoint stands at step 4"),
        ({"save": None}, "holds another run's checkpoints"),
    ],
)
def test_bad_inputs_are_refused_before_anything_is_started_or_made(
    saved, text, tmp_path, monkeypatch, options, words
):
    given = {"data": text, "save": str(tmp_path / "save"), "steps": 8, "out": tmp_path / "out"} | {
        name: saved if value is None else value for name, value in options.items()
    }
    monkeypatch.setattr("runtime.launch.Crew", None)
    with pytest.raises(UsageError) as error:
        emulate(scenario(), load_policy("local-sgd", {"interval": 2}), wan="none", **given)
    assert words in str(error.value)
    assert "\n" not in str(error.value)
    assert not list(tmp_path.iterdir())


def test_a_rank_that_is_ahead_may_go_back_to_the_step_that_all_have(saved):
    """On real machines each rank sees its own files only."""
    job = Job(scenario(), load_policy("local-sgd", {"interval": 2}), 4, resume=saved)
    check_inputs(job, [("east", 0)])
    with pytest.raises(UsageError, match="stands at step 4"):
        check_inputs(job, [(site, rank) for site in ("east", "west") for rank in (0, 1)])


@pytest.fixture(scope="module")
def saved(text, tmp_path_factory):
    """A folder with the checkpoints of a run of four steps."""
    folder = tmp_path_factory.mktemp("saved")
    policy = load_policy("local-sgd", {"interval": 2})
    emulate(scenario(), policy, 4, wan="none", data=text, save=str(folder))
    return str(folder)


def test_flat_ddp_learns_what_one_exact_exchange_a_step_does(text):
    flat = emulate(scenario(), load_policy("ddp"), 8, wan="none", data=text)
    exact = emulate(scenario(), load_policy("ddp", {"topology": "direct"}), 8, wan="none", data=text)
    for (_, a), (_, b) in zip(flat["loss"], exact["loss"], strict=True):
        assert a == pytest.approx(b, rel=1e-4)
    assert flat["val_loss"] == pytest.approx(exact["val_loss"], rel=1e-4)
    assert len(set(flat["params_hash"].values())) == 1
    # The reductions are timed, and the bytes are what the ring of the four ranks passes on.
    assert flat["exchange_time_s"]["mean"] > 0.5 * flat["exposed_wan_s_per_step"] > 0
    assert flat["links_from"] == "computed"
    ring = 2 * 3 / 4 * 4 * flat["parameters"]
    assert {link["bytes_per_step"] for link in flat["links"].values()} == {ring}
    assert flat["payload_bytes"] == {"east": 8 * ring, "west": 8 * ring}
    assert flat["wan_bytes_vs_ddp"] == 1


@pytest.mark.parametrize("number", [0, 3])
def test_a_rank_that_dies_ends_the_run(text, number):
    holder = {}

    def progress(step, of, loss):
        if "killed" not in holder and step >= 3:
            holder["killed"] = time.monotonic()
            os.kill(holder["crew"].members[number].process.pid, signal.SIGKILL)

    policy = load_policy("hierarchical-efsgd", {"interval": 2})
    with pytest.raises(RunError) as error:
        emulate(
            scenario(), policy, 400, wan="none", data=text, pace_s=0.05, progress=progress,
            on_start=lambda crew: holder.update(crew=crew),
        )  # fmt: skip
    assert time.monotonic() - holder["killed"] < 5
    site = ("east", "west")[number // 2]
    assert f"site '{site}' rank {number % 2} was killed by SIGKILL" in str(error.value)
    assert "\n" not in str(error.value)
    assert not left_over()


def test_an_error_in_a_rank_is_the_runs(tmp_path):
    short = tmp_path / "short.txt"
    short.write_text("too short")
    with pytest.raises(UsageError, match="too small"):
        emulate(scenario(), load_policy("ddp"), 2, wan="none", data=str(short))
    assert not left_over()


FAULTY = """
import torch
from runtime import method, worker

class Faulty(method.GeoOptimizer):
    def step(self, closure=None):
        if self._sites.name == "west" and self.steps == 5:
            self.param_groups[0]["params"][0].grad.view(-1)[0] = torch.nan
        return super().step(closure)

method.GeoOptimizer = Faulty
worker.main()
"""


def test_not_a_number_at_one_site_is_skipped_by_all_and_counted(text, tmp_path, monkeypatch):
    worker = tmp_path / "faulty.py"
    worker.write_text(FAULTY)
    monkeypatch.setattr("runtime.launch._WORKER", (str(worker),))
    policy = load_policy("hierarchical-efsgd", {"interval": 2})
    result = emulate(scenario(), policy, 12, wan="none", data=text)
    assert (result["skipped_rounds"], result["rounds"], result["not_finite"]) == (1, 6, ["west"])
    assert len(set(result["params_hash"].values())) == 1
    assert result["val_loss"] < result["loss"][0][1]


@pytest.mark.parametrize(
    ("changes", "policy", "steps", "word"),
    [
        ({}, "hierarchical-efsgd", 20, "use 16 or 32"),
        ({}, "eager-diloco", 500, "geosim simulate"),
        ({"workload.model": "llama2-7b"}, "ddp", 2, "workload.model"),
    ],
)
def test_what_cannot_run_is_refused_before_anything_starts(changes, policy, steps, word):
    with pytest.raises(UsageError, match=word) as error:
        emulate(load_scenario("laptop", changes), load_policy(policy), steps, wan="none")
    assert "\n" not in str(error.value)


@needs_wan
def test_over_the_emulated_wan_the_relay_counts_little_more_than_the_payloads(text):
    # 35,000 parameters in fp32: some 70 KB a rank, so several ranks' worth makes more than 256 KiB a round.
    changes = {
        "wan.0.rtt": "10 ms",
        "wan.0.bandwidth": "200 Mbit/s",
        "workload.model": dict(TINY, d_model=128, ffn=512),
    }
    policy = load_policy("local-sgd", {"interval": 2})
    result = emulate(scenario(**changes), policy, 16, wan="tun", data=text)
    payload, counted = result["payload_bytes"], result["wan_bytes"]
    assert payload["east"] / (8 * 2) > 256 * 1024
    for source, link in (("east", "east->west"), ("west", "west->east")):
        assert 1 < counted[link] / payload[source] < 1.05
        assert result["links"][link]["bytes_per_step"] * 16 == pytest.approx(payload[source], rel=0.05)
    assert len(set(result["params_hash"].values())) == 1
    assert result["exchange_time_s"]["mean"] > 0.01
    assert not left_over()


@needs_wan
def test_a_relay_that_dies_ends_the_run_at_once(text):
    """And not only when a rank has waited for its timeout."""
    killed = []

    def progress(step, of, loss):
        if not killed:
            killed.append(time.monotonic())
            (relay,) = children(os.getpid(), b"relay")
            os.kill(relay, signal.SIGKILL)

    policy = load_policy("hierarchical-efsgd", {"interval": 2})
    with pytest.raises(RunError, match="the emulated WAN has gone: its relay has ended, or was killed"):
        emulate(scenario(), policy, 400, data=text, pace_s=0.05, timeout_s=60, progress=progress)
    assert time.monotonic() - killed[0] < 10
    assert not left_over()


@pytest.mark.parametrize(("how", "status"), [("SIGINT", 130), ("SIGTERM", 143), ("SIGKILL", -9)])
def test_the_commands_end_is_the_ranks_end(text, how, status):
    argv = [
        sys.executable,
        "-m",
        "runtime.cli",
        "emulate",
        "laptop",
        "--policy",
        "local-sgd",
        "--steps",
        "1600",
    ]
    options = ["--wan", "none", "--data", text, "--pace", "50 ms"]
    command = subprocess.Popen(argv + options, stderr=subprocess.PIPE, text=True)
    ranks = []
    deadline = time.monotonic() + 30
    while len(ranks) < 4 and time.monotonic() < deadline:
        ranks = children(command.pid)
        time.sleep(0.05)
    time.sleep(0.5)
    command.send_signal(getattr(signal, how))
    said = command.communicate(timeout=20)[1]
    assert command.returncode == status
    if status > 0:
        assert said.splitlines()[-1].startswith("georun: stopped")
    deadline = time.monotonic() + 10
    while any(alive(pid) for pid in ranks) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert len(ranks) == 4
    assert not any(alive(pid) for pid in ranks)


def children(pid, word=b""):
    """Process numbers of a process's children, of those with a word in their command."""
    tasks = Path(f"/proc/{pid}/task").glob("*/children")
    found = [int(child) for task in tasks for child in task.read_text().split()]
    return [child for child in found if word in Path(f"/proc/{child}/cmdline").read_bytes()]


def alive(pid):
    """Whether a process runs (one that nobody has waited for does not)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def test_unequal_shares_train_as_one_process_on_the_same_batch(text):
    """K = 1, dense fp32: a_m weighs each site's mean gradient, so only rounding differs.

    Sites of one and two ranks, with 2 and 3 sequences each: 2 + 6 = 8.
    """
    site = scenario().to_dict()["sites"][0] | {"accelerators_per_node": 1}
    one = {"sites": [site], "wan": [], "workload.batch_per_accelerator": 8}
    alone = emulate(scenario(**one), load_policy("ddp"), 6, wan="none", data=text)
    shares = {
        "sites.0.accelerators_per_node": 1, "sites.0.batch_per_accelerator": 2,
        "sites.1.batch_per_accelerator": 3,
    }  # fmt: skip
    for policy in (load_policy("ddp"), load_policy("ddp", {"topology": "direct"})):
        split = emulate(scenario(**shares), policy, 6, wan="none", data=text)
        assert split["batch_per_accelerator"] == {"east": 2, "west": 3}
        for (step, loss), (_, whole) in zip(split["loss"], alone["loss"], strict=True):
            assert loss == pytest.approx(whole, rel=1e-5), step
        assert split["val_loss"] == pytest.approx(alone["val_loss"], rel=1e-5)


def test_sites_of_different_sizes_resume_bit_for_bit(text, tmp_path):
    """West's second rank has no shard."""
    world = scenario(**{"sites.0.accelerators_per_node": 1})
    policy = load_policy("hierarchical-efsgd", {"interval": 2})
    common = {"wan": "none", "data": text}
    whole = emulate(world, policy, 8, save=str(tmp_path), save_every=4, **common)
    for file in tmp_path.glob("*"):
        if "8" in file.name.rpartition("-")[2]:
            file.unlink()
    again = emulate(world, policy, 8, resume=str(tmp_path), **common)
    assert again["params_hash"] == whole["params_hash"]
    assert again["chain_hash"] == whole["chain_hash"]


def test_sites_of_different_pace_wait_for_each_other(text):
    result = emulate(
        scenario(), load_policy("ddp", {"topology": "direct"}), 12, wan="none", data=text, pace_s=0.05,
        site_pace_s={"west": 0.1},
    )  # fmt: skip
    east, west = (result["sites"][site] for site in ("east", "west"))
    assert west["compute_s"] > 1.5 * east["compute_s"]
    assert east["idle_s"] > 0.03
    assert west["idle_s"] == 0


def test_a_pace_of_no_site_is_one_line(text):
    with pytest.raises(UsageError, match="--pace north: no such site: use one of east, west"):
        emulate(scenario(), load_policy("ddp"), 4, wan="none", data=text, site_pace_s={"north": 1.0})
