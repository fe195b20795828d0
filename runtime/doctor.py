"""What the runtime needs, and whether it is here."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from importlib.util import find_spec


@dataclass(frozen=True)
class Finding:
    """One thing: whether it works, and its version or what to do."""

    what: str
    works: bool
    detail: str


def findings() -> list[Finding]:
    """Everything, in the order in which one thing needs another."""
    found = [Finding("Python", sys.version_info >= (3, 11), sys.version.split()[0])]
    if find_spec("torch") is None:
        return [*found, Finding("torch", False, "pip install -e '.[torch]'")]
    import torch
    import torch.distributed as dist

    found.append(Finding("torch", True, torch.__version__))
    found.append(_gloo() if dist.is_available() else Finding("gloo", False, "this torch is built without it"))
    count = torch.cuda.device_count()
    found.append(
        Finding("CUDA devices", count > 0, f"{count}" if count else "none: ranks compute on CPU cores")
    )
    found.append(Finding("CPU cores", True, str(len(os.sched_getaffinity(0)))))
    found += [_emulation(), _codecs()]
    return found


def _gloo() -> Finding:
    from torch.distributed import HashStore

    from runtime.gloo import open_stream

    try:
        open_stream(HashStore(), 0, 1, address="127.0.0.1", timeout_s=5)
    except RuntimeError as error:
        return Finding("gloo", False, str(error).split("\n")[0][:100])
    return Finding("gloo", True, "a group on the loopback interface stands")


def _emulation() -> Finding:
    from runtime.emulate import missing

    reason = missing()
    return Finding("emulated WAN", reason is None, reason or "network namespaces and TUN work")


def _codecs() -> Finding:
    from runtime.codec import codec_for

    names = {codec_for("auto", device).name for device in ("cpu", "cuda")}
    return Finding("codec", True, ", ".join(sorted(names)))
