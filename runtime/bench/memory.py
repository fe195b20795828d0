"""How much memory an encode takes beyond what the caller holds, as the operating system sees it.

A process of its own holds update, residual and payload, all touched. For each codec it encodes once, so that
kernels are loaded, drops that coder and the scratch memory that is kept for the next encode, resets its peak
resident set (5 into /proc/self/clear_refs) and lets a new coder encode: the peak (VmHWM) less what was
resident before (VmRSS). The allocator is told to give every large block back, so that none is left from the
first encode to be used again unseen.
"""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch import Tensor

from geosim.errors import RunError
from runtime.bench.cases import CASES, Case
from runtime.bench.updates import tiled
from runtime.codec import FragmentCodec

_REQUEST, _SOURCES = "request.json", "sources.pt"
_CHILD = "import sys; from runtime.bench.memory import report; report(sys.argv[1])"


def resident_peaks(
    cases: Sequence[Case], numel: int, weight: float, source: tuple[Tensor, Tensor]
) -> dict[str, int] | None:
    """Extra bytes that each case's encode takes at its peak, on the CPU.

    Args:
        cases: which.
        numel: elements of the update.
        weight: of the gradient in it.
        source: gradient and residual, which are tiled to that size.

    Returns:
        Bytes by the cases' keys; None where the system cannot tell.

    Raises:
        RunError: the process failed.
    """
    if not os.access("/proc/self/clear_refs", os.W_OK):
        return None
    with TemporaryDirectory() as folder:
        keys, threads = [case.key for case in cases], torch.get_num_threads()
        request = {"numel": numel, "weight": weight, "threads": threads, "keys": keys}
        Path(folder, _REQUEST).write_text(json.dumps(request))
        torch.save(source, Path(folder, _SOURCES))
        done = subprocess.run(
            [sys.executable, "-c", _CHILD, folder],
            check=False,
            capture_output=True,
            text=True,
            env={**os.environ, "MALLOC_MMAP_THRESHOLD_": str(1 << 16)},
        )
    if done.returncode:
        said = done.stderr.strip().splitlines()[-1:] or ["it said nothing"]
        raise RunError(f"measuring memory: a process ended with status {done.returncode}: {said[0]}")
    return json.loads(done.stdout)


def cuda_peaks(
    cases: Sequence[Case], codec: type[FragmentCodec], weight: float, values: Tensor, standing: Tensor
) -> dict[str, int]:
    """The same on a CUDA device, by torch's own count of allocated bytes; a coder's tables count.

    Of three encodes, as the second may capture a graph and the third replay it.
    """
    return {case.key: _cuda_peak(case, codec, weight, values, standing) for case in cases}


def _cuda_peak(
    case: Case, codec: type[FragmentCodec], weight: float, values: Tensor, standing: Tensor
) -> int:
    residual = standing.clone() if case.codec.residual.kind == "feedback" else None
    gc.collect()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    coder = codec(case.layout(len(values)), 0, 0, 0)
    payload = torch.empty(coder.payload_bytes, dtype=torch.uint8)
    for _ in range(3):
        coder.encode(values, weight, residual, 0, payload)
    return torch.cuda.max_memory_allocated() - before


def report(folder: str) -> None:
    """The process of its own: print what `resident_peaks` returns."""
    print(json.dumps(_measure(Path(folder))))


def _measure(folder: Path) -> dict[str, int]:
    from runtime.bench.codec import codec_on
    from runtime.codec.cpu import scratch

    request = json.loads((folder / _REQUEST).read_text())
    torch.set_num_threads(request["threads"])
    numel, weight, cpu = request["numel"], request["weight"], torch.device("cpu")
    values, standing = (tiled(t, numel, cpu) for t in torch.load(folder / _SOURCES))
    residual, codec = standing.clone(), codec_on(cpu)
    found = {}
    for case in (c for c in CASES if c.key in request["keys"]):
        layout = case.layout(numel)
        payload = torch.zeros(layout.payload_bytes(0, 0), dtype=torch.uint8)
        kept_back = residual if case.codec.residual.kind == "feedback" else None
        for _ in range(2):
            residual.copy_(standing)
            gc.collect()
            scratch.forget()
            Path("/proc/self/clear_refs").write_text("5")
            before = _status("VmRSS")
            coder = codec(layout, 0, 0, 0)
            coder.encode(values, weight, kept_back, 0, payload)
            found[case.key] = _status("VmHWM") - before
            del coder
    return found


def _status(name: str) -> int:
    """A line of /proc/self/status, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line for line in lines if line.startswith(name + ":")).split()[1])
