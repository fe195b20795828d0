"""What every codec does for one fragment's pieces on one shard; faster ones fill in the two inner methods."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch

from geosim.errors import RunError, UsageError
from geosim.policy.codec import HEADER_BYTES, Feedback
from geosim.policy.layout import Layout
from geosim.policy.maths import Key, contribution, make_sections
from runtime.codec import wire
from runtime.codec.wire import Header


@dataclass(frozen=True)
class Decoded:
    """A received payload: its header, and fp32 values [numel], zeros in a round flagged as not finite."""

    header: Header
    values: torch.Tensor


class FragmentCodec(ABC):
    """Encoder and decoder of one fragment's pieces on one shard.

    Values are 1-D, the pieces end to end in layout order. Payloads are 1-D uint8 tensors in host memory
    (pinned or not) of exactly `payload_bytes`.

    Attributes:
        name: as in `codec_for`.
        numel: elements.
        payload_bytes: exact size, header included.
        sections: what the body holds.
        decay: of the residual; None where the policy keeps none.
    """

    name: ClassVar[str]

    def __init__(self, layout: Layout, fragment: int, shard: int, site: int) -> None:
        pieces = layout.pieces(fragment, shard)
        codec = layout.policy.codec
        self.fragment, self.shard, self.site = fragment, shard, site
        self.sections = make_sections(pieces, codec)
        self.numel = sum(p.numel for p in pieces)
        self.payload_bytes = layout.payload_bytes(fragment, shard)
        self.decay = codec.residual.decay if isinstance(codec.residual, Feedback) else None
        self._seed = layout.policy.seed
        self._layout = bytes.fromhex(layout.fingerprint())

    def contribution(
        self, values: torch.Tensor, weight: float, residual: torch.Tensor | None
    ) -> torch.Tensor:
        """u = weight * values + residual, fp32 [numel]."""
        return contribution(values.detach().to(torch.float32), weight, residual)

    def is_finite(self, values: torch.Tensor, weight: float, residual: torch.Tensor | None) -> bool:
        """Whether u is finite: what a site reduces over its shards before it sends."""
        return bool(torch.isfinite(self.contribution(values, weight, residual)).all())

    def encode(
        self,
        values: torch.Tensor,
        weight: float,
        residual: torch.Tensor | None,
        round: int,
        out: torch.Tensor,
    ) -> torch.Tensor:
        """Write a payload's body; `seal` then writes its header.

        Args:
            values: the update (a window's mean gradient or parameter change) [numel], fp32, bf16 or fp16.
            weight: the site's share of the window's tokens.
            residual: fp32 [numel], updated in place; None if the policy keeps none.
            round: the fragment's round, from 0.
            out: uint8 [payload_bytes]; its first HEADER_BYTES are left alone.

        Returns:
            c, the site's own update as all others will decode it: fp32 [numel] where `values` are.

        Raises:
            UsageError: a shape or dtype is wrong, or a residual is missing or one too many.
            RunError: weight * values + residual is not finite; the residual is then as before.
        """
        self._check("values", values, (torch.float32, torch.bfloat16, torch.float16), self.numel)
        self._check("out", out, (torch.uint8,), self.payload_bytes)
        if (residual is None) != (self.decay is None):
            raise UsageError(f"residual: the policy keeps {'none' if self.decay is None else 'one'}")
        if residual is not None:
            self._check("residual", residual, (torch.float32,), self.numel)
        if not self.sections:
            return torch.zeros(0, dtype=torch.float32, device=values.device)
        if not self.is_finite(values, weight, residual):
            raise RunError(
                f"site {self.site}, round {round}, fragment {self.fragment}: the update is not finite"
            )
        return self._encode(
            values.detach(), weight, residual, self._key(round, self.site), out[HEADER_BYTES:]
        )

    def seal(
        self,
        out: torch.Tensor,
        round: int,
        *,
        tokens: int = 0,
        exchange_us: int = 0,
        step_us: int = 0,
        chain: bytes = bytes(8),
        finite: bool = True,
    ) -> None:
        """Write the header of a payload whose body is in place; not `finite` zeroes the body.

        The arguments are those of `Header`; times above 2^32 - 1 microseconds are written as that.
        """
        self._check("out", out, (torch.uint8,), self.payload_bytes)
        most = (1 << 32) - 1
        header = Header(
            round,
            self.fragment,
            self.site,
            self.shard,
            self._layout,
            self.numel,
            tokens,
            min(exchange_us, most),
            min(step_us, most),
            chain,
            self.payload_bytes - HEADER_BYTES,
            finite,
        )
        wire.seal(header, out.numpy().data)

    def open(self, payload: torch.Tensor, site: int, round: int) -> Header:
        """Verify all of a received payload that precedes its body, and the checksum.

        Raises:
            PayloadError: one line that names the site, the round and what is wrong.
        """
        self._check("payload", payload, (torch.uint8,), payload.numel())
        expected = Header(
            round,
            self.fragment,
            site,
            self.shard,
            self._layout,
            self.numel,
            body_bytes=self.payload_bytes - HEADER_BYTES,
        )
        return wire.unseal(payload.numpy().data, expected)

    def decode(
        self, payload: torch.Tensor, site: int, round: int, device: torch.device | str = "cpu"
    ) -> Decoded:
        """A received payload's header and values.

        Args:
            payload: uint8, of any size.
            site: who should have sent it.
            round: for which round.
            device: where the values are wanted.

        Raises:
            PayloadError: one line that names the site, the round and what is wrong.
        """
        out = torch.zeros(self.numel, dtype=torch.float32, device=device)
        return Decoded(self.decode_add(payload, site, round, out), out)

    def decode_add(self, payload: torch.Tensor, site: int, round: int, out: torch.Tensor) -> Header:
        """Add a received payload's values to `out`, fp32 [numel]; nothing in a round flagged as not finite.

        Raises:
            PayloadError: as `decode`; `out` is then as before.
        """
        self._check("out", out, (torch.float32,), self.numel)
        header = self.open(payload, site, round)
        if header.finite and self.sections:
            try:
                self._decode_add(payload[HEADER_BYTES:], self._key(round, site), out)
            except ValueError as error:
                raise wire.payload_error(site, round, str(error)) from None
        return header

    @classmethod
    @abstractmethod
    def runs_on(cls, device: torch.device) -> bool:
        """Whether values may live on a device."""

    @abstractmethod
    def _encode(
        self, values: torch.Tensor, weight: float, residual: torch.Tensor | None, key: Key, body: torch.Tensor
    ) -> torch.Tensor:
        """`encode` of checked, finite arguments; `body` is uint8 [payload_bytes - HEADER_BYTES]."""

    @abstractmethod
    def _decode_add(self, body: torch.Tensor, key: Key, out: torch.Tensor) -> None:
        """`decode_add` of a body of the right size that matched its checksum.

        Raises:
            ValueError: whatever no encoder writes, in a few words, before `out` is touched.
        """

    def _key(self, round: int, site: int) -> Key:
        return Key(self._seed, round, self.fragment, self.shard, site)

    @staticmethod
    def _check(name: str, tensor: torch.Tensor, dtypes: tuple[torch.dtype, ...], numel: int) -> None:
        if tensor.dtype not in dtypes or tensor.shape != (numel,) or not tensor.is_contiguous():
            want = " or ".join(str(d).removeprefix("torch.") for d in dtypes)
            raise UsageError(
                f"{name}: {tuple(tensor.shape)} {tensor.dtype}: must be contiguous {want} [{numel}]"
            )
