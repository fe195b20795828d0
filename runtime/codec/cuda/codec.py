"""The codec for CUDA devices, in Triton. This module does not import triton; its first use does."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

import torch

from geosim.policy.layout import Layout
from geosim.policy.maths import Key
from runtime.codec import wire
from runtime.codec.cuda.plan import Lane, make_lanes
from runtime.codec.cuda.tables import Tables
from runtime.codec.interface import FragmentCodec, Opened

if TYPE_CHECKING:
    from runtime.codec.cuda.replay import Checker, Encoder


class TritonCodec(FragmentCodec):
    """Bytes and residuals of the reference, at the speed of a GPU's memory.

    Values, residual and sums live on the device, payloads in host memory, best pinned.

    What overlaps: `encode` works on a stream of this codec's own. It starts when what the caller's current
    stream holds at the call has run; work that other streams, or other threads, have or get meanwhile runs
    beside it. The payload is copied out on that stream too, and the calling thread waits for that copy alone,
    not for the device. On return payload and residual are complete, so the current stream needs no further
    wait. `decode_add` and `decode_sum` work on the current stream; the calling thread waits for the checks of
    each body, queues the addition and returns before that has run.
    """

    name = "triton"

    def __init__(self, layout: Layout, fragment: int, shard: int, site: int) -> None:
        super().__init__(layout, fragment, shard, site)
        self._lanes: tuple[Lane, ...] = make_lanes(self.sections)
        self._tables: dict[torch.device, tuple[Tables, ...]] = {}
        self._streams: dict[torch.device, torch.cuda.Stream] = {}
        self._encoders: dict[torch.device, Encoder] = {}
        self._checkers: dict[torch.device, Checker] = {}

    @classmethod
    def runs_on(cls, device: torch.device) -> bool:
        """CUDA devices where triton is installed; the CPU only under triton's interpreter (for tests)."""
        interpreted = device.type == "cpu" and os.environ.get("TRITON_INTERPRET") == "1"
        return (interpreted or device.type == "cuda") and importlib.util.find_spec("triton") is not None

    def _encode(
        self, values: torch.Tensor, weight: float, residual: torch.Tensor | None, key: Key, body: torch.Tensor
    ) -> bool:
        from runtime.codec.cuda.replay import Encoder
        from runtime.codec.cuda.selection import MISLED, NOT_FINITE, Source

        device = values.device
        source = Source(values, residual, weight, 1.0 if self.decay is None else self.decay)
        if device not in self._encoders:
            self._encoders[device] = Encoder(self._lanes, self._on(device), device)
        with self._aside(device):
            encoding = self._encoders[device].run(source, key, body.numel())
            status = _fetch(encoding.status, encoding.body, body)
            if status == MISLED:
                encoding.again()
                status = _fetch(encoding.status, encoding.body, body)
            if status & NOT_FINITE:
                encoding.undo()
                _fetch(encoding.status, encoding.body, body)
        return status == 0

    def _decode_add(self, body: torch.Tensor, key: Key, out: torch.Tensor) -> None:
        self._add(body, key, out, False, {})

    def _decode_sum(self, payloads: Sequence[Opened], out: torch.Tensor) -> None:
        fresh = all(lane.method in ("fused", "staged") for lane in self._lanes)
        if not fresh:
            out.zero_()
        drawn: dict[int, torch.Tensor] = {}
        for opened in payloads:
            site, round = opened.header.site, opened.header.round
            try:
                self._add(opened.body, self._key(round, site), out, fresh, drawn)
            except ValueError as error:
                raise wire.payload_error(site, round, str(error)) from None
            fresh = False

    def _add(
        self, body: torch.Tensor, key: Key, out: torch.Tensor, fresh: bool, drawn: dict[int, torch.Tensor]
    ) -> None:
        from runtime.codec.cuda.decode import Decoding
        from runtime.codec.cuda.replay import Checker, replays

        device = out.device
        tables = self._on(device)
        with _current(device):
            if not replays(device, self.numel, body.numel()):
                decoding = Decoding(self._lanes, tables, device, body.numel())
                decoding.load(body)
                decoding.inspect()
                decoding.verify()
                decoding.add(out, fresh, key, drawn)
                return
            if device not in self._checkers:
                self._checkers[device] = Checker(self._lanes, tables, device, body.numel())
            checker = self._checkers[device]
            decoding = checker.run(body)
            try:
                decoding.verify()
                decoding.add(out, fresh, key, drawn)
            finally:
                checker.used()

    def _on(self, device: torch.device) -> tuple[Tables, ...]:
        """The lanes' tables on a device, copied there once."""
        if device not in self._tables:
            self._tables[device] = tuple(lane.tables.to(device) for lane in self._lanes)
        return self._tables[device]

    def _aside(self, device: torch.device) -> AbstractContextManager[object]:
        """This codec's own stream on a device, after what the current one holds."""
        if device.type != "cuda":
            return nullcontext()
        if device not in self._streams:
            self._streams[device] = torch.cuda.Stream(device)
        stream = self._streams[device]
        stream.wait_stream(torch.cuda.current_stream(device))
        return torch.cuda.stream(stream)


def _current(device: torch.device) -> AbstractContextManager[object]:
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()


def _fetch(status: torch.Tensor, staged: torch.Tensor, body: torch.Tensor) -> int:
    """Copy a body to the host on the current stream; its status, once both are there."""
    body.copy_(staged[: body.numel()], non_blocking=True)
    if status.device.type != "cuda":
        return int(status)
    seen = torch.empty(1, dtype=torch.int32, pin_memory=True)
    seen.copy_(status, non_blocking=True)
    done = torch.cuda.Event(blocking=True)
    done.record()
    done.synchronize()
    return int(seen)
