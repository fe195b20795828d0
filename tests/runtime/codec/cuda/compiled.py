"""Compiles what the Triton codec launches, without a GPU, and looks at what comes out.

As a script: all kernels for all architectures, one line each.

    python tests/runtime/codec/cuda/compiled.py [80 90 100]
"""

import importlib
import json
import multiprocessing
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from cases import OTHERS, layout_of, preset_codecs

from geosim.policy import Codec
from runtime.codec.cuda import TritonCodec
from runtime.codec.cuda.launch import OPTIONS, encoding_words

ARCHITECTURES = (80, 90, 100)
# Kernels that pass over all values; of these the machine code is kept too.
PASSES = ("stream", "blocks", "fused", "decayed")
# Registers a thread, by what 65,536 an SM leave three programs of four warps.
MOST_REGISTERS = 168
# Instructions that would round otherwise than IEEE arithmetic, contract, or flush denormals.
INEXACT = r"div\.full|div\.approx|rcp\.approx|\bfma\.rn|\.ftz"
# Large enough for several tiles of which all are whole, as those of most models are.
EVEN = [("a", (128, 128)), ("b", (64, 512)), ("c", (32,)), ("d", (64,))]
_TYPES = {
    torch.float32: "*fp32",
    torch.bfloat16: "*bf16",
    torch.float16: "*fp16",
    torch.int64: "*i64",
    torch.int32: "*i32",
    torch.int16: "*i16",
    torch.int8: "*i8",
    torch.uint8: "*u8",
}


@dataclass(frozen=True)
class Compiled:
    """One kernel for one architecture; `launch` as `launches` gives it."""

    launch: str
    arch: int
    registers: int
    stack: int
    local: int
    ttir: str
    ptx: str
    sass: str

    @property
    def name(self) -> str:
        return json.loads(self.launch)[1]

    @property
    def meta(self) -> dict[str, Any]:
        return json.loads(self.launch)[4]


def launches(codecs: Iterable[Codec], dtypes: Sequence[torch.dtype], shapes=EVEN) -> list[str]:
    """What encoding, the second search, undoing and decoding launch: (module, kernel, types, aligned, meta,
    warps) as JSON, each once. Nothing runs."""
    import runtime.codec.cuda.decode as decode
    import runtime.codec.cuda.encode as encode
    import runtime.codec.cuda.selection as selection

    out: dict[str, None] = {}

    def note(kernel, programs, *args, warps=4, **meta) -> None:
        types, aligned = {}, []
        for name, arg in zip(kernel.arg_names, args, strict=False):
            types[name] = "i32" if isinstance(arg, int) else "fp32"
            if isinstance(arg, torch.Tensor):
                types[name] = _TYPES[arg.dtype]
                if arg.data_ptr() % 16 == 0:
                    aligned.append(name)
        if programs:
            place = [kernel.fn.__module__, kernel.fn.__name__]
            out[json.dumps([*place, types, aligned, meta, warps], sort_keys=True)] = None

    before = selection.launch
    modules = (decode, encode, selection)
    for module in modules:
        module.launch = note
    try:
        for codec in codecs:
            for dtype in dtypes:
                _walk(TritonCodec(layout_of(codec, shapes), 0, 0, 1), dtype, decode, encode, selection)
    finally:
        for module in modules:
            module.launch = before
    return list(out)


def _walk(coder: TritonCodec, dtype: torch.dtype, decode, encode, selection) -> None:
    device = torch.device("cpu")
    residual = None if coder.decay is None else torch.zeros(coder.numel)
    values = torch.zeros(coder.numel, dtype=dtype)
    key, tables = coder._key(0, 1), coder._on(device)
    source = selection.Source(values, residual, 1.0, coder.decay or 1.0)
    body = torch.zeros(coder.payload_bytes - 80, dtype=torch.uint8)
    words = [encoding_words(lane, key) for lane in coder._lanes]
    encoding = encode.Encoding(coder._lanes, tables, source, words, len(body))
    encoding.start()
    encoding.finish()
    encoding.again()
    encoding.undo()
    for fresh in (False, True):
        decoding = decode.Decoding(coder._lanes, tables, device, len(body))
        decoding.load(body)
        decoding.inspect()
        decoding.add(torch.zeros(coder.numel), fresh, key, {})


def compile_one(job: tuple[str, int]) -> Compiled:
    """One launch's kernel for one architecture."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    launch, arch = job
    module, name, types, aligned, meta, warps = json.loads(launch)
    kernel = getattr(importlib.import_module(module), name)
    names = kernel.arg_names
    source = ASTSource(
        kernel,
        {n: types.get(n, "constexpr") for n in names},
        {(names.index(n),): value for n, value in meta.items()},
        {(names.index(n),): [["tt.divisibility", 16]] for n in aligned},
    )
    made = triton.compile(source, target=GPUTarget("cuda", arch, 32), options={"num_warps": warps, **OPTIONS})
    tools = Path(triton.__file__).parent / "backends/nvidia/bin"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(made.asm["cubin"])
        file.flush()
        usage = _run(tools / "cuobjdump", "--dump-resource-usage", file.name)
        sass = _run(tools / "nvdisasm", "-c", file.name) if arch == 90 and name in PASSES else ""
    found = re.search(r"REG:(\d+) STACK:(\d+) SHARED:\d+ LOCAL:(\d+)", usage)
    assert found, usage
    return Compiled(launch, arch, *(int(x) for x in found.groups()), made.asm["ttir"], made.asm["ptx"], sass)


def _run(*command: object) -> str:
    return subprocess.run([str(c) for c in command], capture_output=True, text=True, check=True).stdout


def compile_all(jobs: Sequence[tuple[str, int]]) -> list[Compiled]:
    """All of them, by as many processes as there are processors."""
    with ProcessPoolExecutor(mp_context=multiprocessing.get_context("spawn")) as pool:
        return list(pool.map(compile_one, jobs, chunksize=4))


def main() -> None:
    archs = [int(a) for a in sys.argv[1:]] or ARCHITECTURES
    codecs = [*preset_codecs().values(), *OTHERS.values()]
    found = launches(codecs, (torch.float32, torch.bfloat16, torch.float16))
    found += [x for x in launches(codecs, (torch.float32,), None) if x not in found]
    for made in compile_all([(launch, arch) for arch in archs for launch in found]):
        inexact = sorted(set(re.findall(INEXACT, made.ptx)))
        meta = " ".join(f"{name}={value}" for name, value in made.meta.items())
        print(
            f"sm_{made.arch} {made.name}: {made.registers} registers, {made.stack} + {made.local} bytes of "
            f"stack{', ' + ' '.join(inexact) if inexact else ''} ({meta})"
        )


if __name__ == "__main__":
    main()
