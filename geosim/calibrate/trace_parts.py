"""What of a profiled step is compute, collectives, the optimizer and waiting: unions of spans of time.

All are taken over all steps together and divided by their number, as kernels lag behind the steps that
launch them.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

STEP, OPTIMIZER = "ProfilerStep#", "Optimizer.step#"
_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset", "Kernel", "Memcpy", "Memset")
_HOST = ("cpu_op", "Operator")
_DEVICE_NOTE = "gpu_user_annotation"
_COLLECTIVES = ("nccl", "rccl", "gloo:", "c10d::", "msccl")


@dataclass(frozen=True)
class Span:
    """One event, in microseconds as in the file."""

    name: str
    category: str
    start: float
    end: float


@dataclass(frozen=True)
class Parts:
    """Microseconds a step.

    Attributes:
        lengths: of each step's span.
        step: mean from the first step's start to the last one's end.
        compute: kernels (on a processor: operators) that are no collectives.
        collective, exposed: collectives, and what of them no compute hides.
        optimizer: None where its own spans are not seen.
        gap: nothing ran.
        on_device: whether there are kernels.
        has_work: whether there are kernels or operators.
    """

    lengths: tuple[float, ...]
    step: float
    compute: float
    collective: float
    exposed: float
    optimizer: float | None
    gap: float
    on_device: bool
    has_work: bool


def steps_of(spans: Sequence[Span]) -> list[Span]:
    """The steps as the host saw them, in order."""
    found = [s for s in spans if s.name.startswith(STEP) and s.category != _DEVICE_NOTE]
    return sorted(found, key=lambda span: span.start)


def parts_of(spans: Sequence[Span], steps: Sequence[Span]) -> Parts:
    """The parts of steps that last some time in all.

    Where kernels were profiled, only what the device notes of the optimizer counts: the host's span of it is
    the launching.
    """
    first, last, count = steps[0].start, max(s.end for s in steps), len(steps)
    inside = [s for s in spans if s.end > first and s.start < last]
    kernels = [s for s in inside if s.category in _DEVICE]
    notes = [s for s in inside if (s.category == _DEVICE_NOTE) == bool(kernels) and s.category not in _DEVICE]
    work = kernels or [s for s in inside if s.category in _HOST]
    talk = [s for s in (kernels or inside) if s.name.startswith(_COLLECTIVES)]
    alone = [s for s in work if not s.name.startswith(_COLLECTIVES)]
    optimizer = [s for s in notes if s.name.startswith(OPTIMIZER)]
    compute, both = _covered(alone, first, last), _covered([*alone, *talk], first, last)
    return Parts(
        lengths=tuple(s.end - s.start for s in steps),
        step=(last - first) / count,
        compute=compute / count,
        collective=_covered(talk, first, last) / count,
        exposed=(both - compute) / count,
        optimizer=_covered(optimizer, first, last) / count if optimizer else None,
        gap=max(last - first - both, 0.0) / count,
        on_device=bool(kernels),
        has_work=bool(work),
    )


def _covered(spans: Sequence[Span], first: float, last: float) -> float:
    """Time between two moments in which at least one span runs."""
    if not spans:
        return 0.0
    edges = np.array([(max(s.start, first), min(s.end, last)) for s in spans])
    edges = edges[np.argsort(edges[:, 0], kind="stable")]
    reached = np.maximum.accumulate(edges[:, 1])
    fresh = edges[1:, 1] - np.maximum(edges[1:, 0], reached[:-1])
    return float(edges[0, 1] - edges[0, 0] + np.maximum(fresh, 0.0).sum())
