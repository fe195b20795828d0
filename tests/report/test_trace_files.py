"""Traces from their files: totals a lane, and two side by side."""

import json

import pytest

from geosim.errors import UsageError
from geosim.report import trace_files, trace_tables
from geosim.screen import rendered
from geosim.trace_events import Count, Span, Timeline, document, save


def write(path, kind="simulated", shift=0.0, ranks=1):
    """Two windows of two steps after a warm-up; on every rank, 1 s of compute and 0.5 s of waiting a step."""
    spans = []
    for rank in range(ranks):
        end = f", rank {rank}" if rank else ""
        for window in range(3):
            at = shift + 3.0 * window
            name = "window" if window else "warm-up"
            spans.append(Span("east", f"windows{end}", name, at, at + 3.0, steps=2))
            for step in range(2):
                begin = at + 1.5 * step
                spans.append(Span("east", f"train{end}", "compute", begin, begin + 1.0, steps=1))
                spans.append(
                    Span("east", f"train{end}", "wait", begin + 1.0, begin + 1.5, "fragment 0 round 0")
                )
    spans += [Span("link a->b", "flows", "flow", shift + 4.0, shift + 5.0) for _ in range(3)]
    line = Timeline(kind, {"scenario": "x", "policy": "y"}, spans, [Count("link a->b", "Mbit/s", shift, 3.0)])
    save(path, document(line))
    return trace_files.load(path)


@pytest.mark.parametrize("ranks", [1, 3])
def test_totals_are_a_steps_after_the_warm_up_and_a_ranks_mean(tmp_path, ranks):
    file = write(tmp_path / "a.json", ranks=ranks)
    assert file.steps == 4
    assert file.totals() == pytest.approx(
        {
            ("east", "train", "compute"): 1.0,
            ("east", "train", "wait"): 0.5,
            ("link a->b", "flows", "flow"): 0.25,  # three at once, for a second, over four steps
        }
    )


def test_what_a_rank_does_after_its_own_last_window_is_no_part_of_a_step(tmp_path):
    spans = []
    for site, rank, late in (("east", "", 0.0), ("east", ", rank 1", 0.2), ("west", "", 0.4)):
        for window in range(3):
            name = "window" if window else "warm-up"
            spans.append(
                Span(site, f"windows{rank}", name, window, window + 1 + late * (window == 2), steps=1)
            )
        spans.append(Span(site, f"train{rank}", "validation", 3.0 + late, 4.0 + late))
    save(tmp_path / "a.json", document(Timeline("measured", {}, spans, [])))
    assert trace_files.load(tmp_path / "a.json").totals() == {}


def test_the_clock_may_have_begun_long_ago(tmp_path):
    late = write(tmp_path / "a.json", shift=1.7e9)
    assert late.events[0]["ph"] == "M"
    assert min(e["ts"] for e in late.events if e["ph"] != "M") == 0
    assert late.totals()["east", "train", "compute"] == pytest.approx(1.0, rel=1e-5)


def test_side_by_side_aligns_the_ends_of_the_warm_ups_and_keeps_runs_apart(tmp_path):
    files = [write(tmp_path / "a.json"), write(tmp_path / "b.json", "measured", ranks=2)]
    content = trace_files.side_by_side(files, trace_files.labels(files, []))
    names = {e["pid"]: e["args"]["name"] for e in content["traceEvents"] if e["name"] == "process_name"}
    assert [names[pid] for pid in sorted(names)] == [
        "east (simulated)", "east (measured)", "link a->b (simulated)", "link a->b (measured)",
    ]  # fmt: skip
    threads = [(e["pid"], e["tid"]) for e in content["traceEvents"] if e["name"] == "thread_name"]
    assert len({tid for _, tid in threads}) == len(threads)
    first = {}
    for event in content["traceEvents"]:
        if event["ph"] == "X" and event["name"] == "window":
            first.setdefault(names[event["pid"]], event["ts"])
    assert len(set(first.values())) == 1
    times = [e["ts"] for e in content["traceEvents"] if e["ph"] != "M"]
    assert times == sorted(times)
    assert times[0] >= 0


def test_two_of_a_kind_are_told_apart_by_their_files(tmp_path):
    paths = [tmp_path / "a.json", tmp_path / "b.json"]
    files = [write(path) for path in paths]
    assert trace_files.labels(files, paths) == ["a", "b"]


def test_the_table_says_how_far_the_first_is_from_the_second(tmp_path):
    files = [write(tmp_path / "a.json"), write(tmp_path / "b.json", "measured")]
    shown = rendered(trace_tables.screen(files, ["simulated", "measured"]))
    line = next(line for line in shown.splitlines() if "compute" in line)
    assert line.split() == ["east", "train", "compute", "1", "s", "1", "s", "+0.0", "%"]
    said = trace_tables.data(files, ["simulated", "measured"])
    assert said["spans_s_per_step"][0] == {
        "process": "east", "track": "train", "name": "compute",
        "simulated": pytest.approx(1.0), "measured": pytest.approx(1.0),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "is no JSON"),
        ("[]", "is no trace of this geosim's"),
        ('{"traceEvents": []}', "is no trace of this geosim's"),
        (json.dumps(document(Timeline("simulated", {}))), "has no window after its warm-up"),
    ],
)
def test_a_file_that_is_no_trace_is_named(tmp_path, text, words):
    path = tmp_path / "t.json"
    path.write_text(text)
    with pytest.raises(UsageError, match=rf"t\.json: {words}"):
        trace_files.load(path)
    with pytest.raises(UsageError, match=r"no\.json: cannot read"):
        trace_files.load(tmp_path / "no.json")
