"""Who takes turns in a benchmark of codecs: encoders, decoders, plain torch, and one pass over memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from runtime.bench import plain
from runtime.bench.cases import DEGENERATE, GROUP, RATIO, Case
from runtime.bench.rounds import Contestant
from runtime.codec import FragmentCodec

PLAIN_ROUNDS, DEGENERATE_ROUNDS = 3, 7


@dataclass
class Stand:
    """What is in memory while contestants take turns: fp32 [numel] on one device.

    Attributes:
        codec: whose speed it is about.
        weight: of the gradient in the update.
        values: the gradient.
        standing: the residual that an encode meets.
        work: what they write to.
    """

    codec: type[FragmentCodec]
    weight: float
    values: Tensor
    standing: Tensor
    work: Tensor

    def passes(self) -> list[Contestant]:
        """What everything is held to, and on a CUDA device a copy, which says how fast its memory is."""
        found = [Contestant("pass", partial(self.work.add_, self.values))]
        if self.values.is_cuda:
            found.append(Contestant("copy", self._restore))
        return found

    def sealed(self, case: Case, site: int) -> Tensor:
        """A site's payload of what stands in memory."""
        coder = self._coder(case, site)
        payload = torch.zeros(coder.payload_bytes, dtype=torch.uint8, pin_memory=self.values.is_cuda)
        self._restore()
        coder.encode(self.values, self.weight, self._kept_back(case), 0, payload)
        coder.seal(payload, 0)
        return payload

    def encoding(self, case: Case, payload: Tensor) -> list[Contestant]:
        """Encode, and where the case has them the plain pipeline and degenerate updates.

        Args:
            case: which codec.
            payload: the first site's, which the ordinary encode writes again, byte for byte.
        """
        coder = self._coder(case)
        encode = partial(coder.encode, self.values, self.weight, self._kept_back(case), 0, payload)
        found = [Contestant(f"{case.key} encode", encode, self._restore)]
        if case.plain_width is not None:
            width = case.plain_width or len(self.values)
            run = partial(plain.encode, self.values, self.weight, self.work, RATIO, width, GROUP)
            found.append(Contestant(f"{case.key} plain", run, self._restore, PLAIN_ROUNDS))
        if case.degenerate:
            # All of the update comes in the residual; the gradient is read and counts for nothing. A coder
            # of their own: one may have prepared itself for the ordinary encode's weight.
            other = self._coder(case)
            encode = partial(other.encode, self.values, 0.0, self.work, 0, torch.zeros_like(payload))
            for name, fill in DEGENERATE.items():
                spoil = partial(self._spoil, fill)
                found.append(Contestant(f"{case.key} {name}", encode, spoil, DEGENERATE_ROUNDS))
        return found

    def decoding(self, case: Case, payloads: Sequence[Tensor]) -> list[Contestant]:
        """Add one payload, and sum one of each site; checksums included."""
        coder = self._coder(case)

        def add() -> None:
            coder.decode_add(payloads[0], 0, 0, self.work)

        def add_all() -> None:
            coder.decode_sum(coder.open_all(payloads, 0), self.work)

        return [Contestant(f"{case.key} decode_add", add), Contestant(f"{case.key} decode_sum4", add_all)]

    def _coder(self, case: Case, site: int = 0) -> FragmentCodec:
        return self.codec(case.layout(len(self.values)), 0, 0, site)

    def _kept_back(self, case: Case) -> Tensor | None:
        return self.work if case.codec.residual.kind == "feedback" else None

    def _restore(self) -> None:
        self.work.copy_(self.standing)

    def _spoil(self, fill: Callable[[Tensor, Tensor], object]) -> None:
        fill(self.work, self.values)
