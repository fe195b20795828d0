"""Which codec runs where."""

import torch

from geosim.errors import UsageError
from runtime.codec.interface import FragmentCodec
from runtime.codec.reference import ReferenceCodec

_FASTEST_FIRST: tuple[type[FragmentCodec], ...] = (ReferenceCodec,)


def codec_for(name: str, device: torch.device | str) -> type[FragmentCodec]:
    """The codec class of a name, or with "auto" the fastest that runs on a device. Its `name` can be logged.

    Raises:
        UsageError: no such codec is installed, or it does not run on the device.
    """
    device = torch.device(device)
    fitting = {codec.name: codec for codec in _FASTEST_FIRST if codec.runs_on(device)}
    if name == "auto":
        return next(iter(fitting.values()))
    if name not in fitting:
        raise UsageError(
            f"codec: no {name!r} for device {device}: use 'auto' or one of {', '.join(sorted(fitting))}"
        )
    return fitting[name]
