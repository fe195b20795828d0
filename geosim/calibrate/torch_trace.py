"""Chrome trace of `torch.profiler`: the compute time of a step, and what else the step is made of.

Steps are the `ProfilerStep#N` spans, which a schedule and `prof.step()` make. The step time of a scenario
is forward and backward: the span less what collectives and the optimizer add to it, gaps included.
"""

import math
from collections.abc import Iterator, Mapping
from typing import Any

from geosim.calibrate.reading import Fact, Reading, Unknown, Value
from geosim.calibrate.source import Source
from geosim.calibrate.trace_parts import OPTIMIZER, STEP, Parts, Span, parts_of, steps_of
from geosim.errors import UsageError
from geosim.units import TIME, show

_FEWEST_FOR_JITTER = 5


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
        UsageError: no steps, an unknown schema, or events that are not as they should be: one line.
    """
    data = source.data
    top: Mapping[str, Any] = data if isinstance(data, dict) else {"traceEvents": data}
    schema = top.get("schemaVersion")
    if schema is not None and schema != 1:
        raise UsageError(f"{source.name}: schemaVersion: {str(schema)[:20]} is unknown: known is 1")
    spans = list(_spans(source.name, top.get("traceEvents")))
    steps = steps_of(spans)
    if not steps:
        raise UsageError(
            f"{source.name}: no {STEP} spans: profile with a schedule and call prof.step() each step"
        )
    if not steps[-1].end > steps[0].start:
        raise UsageError(f"{source.name}: the {STEP} spans have no length")
    parts = parts_of(spans, steps)
    compute = parts.step - parts.exposed - (parts.optimizer or 0.0)
    return Reading(
        "torch-trace",
        source.name,
        "not said" if schema is None else f"schema {schema}",
        _values(parts, compute),
        (*_facts(parts), *_machine(top)),
        tuple(map(Unknown, _unknown(top, parts, compute))),
    )


def _spans(name: str, events: Any) -> Iterator[Span]:
    if not isinstance(events, list):
        raise UsageError(f"{name}: traceEvents: a list of events is expected")
    for i, event in enumerate(events):
        if not isinstance(event, Mapping):
            raise UsageError(f"{name}: traceEvents.{i}: an object is expected")
        if event.get("ph") != "X":
            continue
        title, category = event.get("name"), event.get("cat", "")
        start, length = _micros(event.get("ts")), _micros(event.get("dur", 0))
        if not (isinstance(title, str) and isinstance(category, str)) or start is None or length is None:
            raise UsageError(f"{name}: traceEvents.{i}: a span needs a name, and numbers as ts and dur")
        if length < 0:
            raise UsageError(f"{name}: traceEvents.{i}: dur: {length:g} is below 0")
        yield Span(title, category, start, start + length)


def _micros(value: Any) -> float | None:
    """A finite number, also where a trace has it as text."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) and abs(number) < 1e18 else None


def _values(parts: Parts, compute: float) -> tuple[Value, ...]:
    count, values = len(parts.lengths), []
    if compute > 0:
        less = "exposed collectives" + (" and the optimizer" if parts.optimizer is not None else "")
        note = f"mean of {count} steps of {_text(parts.step)}, less {less}"
        values.append(Value("workload.step_time", compute * 1e-6, TIME, note))
    if count >= _FEWEST_FOR_JITTER:
        mean = sum(parts.lengths) / count
        deviation = math.sqrt(sum((length - mean) ** 2 for length in parts.lengths) / count)
        note = f"deviation over mean of {count} steps"
        values.append(Value("workload.step_jitter", min(deviation / mean, 1.0), None, note))
    return tuple(values)


def _facts(parts: Parts) -> tuple[Fact, ...]:
    what = "kernels" if parts.on_device else "operators"
    least, most = _text(min(parts.lengths)), _text(max(parts.lengths))
    optimizer = "not seen" if parts.optimizer is None else _text(parts.optimizer)
    return (
        Fact("step", _text(parts.step), f"{len(parts.lengths)} {STEP} spans, {least} to {most}"),
        Fact("compute", _text(parts.compute), f"a step: {what}, without collectives"),
        Fact("collectives", _text(parts.collective), f"a step, {_text(parts.exposed)} not hidden by compute"),
        Fact("optimizer", optimizer, f"a step: {OPTIMIZER} spans"),
        Fact("gap", _text(parts.gap), "a step in which nothing ran; part of step_time"),
    )


def _text(micros: float) -> str:
    return show(micros * 1e-6, TIME, 4)


def _machine(top: Mapping[str, Any]) -> tuple[Fact, ...]:
    facts = []
    world = top.get("distributedInfo")
    if isinstance(world, Mapping) and isinstance(world.get("world_size"), int):
        backend, rank = (str(world.get(key))[:12] for key in ("backend", "rank"))
        facts.append(Fact("ranks", str(world["world_size"])[:12], f"{backend}, this is rank {rank}"))
    devices = top.get("deviceProperties")
    if isinstance(devices, list) and devices and isinstance(devices[0], Mapping) and devices[0].get("name"):
        name = " ".join(str(devices[0]["name"]).split())[:60]
        facts.append(Fact("device", name, f"{len(devices)} in the machine"))
    return tuple(facts)


def _unknown(top: Mapping[str, Any], parts: Parts, compute: float) -> list[str]:
    out = ["model, sequence, batch and precision, so no mfu: the step time stands for it"]
    count = len(parts.lengths)
    if compute <= 0:
        out.append("step time: collectives and the optimizer fill all of it")
    if count < _FEWEST_FOR_JITTER:
        out.append(f"step jitter: {count} steps are too few (active={_FEWEST_FOR_JITTER} or more tells)")
    if not parts.on_device:
        out.append("kernels: the trace has none: a processor's step, or CUDA was not profiled")
    if not parts.has_work:
        out.append("what was compute and what a gap: the trace has neither kernels nor operators")
    if parts.optimizer is None:
        where = " on the device" if parts.on_device else ""
        out.append(f"the optimizer: no {OPTIMIZER} spans{where}, so the step time holds it")
    if not isinstance(top.get("distributedInfo"), Mapping):
        out.append("how many ranks took part: no distributedInfo")
    out.append("what profiling itself adds to a step")
    return out
