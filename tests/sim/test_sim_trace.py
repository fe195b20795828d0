"""The trace of a simulated run is a Chrome trace that says what the run did."""

import json
from collections import defaultdict
from itertools import pairwise

import pytest
from sim_worlds import TOPK, policy, world

from geosim.cost import build
from geosim.errors import UsageError
from geosim.report.trace import PARTS_TRACK, timeline, write_trace
from geosim.report.trace_files import load
from geosim.sim import Tracer, simulate
from geosim.sim.simulate import run
from geosim.trace_events import LINK_RATE, TRAIN, document

ABOUT = {"scenario": "test", "policy": "test"}
RULES = [
    policy(update="local", interval=4, codec=TOPK, overlap="delayed"),
    policy(update="local", interval=8, overlap={"kind": "streaming", "fragments": 4, "steps": 2}),
    policy(topology="flat-ring"),
]


def traced(scenario, rule, windows=4):
    """A run's own record and its trace."""
    problem, tracer = build(scenario, rule), Tracer()
    record = run(problem, 0, windows, tracer)
    return problem, record, timeline(tracer, ABOUT)


@pytest.mark.parametrize("rule", RULES)
def test_every_event_is_one_that_perfetto_reads(rule, tmp_path):
    tracer = Tracer()
    result = simulate(world(3), rule, windows=4, trace=tracer)
    path = tmp_path / "trace.json"
    write_trace(path, result, tracer)
    data = json.loads(path.read_text())
    assert data["displayTimeUnit"] == "ms"
    assert data["otherData"]["kind"] == "simulated"
    named, threads, last = set(), {}, 0.0
    for event in data["traceEvents"]:
        assert event["ph"] in "XCM"
        assert isinstance(event["pid"], int)
        assert isinstance(event["tid"], int)
        if event["ph"] == "M":
            named.add((event["pid"], event["tid"]))
            continue
        assert event["ts"] >= last  # ascending
        last = event["ts"]
        if event["ph"] == "X":
            assert event["dur"] > 0
            assert (event["pid"], event["tid"]) in named
            assert threads.setdefault(event["tid"], event["pid"]) == event["pid"]  # no thread in two
        assert (event["pid"], 0) in named


@pytest.mark.parametrize("rule", RULES)
def test_spans_of_one_track_do_not_overlap(rule):
    _, _, made = traced(world(3), rule)
    tracks = defaultdict(list)
    for event in document(made)["traceEvents"]:
        if event["ph"] == "X":
            tracks[event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    for spans in tracks.values():
        spans.sort()
        assert all(later[0] >= earlier[1] - 2e-3 for earlier, later in pairwise(spans))


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("jitter", [0.0, 0.1])
def test_after_the_warm_up_the_spans_add_up_to_the_parts_of_the_run(rule, jitter, tmp_path):
    problem, tracer = build(world(2, jitter=jitter), rule), Tracer()
    record = run(problem, 0, 6, tracer)
    path = tmp_path / "t.json"
    path.write_text(json.dumps(document(timeline(tracer, ABOUT))))
    totals = load(path).totals()
    names = {"site_collective": "site collective"}
    # Sites that wait for each other in turn end their windows at other times, and the file cuts all at once.
    within = {"rel": 1e-6, "abs": 1e-9} if jitter == 0 else {"rel": 0.05, "abs": 0.01}
    for m, site in enumerate(problem.sites):
        for part, seconds in record.site_parts_s[m].items():
            said = totals.get((site.name, TRAIN, names.get(part, part)), 0.0)
            assert said == pytest.approx(seconds / record.steps, **within), (site.name, part)


def test_steps_drawn_together_are_laid_out_one_by_one():
    _, _, made = traced(world(2), policy(update="local", interval=4))
    own = [s for s in made.spans if s.process == "s0"]
    mine = sorted((s for s in own if s.track == TRAIN), key=lambda s: s.start_s)
    first = mine[:6]
    assert [s.name for s in first] == 2 * ["compute", "site collective", "update"]
    assert all(a.end_s == pytest.approx(b.start_s) for a, b in pairwise(first))
    windows = [s for s in own if s.track == "windows"]
    through = [s for s in mine if s.end_s <= max(w.end_s for w in windows)]  # one more may have begun
    assert sum(s.steps for s in through) == sum(w.steps for w in windows)


def test_the_counters_of_a_link_hold_what_it_carried_and_never_more_than_its_rate():
    rule = policy(update="local", interval=4, codec=TOPK)
    tracer = Tracer()
    result = simulate(world(), rule, windows=6, trace=tracer)
    for shown in (
        [(at, rate) for name, at, rate in tracer.samples if name == "s0->s1"],
        [
            (c.at_s, c.value / 8e-6)
            for c in timeline(tracer, ABOUT).counts
            if c.process == "link s0->s1" and c.name == LINK_RATE
        ],
    ):
        carried = sum(rate * (b - a) for (a, rate), (b, _) in pairwise(shown))
        assert carried == pytest.approx(result.links["s0->s1"].bytes_per_step * 4 * 12, rel=1e-6)
        assert max(rate for _, rate in shown) <= 12.5e6 * (1 + 1e-9)


def test_plain_data_parallelism_counts_its_ring_on_the_links():
    problem, record, made = traced(world(), policy(topology="flat-ring"))
    counts = [(c.at_s, c.value / 8e-6) for c in made.counts if c.process == f"link {problem.links[0].name}"]
    carried = sum(rate * (b - a) for (a, rate), (b, _) in pairwise(counts))
    assert carried == pytest.approx(record.link_bytes[0] * 5 / 4)  # the warm-up's step is in it
    assert max(rate for _, rate in counts) <= 12.5e6


def test_the_parts_of_compute_fill_each_compute_span():
    tracer = Tracer()
    simulate(world(), policy(interval=2), windows=2, trace=tracer)
    made = timeline(tracer, ABOUT, {"s0": {"matrix products": 3.0, "attention": 1.0, "bubble": 0.0}})
    parts = [s for s in made.spans if s.track == PARTS_TRACK]
    compute = [s for s in made.spans if s.process == "s0" and s.name == "compute"]
    assert {s.process for s in parts} == {"s0"}
    assert len(parts) == 2 * len(compute)
    longest = sum(s.end_s - s.start_s for s in parts if s.name == "matrix products")
    assert longest == pytest.approx(0.75 * sum(s.end_s - s.start_s for s in compute))


def test_a_folder_that_is_not_there_is_one_line(tmp_path):
    result = simulate(world(), RULES[0], windows=1)
    with pytest.raises(UsageError, match="cannot write the trace"):
        write_trace(tmp_path / "no" / "trace.json", result, Tracer())


def test_flows_that_overlap_on_a_link_get_tracks_of_their_own():
    tracer = Tracer(
        spans=[
            ("link a->b", "flows", f"fragment {i} round 0", start, start + 2.0)
            for i, start in enumerate((0, 1, 2))
        ]
    )
    events = document(timeline(tracer, ABOUT))["traceEvents"]
    tracks = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    placed = {e["args"]["what"]: tracks[e["tid"]] for e in events if e["ph"] == "X"}
    assert placed == {
        "fragment 0 round 0": "flows", "fragment 1 round 0": "flows 2", "fragment 2 round 0": "flows",
    }  # fmt: skip
