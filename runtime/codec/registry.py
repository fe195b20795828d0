"""Which codec runs where."""

from collections.abc import Callable
from importlib.util import find_spec

import torch

from geosim.errors import UsageError
from runtime.codec.interface import FragmentCodec
from runtime.codec.reference import ReferenceCodec


def _triton() -> type[FragmentCodec]:
    from runtime.codec.cuda import TritonCodec

    return TritonCodec


def _cpu() -> type[FragmentCodec]:
    from runtime.codec.cpu import CpuCodec

    return CpuCodec


# Fastest first: name, the package that it needs, the class.
_KNOWN: tuple[tuple[str, str, Callable[[], type[FragmentCodec]]], ...] = (
    ("triton", "triton", _triton),
    ("cpu", "numba", _cpu),
    ("reference", "torch", lambda: ReferenceCodec),
)
NAMES = ("auto", *(name for name, _, _ in _KNOWN))


def codec_for(name: str, device: torch.device | str) -> type[FragmentCodec]:
    """The codec class of a name, or with "auto" the fastest that is installed and runs on a device.

    Raises:
        UsageError: there is no such codec, what it needs is not installed, or it does not run on the device.
    """
    device = torch.device(device)
    if name not in NAMES:
        raise UsageError(f"codec: there is no {name!r}: use one of {', '.join(NAMES)}")
    for known, package, load in _KNOWN:
        if name not in ("auto", known):
            continue
        if find_spec(package) is None:
            if name == known:
                raise UsageError(
                    f"codec: {name!r} needs {package}, which is not installed: "
                    "pip install 'geosim[kernels]', or use 'auto'"
                )
            continue
        codec = load()
        if codec.runs_on(device):
            return codec
        if name == known:
            raise UsageError(f"codec: {name!r} does not run on device {device}: use 'auto'")
    raise AssertionError("the reference runs everywhere")
