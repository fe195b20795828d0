"""`geosim nccl-env`: what it recommends is what the model finds best, and a shell takes it."""

import json
import subprocess

import pytest

from geosim.cli import main
from geosim.cost import build, roce
from geosim.policy import load_policy
from geosim.scenario import Nccl, load_scenario
from geosim.tune.nccl import recommend, step_s

FAR = "hongkong-siliconvalley"
RDMA = {"nccl.net": "ib"}


def said(capsys, *arguments, status=0):
    with pytest.raises(SystemExit) as left:
        main(["nccl-env", *arguments])
    out = capsys.readouterr()
    assert left.value.code == status, out.out + out.err
    return out.out if status == 0 else out.err


def test_a_shell_takes_it(capsys):
    text = said(capsys, FAR, "--set", "nccl.net=ib")
    script = 'eval "$1"; echo "$NCCL_NET $NCCL_BUFFSIZE $TORCH_NCCL_ASYNC_ERROR_HANDLING"'
    done = subprocess.run(["bash", "-euc", script, "-", text], capture_output=True, text=True, check=True)
    net, buffer, handling = done.stdout.split()
    assert (net, handling) == ("IB", "1")
    assert int(buffer) > 4 << 20
    lines = text.splitlines()
    assert all(line.startswith(("# ", "export ")) for line in lines)
    # A reason stands before every variable.
    assert all(lines[i - 1].startswith("# ") for i, line in enumerate(lines) if line.startswith("export "))


def test_json_says_the_same_and_the_settings_reach_the_time_they_promise(capsys):
    data = json.loads(said(capsys, FAR, "--json"))
    assert set(data["environment"]) == set(data["reasons"])
    world = load_scenario(FAR).model_copy(update={"nccl": Nccl.model_validate(data["nccl"])})
    assert step_s(build(world, load_policy("ddp"))) == pytest.approx(data["step_s"]["after"])
    assert data["step_s"]["after"] < data["step_s"]["before"] / 5


def test_buffers_follow_the_path():
    """Ten times as far takes some ten times as much in flight, and a step in a hall hardly any."""
    flight = {}
    for rtt in ("2 ms", "20 ms", "200 ms"):
        found = recommend(load_scenario(FAR, {**RDMA, "wan.0.rtt": rtt})).nccl
        flight[rtt] = max(2, found.min_channels) * found.buffer_size_bytes
    assert flight["2 ms"] < flight["20 ms"] < flight["200 ms"]
    assert flight["200 ms"] > 10 * flight["2 ms"]


def test_nothing_in_the_grid_is_more_than_a_hundredth_faster():
    world = load_scenario(FAR, RDMA)
    found = recommend(world)
    for change in (
        {"algorithm": "ring"}, {"algorithm": "tree"}, {"traffic_class": 106}, {"min_channels": 32},
        {"buffer_size_bytes": 4 * found.nccl.buffer_size_bytes}, {"net": "socket"}, {"gid_index": 0},
    ):  # fmt: skip
        other = world.model_copy(update={"nccl": found.nccl.model_copy(update=change)})
        assert step_s(build(other, load_policy("ddp"))) >= found.after_s / 1.01


def test_timeouts_cover_jitter_and_shorten_where_tails_are_lost():
    far = recommend(load_scenario(FAR, {**RDMA, "wan.0.jitter": "2 s"})).nccl
    assert far.timeout > Nccl().timeout
    assert roce.spurious(far.timeout, 0.18, 2.0) < 1e-9
    lossy = recommend(
        load_scenario(FAR, {**RDMA, "wan.0.loss": 1e-4, "nccl.retransmission": "selective-repeat"})
    ).nccl
    assert lossy.timeout < Nccl().timeout
    assert recommend(load_scenario(FAR, RDMA)).nccl.timeout == Nccl().timeout


def test_marks_are_asked_for_where_the_path_changes_under_a_full_window():
    """A link that falls to a quarter: what fitted at full rate overflows, but for what answers marks."""
    trace = [{"at": "0 s", "bandwidth": "10 Gbit/s"}, {"at": "1 h", "bandwidth": "40 Gbit/s"}]
    held = recommend(load_scenario(FAR, {**RDMA, "wan.0.trace": trace, "wan.0.queue": "16 MiB"}))
    assert held.nccl.buffer_size_bytes * max(2, held.nccl.min_channels) < 1.2 * (10e9 / 8 * 0.18 + (16 << 20))


def test_one_site_has_no_wan_to_set(capsys):
    world = load_scenario("two-campuses")
    alone = world.model_copy(update={"sites": world.sites[:1], "wan": ()})
    assert {v.name for v in recommend(alone).variables} <= {
        "NCCL_BUFFSIZE", "NCCL_MIN_NCHANNELS", "TORCH_NCCL_ASYNC_ERROR_HANDLING",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["laptop"], "scenario laptop: its sites are processors: collectives run on gloo, NCCL has no part"),
        ([FAR, "--set", "policy.interval=2"], "nccl-env takes none"),
        ([FAR, "--set", "nccl.bufsize=1"], "nccl.bufsize: unknown key; did you mean 'buffer_size'?"),
    ],
)
def test_what_makes_no_sense_gets_one_line(capsys, arguments, says):
    text = said(capsys, *arguments, status=2)
    assert says in text
    assert len(text.strip().splitlines()) == 1


@pytest.mark.parametrize("name", ["two-campuses", "beijing-ningxia", "llama-405b-four-campuses", FAR])
@pytest.mark.parametrize("net", ["socket", "ib"])
def test_reasons_are_what_the_model_says(name, net):
    """What a reason calls slower is, and buckets are blamed only where they wait."""
    world = load_scenario(name, {"nccl.net": net})
    found = recommend(world)
    reasons = {v.name: v.reason for v in (*found.variables, *found.left_alone)}
    other = "tree" if found.nccl.algorithm == "ring" else "ring"
    for variable, change in (
        ("NCCL_ALGO", {"algorithm": other}), ("NCCL_MIN_NCHANNELS", {"min_channels": 4}),
    ):  # fmt: skip
        settings = world.model_copy(update={"nccl": found.nccl.model_copy(update=change)})
        took = step_s(build(settings, load_policy("ddp")))
        if found.nccl.min_channels == 1 or variable == "NCCL_ALGO":
            assert (", so " in reasons[variable]) == (took > found.after_s * 1.0005)
    problem = build(world, load_policy("ddp"))
    computes = max(site.steady_s for site in problem.sites)
    assert ("behind compute" in reasons["bucket_cap_mb"]) == (computes > 5)
