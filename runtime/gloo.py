"""torch's gloo group as the WAN uses it: point to point, beside whatever default group there is."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Protocol, cast

import torch.distributed as dist
from torch import Tensor
from torch.distributed import ProcessGroupGloo, Work


class Stream(Protocol):
    """One connection to each peer. The torch stubs leave these methods of a group out."""

    def send(self, tensors: list[Tensor], dst: int, tag: int) -> Work:
        """Send one contiguous tensor."""

    def recv(self, tensors: list[Tensor], src: int, tag: int) -> Work:
        """Receive one contiguous tensor; receives of equal tags match sends in order."""

    def barrier(self) -> Work:
        """Wait for all."""


def open_stream(store: dist.Store, index: int, count: int, *, address: str, timeout_s: float) -> Stream:
    """A group of `count` processes, of which this is number `index`, reached at `address`.

    Raises:
        RuntimeError: if the others do not come within `timeout_s`, or the address is not this machine's.
    """
    gloo = cast(Any, ProcessGroupGloo)
    options = gloo._Options()
    options._devices = [gloo.create_device(hostname=address)]
    options._timeout = timedelta(seconds=timeout_s)
    options._threads = 1
    return cast(Stream, gloo(store, index, count, options))
