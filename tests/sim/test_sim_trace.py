"""The trace of a run is a Chrome trace that says what the run did."""

import json
from itertools import pairwise

import pytest
from sim_worlds import TOPK, policy, world

from geosim.errors import UsageError
from geosim.report.trace import trace_events, write_trace
from geosim.sim import Tracer, simulate

RULES = [
    policy(update="local", interval=4, codec=TOPK, overlap="delayed"),
    policy(update="local", interval=8, overlap={"kind": "streaming", "fragments": 4, "steps": 2}),
    policy(topology="flat-ring"),
]


@pytest.mark.parametrize("rule", RULES)
def test_every_event_is_one_that_perfetto_reads(rule, tmp_path):
    tracer = Tracer()
    result = simulate(world(3), rule, windows=4, trace=tracer)
    path = tmp_path / "trace.json"
    write_trace(path, result, tracer)
    data = json.loads(path.read_text())
    assert data["displayTimeUnit"] == "ms"
    named = set()
    for event in data["traceEvents"]:
        assert event["ph"] in "XCM"
        assert isinstance(event["pid"], int)
        assert isinstance(event["tid"], int)
        if event["ph"] == "M":
            named.add((event["pid"], event["tid"]))
            continue
        assert event["ts"] >= 0
        if event["ph"] == "X":
            assert event["dur"] > 0
            assert (event["pid"], event["tid"]) in named
        assert (event["pid"], 0) in named


def test_spans_of_one_track_do_not_overlap():
    tracer = Tracer()
    simulate(world(3), RULES[1], windows=4, trace=tracer)
    tracks = {}
    for event in trace_events(tracer):
        if event["ph"] == "X":
            tracks.setdefault((event["pid"], event["tid"]), []).append(
                (event["ts"], event["ts"] + event["dur"])
            )
    for spans in tracks.values():
        spans.sort()
        assert all(later[0] >= earlier[1] - 1e-3 for earlier, later in pairwise(spans))


def test_the_spans_add_up_to_the_parts_of_the_result():
    tracer = Tracer()
    rule = policy(update="local", interval=4, codec=TOPK)
    result = simulate(world(), rule, windows=6, trace=tracer)
    compute = [end - start for row, _, name, start, end in tracer.spans if row == "s0" and "compute" in name]
    wait = [end - start for row, _, name, start, end in tracer.spans if row == "s0" and "wait" in name]
    assert len(compute) >= 6 + 6
    assert sum(compute) / (4 * len(compute)) == pytest.approx(result.parts["compute"])
    assert wait[-1] / 4 == pytest.approx(result.exposed_wan_s_per_step)


def test_the_counters_of_a_link_hold_what_it_carried():
    tracer = Tracer()
    rule = policy(update="local", interval=4, codec=TOPK)
    result = simulate(world(), rule, windows=6, trace=tracer)
    mine = [(at, rate) for name, at, rate in tracer.samples if name == "s0->s1"]
    carried = sum(rate * (b - a) for (a, rate), (b, _) in pairwise(mine))
    assert carried == pytest.approx(result.links["s0->s1"].bytes_per_step * 4 * 12, rel=1e-6)


def test_a_folder_that_is_not_there_is_one_line(tmp_path):
    result = simulate(world(), RULES[0], windows=1)
    with pytest.raises(UsageError, match="cannot write the trace"):
        write_trace(tmp_path / "no" / "trace.json", result, Tracer())


def test_flows_that_overlap_on_a_link_get_tracks_of_their_own():
    tracer = Tracer(
        spans=[
            ("link a->b", "flows", name, start, start + 2.0)
            for name, start in zip("xyz", (0, 1, 2), strict=True)
        ]
    )
    events = trace_events(tracer)
    tracks = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    placed = {e["name"]: tracks[e["tid"]] for e in events if e["ph"] == "X"}
    assert placed == {"x": "flows", "y": "flows 2", "z": "flows"}
