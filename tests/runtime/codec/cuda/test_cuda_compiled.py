"""What the compiler makes of the kernels: registers, spills, exact arithmetic, 64-bit offsets. No GPU."""

import json
import re

import pytest
import torch

pytest.importorskip("triton")

from cases import OTHERS, preset_codecs
from compiled import INEXACT, MOST_REGISTERS, PASSES, Compiled, compile_all, launches

# Of these each does no more than multiply, add and compare floating-point numbers.
PLAIN = {"stream", "blocks", "decayed"}
SCALED = {"int8", "int4", "int2", "e3m0", "sign"}


def described(launch: str) -> tuple[str, str]:
    _, name, _, _, meta, _ = json.loads(launch)
    return name, meta.get("KIND", "")


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> list[Compiled]:
    """All that the presets launch for sm_90; of other codecs, each kernel with each format once."""
    presets = launches(preset_codecs().values(), (torch.float32,))
    passes = [x for x in presets if described(x)[0] in PASSES]
    halves = [x for x in launches(preset_codecs().values(), (torch.bfloat16,)) if described(x)[0] in PASSES]
    seen = {described(x) for x in presets}
    others = {described(x): x for x in launches(OTHERS.values(), (torch.float32,), None)}
    jobs = [(x, 90) for x in presets + halves + [x for key, x in others.items() if key not in seen]]
    jobs += [(x, arch) for x in passes for arch in (80, 100)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_CACHE_DIR", str(tmp_path_factory.mktemp("triton")))
        return compile_all(jobs)


def test_no_kernel_spills_or_starves_its_neighbours(made) -> None:
    for one in made:
        assert one.registers <= MOST_REGISTERS, (one.name, one.arch, one.meta, one.registers)
        # A few bytes are no spill but the frame of a call, as division has for denormal numbers.
        assert one.stack <= 16, (one.name, one.arch, one.meta, one.stack)
        assert one.local == 0, (one.name, one.arch, one.meta, one.local)
        assert not re.search(r"\b(STL|LDL)\b", one.sass), (one.name, one.meta)


def test_arithmetic_is_exact(made) -> None:
    divides = 0
    for one in made:
        assert not re.findall(INEXACT, one.ptx), (one.name, one.arch, one.meta)
        if one.name in PLAIN:
            assert "FFMA" not in one.sass, one.meta
        if one.name in ("fused", "write_values") and one.meta["KIND"] in SCALED:
            assert "div.rn.f32" in one.ptx
            divides += 1
    assert divides > 8


def test_the_weighted_sum_rounds_twice(made) -> None:
    found = [one for one in made if one.name == "stream" and one.meta["FEEDBACK"] and one.meta["READ"]]
    assert {one.arch for one in found} == {80, 90, 100}
    for one in found:
        assert re.search(r"\bmul(\.rn)?\.f32(x2)?\b", one.ptx)
        assert re.search(r"\badd(\.rn)?\.f32(x2)?\b", one.ptx)
        if one.arch == 90:
            assert re.search(r"\bFMUL\b", one.sass)
            assert re.search(r"\bFADD\b", one.sass)


def test_passes_over_all_values_read_and_write_16_bytes_at_a_time(made) -> None:
    for one in made:
        whole = one.meta.get("EVEN") == 16 and json.loads(one.launch)[2].get("values") == "*fp32"
        if one.name in PASSES and whole and one.meta.get("READ", True):
            assert re.search(r"ld\.global\.(v4\.b32|v2\.b64)", one.ptx), one.meta
            stores = re.search(r"st\.global\.(v4\.b32|v2\.b64)", one.ptx)
            written = one.meta.get("FEEDBACK", True) or one.meta.get("KIND") == "fp32"
            assert stores or not written, one.meta


def test_offsets_are_64_bits(made) -> None:
    """Program numbers are widened before anything is done with them; scalars only move a pointer by 64 bits.

    What remains of 32 bits are lanes inside a tile, and constant columns of a table.
    """
    for one in made:
        lines = [line.split(" loc(")[0] for line in one.ttir.splitlines()]
        ids = [re.match(r"\s*(%\w+) = tt\.get_program_id", line) for line in lines]
        for name in (found.group(1) for found in ids if found):
            uses = [line for line in lines if re.search(rf"{name}\b", line)][1:]
            assert uses
            assert all("arith.extsi" in line for line in uses), (one.name, uses)
        for line in lines:
            narrow = re.search(r"tt\.addptr %\w+, (%\w+) : !tt\.ptr<\w+>, i32$", line.rstrip())
            if narrow:
                defined = [x for x in lines if re.match(rf"\s*{re.escape(narrow.group(1))} = ", x)]
                assert all("arith.constant" in x for x in defined), (one.name, line)


def test_every_kernel_was_compiled(made) -> None:
    import runtime.codec.cuda.kernels.blocks as blocks
    import runtime.codec.cuda.kernels.dense as dense
    import runtime.codec.cuda.kernels.rank as rank
    import runtime.codec.cuda.kernels.read as read
    import runtime.codec.cuda.kernels.select as select
    import runtime.codec.cuda.kernels.values as values

    kernels = set()
    for module in (blocks, dense, rank, read, select, values):
        own = [x for x in vars(module).values() if getattr(x, "fn", None) is not None]
        kernels |= {x.fn.__name__ for x in own if x.fn.__module__ == module.__name__}
    assert {x for x in kernels if not x.startswith("_")} <= {one.name for one in made}
