"""What the kernels that check a received body found wrong, in the words of `runtime.codec.body`."""

from collections.abc import Sequence

import numpy as np

from geosim.policy.quantize import Cast
from runtime.codec.cuda.plan import Lane
from runtime.codec.cuda.tables import BITS_AT, COUNT, LOW, LOW_AT, NUMEL, VALUE_AT

# Flags, and rows of a report.
ASCEND, SCALE_FINITE, SCALE_SIGN, SCALE_RANGE, VALUE = 1, 2, 4, 8, 16
FLAGS, BLOCK, ONES, LAST_POSITION = range(4)
ROWS = 4
NO_BLOCK = (1 << 62) - 1


def first_fault(lanes: Sequence[Lane], reports: Sequence[np.ndarray], body: np.ndarray) -> str | None:
    """What is wrong with a body's first bad section; None where nothing is.

    Args:
        lanes: all of a body's.
        reports: int64 [ROWS, sections] of each.
        body: uint8, in host memory: unused bits are looked for here.
    """
    faults = {}
    for lane, report in zip(lanes, reports, strict=True):
        table = lane.tables.sections.numpy()
        suspect = (report[FLAGS] != 0) | _spare(
            body, table[:, VALUE_AT], table[:, COUNT] * lane.quantize.bits
        )
        if lane.positions:
            upper = table[:, COUNT] + ((table[:, NUMEL] - 1) >> table[:, LOW])
            suspect |= (report[ONES] != table[:, COUNT]) | (report[LAST_POSITION] >= table[:, NUMEL])
            suspect |= (report[BLOCK] <= NO_BLOCK) | _spare(body, table[:, BITS_AT], upper)
            suspect |= _spare(body, table[:, LOW_AT], table[:, COUNT] * table[:, LOW])
        for s in np.flatnonzero(suspect):
            faults[lane.numbers[s]] = _fault(lane, table[s], report[:, s], body)
    return faults[min(faults)] if faults else None


def _fault(lane: Lane, section: np.ndarray, report: np.ndarray, body: np.ndarray) -> str:
    """The first of `runtime.codec.body`'s checks that a bad section does not pass."""
    flags, count, numel = report[FLAGS], section[COUNT], section[NUMEL]
    checks = []
    if lane.positions:
        upper = count + ((numel - 1) >> section[LOW])
        spare = _spare(body, section[BITS_AT], upper) | _spare(body, section[LOW_AT], count * section[LOW])
        checks += [
            (report[ONES] != count, f"{report[ONES]} positions instead of {count}"),
            (spare, "unused bits are not zero"),
            (
                report[LAST_POSITION] >= numel,
                f"position {report[LAST_POSITION]} is out of range (below {numel})",
            ),
            (flags & ASCEND, "positions do not ascend"),
            (report[BLOCK] <= NO_BLOCK, f"block {report[BLOCK]} holds a wrong number of positions"),
        ]
    value = "a value is a negative zero" if lane.quantize.kind == "e3m0" else "a value is out of range"
    checks += [
        (flags & SCALE_FINITE, "a scale is not finite"),
        (flags & SCALE_SIGN, "a scale is negative"),
        (flags & SCALE_RANGE, "a scale is out of range"),
        (_spare(body, section[VALUE_AT], count * lane.quantize.bits), "unused bits are not zero"),
        (flags & VALUE, "a value is not finite" if isinstance(lane.quantize, Cast) else value),
    ]
    return next(message for wrong, message in checks if wrong)


def _spare(body: np.ndarray, at: np.ndarray, bits: np.ndarray) -> np.ndarray:
    """Whether the last bytes of parts of so many bits have one set after them."""
    used = bits % 8
    last = np.minimum(at + bits // 8, len(body) - 1)
    return (used != 0) & (body[last] >> used != 0)
