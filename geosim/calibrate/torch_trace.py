"""Chrome trace of `torch.profiler`: how long a step takes, and what of it is compute, collectives and waiting.

Steps are the `ProfilerStep#N` spans, which a schedule and `prof.step()` make. On accelerators compute and
collectives are kernels (`nccl*` are collectives), on processors operators (`gloo:*`, `c10d::*` are
collectives). Parts are unions of spans over all steps, divided by their number, as kernels lag behind the
steps that launch them.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from geosim.calibrate.reading import Fact, Reading, Value, rounded
from geosim.calibrate.source import Source
from geosim.errors import UsageError
from geosim.units import TIME, show

_STEP, _OPTIMIZER = "ProfilerStep#", "Optimizer.step#"
_DEVICE_CATS = ("kernel", "gpu_memcpy", "gpu_memset", "Kernel", "Memcpy", "Memset")
_HOST_CATS = ("cpu_op", "Operator")
_NOTES = ("user_annotation", "python_function")
_COLLECTIVES = ("nccl", "rccl", "gloo:", "c10d::", "mscclKernel")
_FEWEST_FOR_JITTER = 5


@dataclass(frozen=True)
class _Span:
    """Microseconds, as in the file."""

    name: str
    category: str
    start: float
    end: float


def recognise(source: Source) -> bool:
    """Whether a file is a Chrome trace."""
    if not source.is_json:
        return False
    data = source.data
    if isinstance(data, list):
        return bool(data) and isinstance(data[0], dict) and "ph" in data[0]
    return isinstance(data, dict) and "traceEvents" in data


def read(source: Source) -> Reading:
    """Step time and its parts.

    Raises:
        UsageError: no steps, or events that are not as they should be: one line.
    """
    data = source.data
    top = data if isinstance(data, dict) else {}
    schema = top.get("schemaVersion")
    if schema not in (None, 1):
        raise UsageError(f"{source.name}: schemaVersion: {str(schema)[:20]} is unknown: known is 1")
    spans = list(_spans(source.name, top.get("traceEvents") if top else data))
    steps = sorted(
        (s for s in spans if s.name.startswith(_STEP) and s.category in _NOTES), key=lambda s: s.start
    )
    if not steps:
        steps = sorted(
            (s for s in spans if s.name.startswith(_STEP) and not s.category.startswith("gpu")),
            key=lambda s: s.start,
        )
    if not steps:
        raise UsageError(
            f"{source.name}: no {_STEP} spans: profile with a schedule and call prof.step() each step"
        )
    first, last = steps[0].start, steps[-1].end
    span = last - first
    if not span > 0:
        raise UsageError(f"{source.name}: the {_STEP} spans have no length")
    inside = [s for s in spans if s.end > first and s.start < last]
    device = [s for s in inside if s.category in _DEVICE_CATS]
    work = device or [s for s in inside if s.category in _HOST_CATS]
    talk = [
        s
        for s in (device or inside)
        if _is_collective(s) and s.category not in ("gpu_user_annotation", *_NOTES * bool(device))
    ]
    notes = (
        "gpu_user_annotation"
        if any(s.category == "gpu_user_annotation" for s in inside)
        else "user_annotation"
    )
    optimizer = [s for s in inside if s.name.startswith(_OPTIMIZER) and s.category == notes]
    busy = _Time([s for s in work if not _is_collective(s)], first, last)
    update = _Time(optimizer, first, last)
    collective = _Time(talk, first, last)
    count = len(steps)
    both = _Time([s for s in work if not _is_collective(s)] + talk, first, last).total
    exposed = both - busy.total
    outer = min(update.total, span - exposed)
    parts = {
        "compute": busy.total / count, "collective": collective.total / count, "exposed": exposed / count,
        "optimizer": outer / count, "gap": (span - both) / count,
    }  # fmt: skip
    return _reading(source.name, top, steps, parts, bool(device), bool(work), bool(optimizer))


class _Time:
    """Microseconds that the union of spans covers between two times."""

    def __init__(self, spans: list[_Span], first: float, last: float) -> None:
        if not spans:
            self.total = 0.0
            return
        edges = np.array([(max(s.start, first), min(s.end, last)) for s in spans])
        edges = edges[np.argsort(edges[:, 0], kind="stable")]
        reached = np.maximum.accumulate(edges[:, 1])
        begun = np.maximum(edges[1:, 0], reached[:-1])
        fresh = np.maximum(edges[1:, 1] - begun, 0.0)
        self.total = float(edges[0, 1] - edges[0, 0] + fresh.sum())


def _is_collective(span: _Span) -> bool:
    return span.name.startswith(_COLLECTIVES)


def _spans(name: str, events: Any) -> Iterator[_Span]:
    if not isinstance(events, list):
        raise UsageError(f"{name}: traceEvents: a list of events is expected")
    for i, event in enumerate(events):
        if not isinstance(event, Mapping):
            raise UsageError(f"{name}: traceEvents.{i}: an object is expected")
        if event.get("ph") != "X":
            continue
        title, category = event.get("name"), event.get("cat", "")
        start, length = _micros(event.get("ts")), _micros(event.get("dur", 0))
        if (
            not isinstance(title, str)
            or not isinstance(category, str)
            or start is None
            or length is None
            or length < 0
        ):
            raise UsageError(f"{name}: traceEvents.{i}: a span needs name, ts and dur")
        yield _Span(title, category, start, start + length)


def _micros(value: Any) -> float | None:
    """A finite number, also where a trace has it as text."""
    try:
        number = (
            float(value) if isinstance(value, int | float | str) and not isinstance(value, bool) else math.nan
        )
    except (ValueError, OverflowError):
        return None
    return number if abs(number) < 1e18 else None


def _reading(
    name: str, top: Mapping[str, Any], steps: list[_Span], parts: Mapping[str, float],
    device: bool, worked: bool, optimizer: bool,
) -> Reading:  # fmt: skip
    count = len(steps)
    whole = (steps[-1].end - steps[0].start) / count
    compute = whole - parts["exposed"] - parts["optimizer"]
    note = f"mean of {count} steps of {_text(whole)}, less exposed collectives and the optimizer"
    values = []
    if compute > 0:
        values.append(Value("workload.step_time", compute * 1e-6, TIME, note))
    lengths = np.array([s.end - s.start for s in steps])
    unknown = []
    if count >= _FEWEST_FOR_JITTER:
        jitter = float(lengths.std() / lengths.mean())
        values.append(
            Value(
                "workload.step_jitter",
                rounded(min(jitter, 1.0)),
                None,
                f"deviation over mean of {count} steps",
            )
        )
    else:
        unknown.append(
            f"step jitter: {count} steps are too few (active={_FEWEST_FOR_JITTER} or more in the schedule)"
        )
    what = "kernels" if device else "operators"
    facts = [
        Fact(
            "step",
            _text(whole),
            f"{count} {_STEP} spans, {_text(float(lengths.min()))} to {_text(float(lengths.max()))}",
        ),
        Fact("compute", _text(parts["compute"]), f"a step: {what}, without collectives"),
        Fact(
            "collectives",
            _text(parts["collective"]),
            f"a step, {_text(parts['exposed'])} of it not hidden by compute",
        ),
        Fact(
            "optimizer", _text(parts["optimizer"]) if optimizer else "not seen", f"a step: {_OPTIMIZER} spans"
        ),
        Fact("gap", _text(parts["gap"]), "a step in which nothing ran; part of step_time"),
    ]
    facts += _machine(top)
    unknown += _unknown(top, device, worked, optimizer, compute)
    version = f"schema {top['schemaVersion']}" if top.get("schemaVersion") else "no schemaVersion"
    return Reading("torch.profiler", name, version, tuple(values), tuple(facts), tuple(unknown))


def _text(micros: float) -> str:
    return show(micros * 1e-6, TIME, 4)


def _machine(top: Mapping[str, Any]) -> list[Fact]:
    facts = []
    world = top.get("distributedInfo")
    if isinstance(world, Mapping) and isinstance(world.get("world_size"), int):
        facts.append(
            Fact(
                "ranks",
                str(world["world_size"])[:12],
                f"{str(world.get('backend'))[:12]}, this is rank {str(world.get('rank'))[:12]}",
            )
        )
    devices = top.get("deviceProperties")
    if isinstance(devices, list) and devices and isinstance(devices[0], Mapping) and devices[0].get("name"):
        facts.append(Fact("device", str(devices[0]["name"])[:60], f"{len(devices)} in the machine"))
    return facts


def _unknown(
    top: Mapping[str, Any], device: bool, worked: bool, optimizer: bool, compute: float
) -> list[str]:
    out = ["model, sequence, batch and precision, so no mfu: the step time stands for it"]
    if compute <= 0:
        out.append("step time: collectives and the optimizer fill all of it")
    if not device:
        out.append("kernels: the trace has none, so a step was on a processor, or CUDA was not profiled")
    if not worked:
        out.append("what was compute and what a gap: the trace has neither kernels nor operators")
    if not optimizer:
        out.append("the optimizer: no Optimizer.step spans, so the step time holds it")
    if not isinstance(top.get("distributedInfo"), Mapping):
        out.append("how many ranks took part: no distributedInfo")
    out.append("profiling itself slows a step, most where kernels are small")
    return out
