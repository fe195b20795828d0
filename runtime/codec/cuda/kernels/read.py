"""A received body: positions, scales and values, checked; then added.

What is wrong goes into a report, int64 [4, sections]: flags, the lowest block with a wrong number of
positions, ones in the bit vector, the last position.
"""

import triton
import triton.language as tl

from geosim.policy.maths.quantize import TINY as TINY_SCALE
from runtime.codec.cuda.kernels.common import (
    BITS_AT,
    COUNT,
    INFINITE,
    KEPT,
    LOW,
    LOW_AT,
    NUMEL,
    ROW,
    SCALE_AT,
    START,
    VALUE_AT,
    locate,
    number,
    of_section,
)
from runtime.codec.cuda.kernels.formats import from_float, load_values, meaning, scale_slot, signed
from runtime.codec.cuda.report import (
    ASCEND,
    BLOCK,
    LAST_POSITION,
    SCALE_FINITE,
    SCALE_RANGE,
    SCALE_SIGN,
    VALUE,
)

_ASCEND = tl.constexpr(ASCEND)
_SCALE_FINITE = tl.constexpr(SCALE_FINITE)
_SCALE_SIGN = tl.constexpr(SCALE_SIGN)
_SCALE_RANGE = tl.constexpr(SCALE_RANGE)
_VALUE = tl.constexpr(VALUE)
_BLOCK = tl.constexpr(BLOCK)
_LAST = tl.constexpr(LAST_POSITION)
TINY = tl.constexpr(TINY_SCALE)


@triton.jit
def _flag(report: tl.tensor, section: tl.tensor, wrong: tl.tensor, FLAG: tl.constexpr) -> None:
    """Set a flag of a section if any of `wrong` holds."""
    if tl.max(wrong.to(tl.int32), axis=0) > 0:
        tl.atomic_or(report + section, FLAG, sem="relaxed")


@triton.jit
def _vector(body: tl.tensor, programs: tl.tensor, sections: tl.tensor, VECTOR: tl.constexpr) -> tl.tensor:
    """(section, number of the first bit, bits [8 VECTOR]) of a part of a bit vector; zeros after its end."""
    p = number()
    section = tl.load(programs + p * 2)
    first = tl.load(programs + p * 2 + 1)
    upper = of_section(sections, section, COUNT)
    upper += (of_section(sections, section, NUMEL) - 1) >> of_section(sections, section, LOW)
    byte = first + tl.arange(0, VECTOR)
    word = tl.load(
        body + of_section(sections, section, BITS_AT) + byte, mask=byte < (upper + 7) // 8, other=0
    )
    bits = (word.to(tl.int32)[:, None] >> tl.arange(0, 8)[None, :]) & 1
    return section, first * 8, tl.reshape(bits, [VECTOR * 8])


@triton.jit
def count_ones(
    body: tl.tensor, programs: tl.tensor, sections: tl.tensor, counts: tl.tensor, VECTOR: tl.constexpr
) -> None:
    """Ones in each part of a bit vector."""
    _, _, bits = _vector(body, programs, sections, VECTOR)
    tl.store(counts + number(), tl.sum(bits, axis=0).to(tl.int64))


@triton.jit
def read_positions(
    body: tl.tensor,
    programs: tl.tensor,
    sections: tl.tensor,
    before: tl.tensor,
    positions: tl.tensor,
    BYTES: tl.constexpr,
    VECTOR: tl.constexpr,
) -> None:
    """Positions of the ones of each part, `before` of its section's preceding it; surplus ones are ignored.

    `BYTES` hold any position's low bits, wherever those begin in the first.
    """
    section, first, bits = _vector(body, programs, sections, VECTOR)
    i = tl.load(before + number()) + tl.cumsum(bits, axis=0) - 1
    real = (bits != 0) & (i < of_section(sections, section, COUNT))
    low = of_section(sections, section, LOW)
    start = of_section(sections, section, LOW_AT) * 8 + i * low
    rest = tl.zeros([VECTOR * 8], tl.int64)
    for j in tl.static_range(BYTES):
        needed = real & ((start >> 3) * 8 + j * 8 < start + low)
        byte = tl.load(body + (start >> 3) + j, mask=needed, other=0).to(tl.int64)
        rest = rest | (byte << (8 * j))
    rest = (rest >> (start & 7)) & ((tl.zeros([1], tl.int64) + 1 << low) - 1)
    high = first + tl.arange(0, VECTOR * 8) - i
    tl.store(positions + of_section(sections, section, KEPT) + i, (high << low) | rest, mask=real)


@triton.jit(do_not_specialize=["count"])
def check_positions(
    positions: tl.tensor,
    programs: tl.tensor,
    sections: tl.tensor,
    report: tl.tensor,
    count: tl.tensor,
    BLOCK: tl.constexpr,
    TAKE: tl.constexpr,
    TILE: tl.constexpr,
) -> None:
    """Positions ascend and (BLOCK > 0) each block holds TAKE of them, the last one the rest.

    `count` is the number of sections, a row of the report.
    """
    p = number()
    count = count.to(tl.int64)
    section = tl.load(programs + p * 2)
    travel = of_section(sections, section, COUNT)
    i = tl.load(programs + p * 2 + 1) + tl.arange(0, TILE)
    inside = i < travel
    at = positions + of_section(sections, section, KEPT) + i
    here = tl.load(at, mask=inside, other=0)
    last = tl.load(at - 1, mask=inside & (i > 0), other=-1)
    _flag(report, section, inside & (here <= last), _ASCEND)
    tl.store(report + _LAST * count + section + i * 0, here, mask=i == travel - 1)
    if BLOCK > 0:
        blocks = (of_section(sections, section, NUMEL) + BLOCK - 1) // BLOCK
        due = tl.minimum(i // TAKE, blocks - 1)
        held = here // BLOCK
        wrong = inside & (held != due)
        lowest = tl.min(tl.where(wrong, tl.minimum(held, due), 1 << 62), axis=0)
        if lowest < (1 << 62):
            tl.atomic_min(report + _BLOCK * count + section, lowest, sem="relaxed")


@triton.jit
def read_scales(
    body: tl.tensor,
    programs: tl.tensor,
    sections: tl.tensor,
    report: tl.tensor,
    scales: tl.tensor,
    LIMIT: tl.constexpr,
    GROUP: tl.constexpr,
    TILE: tl.constexpr,
) -> None:
    """TILE scales (GROUP 0: one a section) from wherever they lie, checked."""
    p = number()
    section = tl.load(programs + p * 2)
    row = tl.load(programs + p * 2 + 1) + tl.arange(0, TILE)
    inside = row == 0 if GROUP == 0 else row * GROUP < of_section(sections, section, COUNT)
    word = load_values(body, of_section(sections, section, SCALE_AT), row, inside, 32, False)
    scale = word.to(tl.float32, bitcast=True)
    finite = (word & INFINITE) != INFINITE
    _flag(report, section, inside & (finite == 0), _SCALE_FINITE)
    _flag(report, section, inside & (word < 0), _SCALE_SIGN)
    _flag(report, section, finite & ((scale > LIMIT) | ((scale < TINY) & (scale != 0))), _SCALE_RANGE)
    tl.store(scales + of_section(sections, section, ROW) + row, scale, mask=inside)


@triton.jit
def check_values(
    body: tl.tensor,
    programs: tl.tensor,
    sections: tl.tensor,
    report: tl.tensor,
    KIND: tl.constexpr,
    BITS: tl.constexpr,
    LEVEL: tl.constexpr,
    ALIGNED: tl.constexpr,
    TILE: tl.constexpr,
) -> None:
    """Values that no encoder writes: below -LEVEL, a negative zero in e3m0, what is not finite."""
    p = number()
    section = tl.load(programs + p * 2)
    first = tl.load(programs + p * 2 + 1)
    i = tl.arange(0, TILE)
    inside = i < tl.minimum(of_section(sections, section, COUNT) - first, TILE).to(tl.int32)
    at = of_section(sections, section, VALUE_AT) + first * BITS // 8
    word = load_values(body, at, i, inside, BITS, ALIGNED)
    if KIND == "fp32":
        wrong = (word & INFINITE) == INFINITE
    elif KIND == "bf16":
        wrong = (word & 0x7F80) == 0x7F80
    elif KIND == "fp16":
        wrong = (word & 0x7C00) == 0x7C00
    elif KIND == "e3m0":
        wrong = word == 8
    else:
        wrong = signed(word, KIND, BITS) < -LEVEL
    _flag(report, section, inside & wrong, _VALUE)


@triton.jit
def add_values(
    body: tl.tensor,
    scales: tl.tensor,
    programs: tl.tensor,
    sections: tl.tensor,
    spans: tl.tensor,
    positions: tl.tensor,
    skip: tl.tensor,
    out: tl.tensor,
    KIND: tl.constexpr,
    BITS: tl.constexpr,
    SCALED: tl.constexpr,
    GROUP: tl.constexpr,
    WHERE: tl.constexpr,
    FRESH: tl.constexpr,
    SKIP: tl.constexpr,
    STEPS: tl.constexpr,
    ALIGNED: tl.constexpr,
    EVEN: tl.constexpr,
    TILE: tl.constexpr,
) -> None:
    """Add the TILE values from `first` on.

    They belong where WHERE says: "all" travel; "listed" by their positions in the section; "placed" by their
    offsets. FRESH adds to 0 and not to `out`. SKIP leaves programs out that `skip` marks.
    """
    p = number()
    section = tl.load(programs + p * 2)
    first = tl.load(programs + p * 2 + 1)
    left = tl.minimum(of_section(sections, section, COUNT) - first, TILE).to(tl.int32)
    if SKIP:
        left = tl.where(tl.load(skip + p) == 0, left, 0)
    left = tl.multiple_of(left, EVEN)
    i = tl.arange(0, TILE)
    inside = i < left
    listed = positions + of_section(sections, section, KEPT) + first
    if WHERE == "placed":
        to = out + tl.load(listed + i, mask=inside, other=0).to(tl.int64)
    elif WHERE == "listed":
        to = out + locate(spans, sections, section, tl.load(listed + i, mask=inside, other=0), STEPS)
    elif STEPS > 0:
        to = out + locate(spans, sections, section, tl.where(inside, first + i, 0), STEPS)
    else:
        to = out + tl.multiple_of(of_section(sections, section, START) + first, EVEN) + i
    at = of_section(sections, section, VALUE_AT) + first * BITS // 8
    word = load_values(body, at, i, inside, BITS, ALIGNED)
    if SCALED:
        scale = tl.load(scales + scale_slot(sections, section, first, i, GROUP), mask=inside, other=0.0)
        value = meaning(signed(word, KIND, BITS), scale, KIND)
    else:
        value = from_float(word, KIND)
    if FRESH:
        # A sum begins at +0: adding turns a value of -0 into what every other codec gets.
        tl.store(to, tl.zeros([TILE], tl.float32) + value, mask=inside)
    else:
        tl.store(to, tl.load(to, mask=inside, other=0.0) + value, mask=inside)
