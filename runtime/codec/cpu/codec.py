"""The codec for CPUs: numba kernels on as many threads as torch may use."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

import numpy as np
import torch

from geosim.policy.layout import Layout
from geosim.policy.maths import Key
from runtime.codec import wire
from runtime.codec.body import read_body
from runtime.codec.cpu.add import BF16, FP16, FP32
from runtime.codec.cpu.decoder import Decoder
from runtime.codec.cpu.encoder import Encoder
from runtime.codec.cpu.plan import make_plan
from runtime.codec.cpu.update import Update
from runtime.codec.cpu.warm import warm_once
from runtime.codec.interface import FragmentCodec, Opened

_KINDS = {torch.float32: FP32, torch.bfloat16: BF16, torch.float16: FP16}
_EMPTY = np.zeros(0, np.float32)


class CpuCodec(FragmentCodec):
    """Bit for bit what the reference writes, at the speed of memory.

    The update is read, added to the residual and selected from in one pass; where nothing is kept back but
    something is selected, the sum needs memory as large as the update.
    """

    name = "cpu"

    def __init__(self, layout: Layout, fragment: int, shard: int, site: int) -> None:
        super().__init__(layout, fragment, shard, site)
        plans = make_plan(self.sections)
        self._encoder = Encoder(plans)
        self._decoder = Decoder(plans)
        warm_once(FP32, self._encoder.dtype)

    @classmethod
    def runs_on(cls, device: torch.device) -> bool:
        """On CPUs."""
        return device.type == "cpu"

    def _encode(
        self, values: torch.Tensor, weight: float, residual: torch.Tensor | None, key: Key, body: torch.Tensor
    ) -> bool:
        kind = _KINDS[values.dtype]
        given = values.numpy() if kind == FP32 else values.view(torch.int16).numpy().view(np.uint16)
        if residual is not None:
            work = residual.numpy()
        else:
            work = np.empty(self.numel, np.float32) if self._encoder.needs_room else _EMPTY
        decay = np.float32(1.0 if self.decay is None else self.decay)
        update = Update(given, kind, np.float32(weight), work, residual is not None, decay)
        return self._encoder(update, key, body.numpy())

    def _decode_add(self, body: torch.Tensor, key: Key, out: torch.Tensor) -> None:
        raw = body.numpy()
        with self._decoder.rows(key) as rows:
            if not self._decoder.read(raw, rows):
                self._refuse(raw, key)
            self._decoder.add(raw, rows, out.numpy())

    def _decode_sum(self, payloads: Sequence[Opened], out: torch.Tensor) -> None:
        keys = [self._key(one.header.round, one.header.site) for one in payloads]
        bodies = [one.body.numpy() for one in payloads]
        sound = self._decoder.sum(bodies, keys[0], out.numpy())
        for body, key, one, fine in zip(bodies, keys, payloads, sound, strict=True):
            if not fine:
                try:
                    self._refuse(body, key)
                except ValueError as error:
                    raise wire.payload_error(one.header.site, one.header.round, str(error)) from None

    def _refuse(self, body: np.ndarray, key: Key) -> NoReturn:
        """The reference finds the words for what is wrong."""
        read_body(body, self.sections, key)
        raise ValueError("a body that no encoder writes")
