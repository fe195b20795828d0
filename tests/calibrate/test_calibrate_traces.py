"""torch.profiler: traces whose parts are known by construction, and real ones."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from trace_truth import SLEEP_S, STEPS

from geosim.calibrate import read_file
from geosim.calibrate.trace_parts import Span, parts_of, steps_of
from geosim.errors import UsageError

FIXTURES = Path(__file__).parent / "fixtures"


def span(name, category, start, length):
    return {"ph": "X", "name": name, "cat": category, "ts": start, "dur": length, "pid": 1, "tid": 1}


def trace(tmp_path, events, **top):
    file = tmp_path / "trace.json"
    file.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events, **top}))
    return file


def step(at):
    """100 ms: 60 of compute, 30 of a collective, 10 of them beside it, 5 of the optimizer, 15 of nothing."""
    return [
        span(f"ProfilerStep#{at}", "user_annotation", at, 100_000),
        span("sm90_gemm", "kernel", at, 60_000),
        span("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgs)", "kernel", at + 50_000, 30_000),
        span("adam", "kernel", at + 80_000, 5_000),
        span("Optimizer.step#AdamW.step", "gpu_user_annotation", at + 80_000, 5_000),
        span("Optimizer.step#AdamW.step", "user_annotation", at + 10_000, 40_000),
        span("aten::mm", "cpu_op", at, 90_000),
    ]


def test_parts_of_a_step_that_is_known(tmp_path):
    events = [event for at in range(5) for event in step(at * 100_000)]
    reading = read_file(
        trace(tmp_path, events, distributedInfo={"backend": "nccl", "rank": 3, "world_size": 16})
    )
    facts = {f.name: f.text for f in reading.facts}
    assert facts["step"] == "100 ms"
    assert facts["compute"] == "65 ms"
    assert facts["collectives"] == "30 ms"
    assert facts["optimizer"] == "5 ms"
    assert facts["gap"] == "15 ms"
    assert facts["ranks"] == "16"
    read = {v.field: v.value for v in reading.values}
    # 100 less 20 of collective that nothing hides, less 5 of the optimizer.
    assert read["workload.step_time"] == pytest.approx(0.075)
    assert read["workload.step_jitter"] == 0


def test_a_host_span_of_the_optimizer_is_not_its_kernels(tmp_path):
    events = [
        event for at in range(5) for event in step(at * 100_000) if event["cat"] != "gpu_user_annotation"
    ]
    reading = read_file(trace(tmp_path, events))
    assert {v.field: v.value for v in reading.values}["workload.step_time"] == pytest.approx(0.080)
    assert any(item.text.startswith("the optimizer: no") for item in reading.unknown)


SPANS = st.lists(
    st.tuples(st.sampled_from(["mm", "ncclDevKernel_x"]), st.floats(0, 1000), st.floats(0, 300)), max_size=20
)


@given(SPANS)
def test_parts_add_up_to_the_step(rows):
    steps = [
        Span("ProfilerStep#1", "user_annotation", 0.0, 500.0),
        Span("ProfilerStep#2", "user_annotation", 500.0, 1000.0),
    ]
    spans = [*steps, *(Span(name, "kernel", at, at + length) for name, at, length in rows)]
    parts = parts_of(spans, steps_of(spans))
    assert parts.compute + parts.exposed + parts.gap == pytest.approx(parts.step)
    assert -1e-9 <= parts.exposed <= parts.collective + 1e-9
    assert parts_of([*spans, *spans], steps).compute == pytest.approx(parts.compute)


@pytest.mark.parametrize("rank", [0, 1])
def test_two_gloo_ranks_on_processors(rank):
    reading = read_file(FIXTURES / f"trace-gloo-rank{rank}.json.gz")
    facts = {f.name: f for f in reading.facts}
    assert facts["ranks"].text == "2"
    assert facts["step"].note.startswith(f"{STEPS} ProfilerStep# spans")
    gap_ms = float(facts["gap"].text.removesuffix(" ms"))
    # Each step sleeps that long; Python between operators is gap too.
    assert 1e3 * SLEEP_S <= gap_ms <= 1e3 * SLEEP_S + 15
    assert float(facts["collectives"].text.removesuffix(" ms")) > 0
    assert any(item.text.startswith("kernels: the trace has none") for item in reading.unknown)


def test_public_traces_of_accelerators():
    nccl = read_file(FIXTURES / "trace-hta-nccl-cut.json.gz")
    facts = {f.name: f.text for f in nccl.facts}
    assert (facts["ranks"], facts["step"]) == ("128", "615.1 ms")
    assert {v.field for v in nccl.values} == {"workload.step_time"}
    amd = {f.name: f.text for f in read_file(FIXTURES / "trace-hta-mi250.json.gz").facts}
    assert amd["device"] == "AMD Radeon Graphics"


@pytest.mark.parametrize(
    ("events", "top", "says"),
    [
        ([], {}, "no ProfilerStep# spans"),
        ([span("mm", "kernel", 0, 1)], {}, "no ProfilerStep# spans"),
        ([span("ProfilerStep#1", "user_annotation", 0, 0)], {}, "have no length"),
        ([span("ProfilerStep#1", "user_annotation", 0, -5)], {}, "traceEvents.0: dur: -5 is below 0"),
        ([span("ProfilerStep#1", "user_annotation", "soon", 5)], {}, "traceEvents.0: a span needs"),
        ([7], {}, "traceEvents.0: an object is expected"),
        ({}, {}, "traceEvents: a list of events is expected"),
        ([], {"schemaVersion": 2}, "schemaVersion: 2 is unknown: known is 1"),
    ],
)
def test_traces_that_are_refused(tmp_path, events, top, says):
    with pytest.raises(UsageError, match=says):
        read_file(trace(tmp_path, events, **top))
