"""What real runs take down: one kind of file with the simulator, on one clock, and nothing when not asked."""

import json
import subprocess
import sys
import time
from collections import defaultdict
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from pool import free_port

from geosim.errors import UsageError
from geosim.policy import load_policy
from geosim.report.trace_files import load
from geosim.scenario import load_scenario
from geosim.trace_events import LINK_RATE, RESIDUAL, TRAIN, WINDOWS, document
from runtime.launch import emulate
from runtime.measure import Clock
from runtime.timeline import check_file, timeline
from runtime.trace import Recorder, watched

ROOT = Path(__file__).resolve().parents[2]
TINY = {
    "name": "tiny", "layers": 1, "d_model": 16, "heads": 1, "ffn": 64, "gated": False, "vocabulary": 256,
    "tied": True, "positions": 32,
}  # fmt: skip
ABOUT = {"scenario": "x", "policy": "y"}


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    """A small corpus."""
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_text("".join(f"line {n} of a text that repeats itself\n" for n in range(3000)))
    return str(path)


def spans_of(path):
    """By process and track: (start, end, name), microseconds."""
    data = json.loads(path.read_text())
    names = {
        (e["pid"], e["tid"]): e["args"]["name"] for e in data["traceEvents"] if e["name"].endswith("_name")
    }
    out = defaultdict(list)
    for e in data["traceEvents"]:
        if e["ph"] == "X":
            out[names[e["pid"], 0], names[e["pid"], e["tid"]]].append(
                (e["ts"], e["ts"] + e["dur"], e["name"])
            )
    return data, out


@pytest.mark.parametrize("policy", ["hierarchical-efsgd", "local-sgd", "ddp"])
def test_a_run_writes_a_trace_whose_spans_are_its_parts(policy, text, tmp_path):
    path = tmp_path / "trace.json"
    world = load_scenario("laptop", {"workload.model": dict(TINY), "workload.sequence": 16})
    changes = {} if policy == "ddp" else {"interval": 2, "streams": 2}
    result = emulate(
        world, load_policy(policy, changes), 12, wan="none", data=text, pace_s=0.02, validations=1,
        save=str(tmp_path / "saved"), trace=path,
    )  # fmt: skip
    assert "trace" not in result
    data, spans = spans_of(path)
    assert data["otherData"]["kind"] == "measured"
    assert data["otherData"]["clock"] == "one monotonic clock"
    for track in spans.values():
        track.sort()
        assert all(end >= start >= 0 for start, end, _ in track)
        assert all(later[0] >= earlier[1] - 2e-3 for earlier, later in pairwise(track))
    times = [e["ts"] for e in data["traceEvents"] if e["ph"] != "M"]
    assert times == sorted(times)
    ours = {name for _, _, name in spans["east", TRAIN]}
    assert ours >= {"compute", "update", "wait", "validation", "checkpoint"}
    compute = [end - start for start, end, name in spans["west", f"{TRAIN}, rank 1"] if name == "compute"]
    assert len(compute) == 12
    assert sum(compute) / 12 == pytest.approx(1e6 * result["parts"]["compute"], rel=0.2)
    file = load(path)
    assert file.totals()["east", TRAIN, "compute"] == pytest.approx(result["parts"]["compute"], rel=0.3)
    counters = {e["name"] for e in data["traceEvents"] if e["ph"] == "C"}
    assert LINK_RATE in counters
    assert (RESIDUAL in counters) == (policy == "hierarchical-efsgd")
    if policy != "ddp":
        assert ours >= {"encode", "gather", "apply"}
        assert {name for _, _, name in spans["east", "exchange"]} == {"transfer", "decode"}
        assert ("east", "send to west, stream 2") in spans
        assert ("west", "receive from east") in spans
        assert len(spans["link east->west", "flows"]) > 0
    else:
        assert len(spans["ring", "all-reduce"]) == 12
    assert len(spans["east", WINDOWS]) == (12 if policy == "ddp" else 6)


def test_sites_that_train_alone_make_one_file(text, tmp_path):
    """As on real machines: one command a site; the first site's writes what all have taken down."""
    path, port = tmp_path / "trace.json", free_port()
    started = []
    for site in ("east", "west"):
        settings = [f"workload.model={json.dumps(TINY)}", "workload.sequence=16", "policy.interval=2"]
        settings += [f"sites.{i}.accelerators_per_node=1" for i in (0, 1)]
        argv = ["train", "--site", site, "--rendezvous", f"127.0.0.1:{port}", "--policy", "diloco"]
        argv += ["--steps", "12", "--data", text, "--timeout", "30", "--trace", str(path)]
        argv += [part for setting in settings for part in ("--set", setting)]
        command = [sys.executable, "-m", "runtime.cli", *argv]
        started.append(subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT, text=True))
    east, west = (command.communicate(timeout=60)[0] for command in started)
    assert [command.returncode for command in started] == [0, 0]
    assert f"trace: {path}" in east
    assert "trace:" not in west
    for said, site in ((east, "east"), (west, "west")):
        assert said.startswith(f"{site}: laptop under diloco: 12 steps, measured by rank 0")
        assert "a step" in said
        assert "validation" in said
    data, spans = spans_of(path)
    assert data["otherData"]["clock"] == "one monotonic clock"
    assert {process for process, _ in spans} == {"east", "west", "link east->west", "link west->east"}


def pack(site, machine, shift, **more):
    return {
        "site": site, "rank": 0, "machine": machine, "wall_minus_monotonic_s": shift, "spans": [],
        "counts": [], "transfers": [], "reductions": [], "cut": False, **more,
    }  # fmt: skip


def test_machines_are_aligned_by_their_wall_clocks_and_flows_by_their_senders():
    what = "fragment 0 round 0"
    packs = [
        pack("a", "one", 100.0, transfers=[(True, "b", 0, what, 5.0, 5.1, 1000)]),
        pack("b", "two", 90.0, transfers=[(False, "a", 0, what, 15.2, 16.0, 1000)]),
    ]
    made = timeline(packs, ABOUT)
    assert made.about["clock"] == "wall clocks of 2 machines"
    (flow,) = [s for s in made.spans if s.process == "link a->b"]
    assert (flow.start_s, flow.end_s) == (105.0, 106.0)
    assert [(c.at_s, c.value) for c in made.counts] == [(105.0, 8e-3), (106.0, 0.0)]


def test_ranks_of_one_machine_share_its_clock():
    packs = [
        pack("a", "one", 100.0, spans=[(TRAIN, "compute", 1.0, 2.0, "", 1)]),
        pack("b", "one", 100.4, spans=[(TRAIN, "compute", 1.0, 2.0, "", 1)]),
    ]
    starts = [s.start_s for s in timeline(packs, ABOUT).spans]
    assert starts == [101.0, 101.0]


def test_rates_of_flows_at_once_add_up_and_end_at_nothing():
    moves = [(False, "a", stream, "fragment 0 round 0", 0.0, 1.0 + stream, 1000) for stream in (0, 1)]
    counts = timeline([pack("b", "one", 0.0, transfers=moves)], ABOUT).counts
    assert [(c.at_s, c.value) for c in counts] == [(0.0, 0.012), (1.0, 0.004), (2.0, 0.0)]


def test_slices_of_a_stream_are_one_span_that_begins_with_the_exchange():
    class Works:
        def send(self, tensors, dst, tag):
            return self

        recv = send

        def wait(self):
            return True

    recorder = Recorder("a", 0, ("a", "b"))
    stream = watched(Works(), 1, recorder)
    posted = stream.recv([torch.zeros(8)], 1, 0)
    started = time.perf_counter()
    works = [stream.send([torch.zeros(8)], 1, 0), stream.send([torch.zeros(4)], 1, 1), posted]
    for work in works:
        work.wait()

    class Flown:
        fragment, round = 0, 3
        queued_s, started_s = started - 0.5, started
        received_s = time.perf_counter()
        finished_s = received_s + 1.0

    recorder.flight(Flown)
    spans = {track: (name, begin, detail) for track, name, begin, _, detail, _ in recorder.pack()["spans"]}
    assert set(spans) == {"hand-over", "exchange", "send to b, stream 2", "receive from b, stream 2"}
    assert spans["receive from b, stream 2"] == ("receive", started, "fragment 0 round 3")
    assert [(t[0], t[1], t[2], t[6]) for t in recorder.pack()["transfers"]] == [
        (True, "b", 1, 48), (False, "b", 1, 32),
    ]  # fmt: skip


def test_nothing_is_watched_or_taken_down_unless_asked():
    stream = object()
    assert watched(stream, 0, None) is stream
    clock = Clock()
    with clock.part("encode"):
        pass
    assert clock.trace is None
    assert clock.take()["encode"] > 0


def test_a_long_run_is_cut_and_says_so(monkeypatch):
    monkeypatch.setattr("runtime.trace._MOST", 2)
    recorder = Recorder("a", 0, ("a",))
    for i in range(3):
        recorder.span(TRAIN, "compute", float(i), i + 1.0)
    made = timeline([recorder.pack()], ABOUT)
    assert len(made.spans) == 2
    assert document(made)["otherData"]["cut"] == "it ends before the run does"


def test_the_residual_is_the_norm_over_all_fragments():
    recorder = Recorder("a", 0, ("a",))
    recorder.residual(0, torch.full((9,), 1.0))
    recorder.residual(1, torch.full((4,), 2.0))
    assert [value for _, _, value in recorder.pack()["counts"]] == pytest.approx([3.0, 5.0])


def test_a_file_that_cannot_be_written_is_refused_before_the_run(tmp_path):
    with pytest.raises(UsageError, match="is a folder"):
        check_file("--trace", tmp_path)
    with pytest.raises(UsageError, match="cannot write"):
        check_file("--trace", tmp_path / "no" / "t.json")
    check_file("--trace", tmp_path / "t.json")
    assert not (tmp_path / "t.json").exists()
