"""Which codec runs where."""

from importlib import import_module

import torch

from geosim.errors import UsageError
from runtime.backends import CODECS, check_codec, installed
from runtime.codec.interface import FragmentCodec

_CLASSES = {
    "triton": ("runtime.codec.cuda", "TritonCodec"),
    "cpu": ("runtime.codec.cpu", "CpuCodec"),
    "reference": ("runtime.codec.reference", "ReferenceCodec"),
}


def codec_for(name: str, device: torch.device | str) -> type[FragmentCodec]:
    """The codec class of a name, or with "auto" the fastest that is installed and runs on a device.

    Raises:
        UsageError: there is no such codec, what it needs is not installed, or it does not run on the device.
    """
    device = torch.device(device)
    check_codec(name)
    for known in CODECS if name == "auto" else (name,):
        if installed(known):
            codec = _load(known)
            if codec.runs_on(device):
                return codec
    raise UsageError(f"codec {name}: does not run on device {device}: use auto")


def _load(name: str) -> type[FragmentCodec]:
    module, codec = _CLASSES[name]
    loaded: type[FragmentCodec] = getattr(import_module(module), codec)
    return loaded
