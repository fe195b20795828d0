"""What every codec does for one fragment's pieces on one shard; faster ones fill in the inner methods."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import torch

from geosim.errors import NotFiniteError, UsageError
from geosim.policy.codec import HEADER_BYTES, Feedback
from geosim.policy.layout import Layout
from geosim.policy.maths import Key, make_sections
from runtime.codec import wire
from runtime.codec.digest import CHUNK_BYTES
from runtime.codec.wire import Header
from runtime.codec.workers import run, shares, threads

_AT_ONCE_BYTES = 2 * CHUNK_BYTES


@dataclass(frozen=True)
class Decoded:
    """A received payload: its header, and fp32 values [numel], zeros in a round flagged as not finite."""

    header: Header
    values: torch.Tensor


@dataclass(frozen=True)
class Opened:
    """A payload that `FragmentCodec.open` has accepted: its header is true and its checksum matched."""

    header: Header
    body: torch.Tensor


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

    def encode(
        self,
        values: torch.Tensor,
        weight: float,
        residual: torch.Tensor | None,
        round: int,
        out: torch.Tensor,
    ) -> None:
        """Write a payload's body, ready once `seal` has written its header.

        Args:
            values: the update (a window's mean gradient or parameter change) [numel], fp32, bf16 or fp16.
            weight: the site's share of the window's tokens.
            residual: fp32 [numel], updated in place; None if the policy keeps none.
            round: the fragment's round, from 0.
            out: uint8 [payload_bytes]; its first HEADER_BYTES are left alone.

        Raises:
            UsageError: a shape or dtype is wrong, or a residual is missing or one too many.
            NotFiniteError: weight * values + residual is not finite. The residual is then as before, up to
                the rounding of a sum that was taken and undone; what `out` holds means nothing.
        """
        self._check("values", values, (torch.float32, torch.bfloat16, torch.float16), self.numel)
        self._check("out", out, (torch.uint8,), self.payload_bytes)
        if (residual is None) != (self.decay is None):
            raise UsageError(f"residual: the policy keeps {'none' if self.decay is None else 'one'}")
        if residual is not None:
            self._check("residual", residual, (torch.float32,), self.numel)
        if not self.sections:
            return
        key = self._key(round, self.site)
        if not self._encode(values.detach(), weight, residual, key, out[HEADER_BYTES:]):
            raise NotFiniteError(
                f"site {self.site}, round {round}, fragment {self.fragment}: the update is not finite"
            )

    def undo(
        self,
        values: torch.Tensor,
        weight: float,
        residual: torch.Tensor | None,
        round: int,
        payload: torch.Tensor,
    ) -> None:
        """Take an `encode` back whose payload will not travel: the residual is as before, to rounding.

        Args:
            values, weight, residual, round: as `encode` had them; `residual` is updated in place.
            payload: what it wrote, sealed or not.
        """
        if residual is None or self.decay is None or not self.sections:
            return
        if self.decay != 1.0:
            residual.div_(self.decay)
        self._decode_add(payload[HEADER_BYTES:], self._key(round, self.site), residual)
        residual.sub_(values.detach().to(torch.float32) * weight)

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

    def open(self, payload: torch.Tensor, site: int, round: int) -> Opened:
        """Verify all of a received payload that precedes its body, and the checksum.

        Args:
            payload: uint8, of any size.
            site: who should have sent it.
            round: for which round.

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
        header = wire.unseal(payload.numpy().data, expected)
        return Opened(header, payload[HEADER_BYTES:])

    def open_all(self, payloads: Sequence[torch.Tensor], round: int) -> list[Opened]:
        """`open` of all sites' payloads, in site order.

        Raises:
            PayloadError: as `open`, of the first site whose payload is wrong.
        """
        # Longer ones are each read by all threads; a few short ones are read before another thread has woken.
        if self.payload_bytes > CHUNK_BYTES or len(payloads) * self.payload_bytes <= _AT_ONCE_BYTES:
            return [self.open(payload, site, round) for site, payload in enumerate(payloads)]
        opened: dict[int, Opened] = {}

        def some(sites: slice) -> None:
            for site in range(sites.start, sites.stop):
                opened[site] = self.open(payloads[site], site, round)

        run([partial(some, at) for at in shares([1] * len(payloads), threads())])
        return [opened[site] for site in range(len(payloads))]

    def decode(
        self, payload: torch.Tensor, site: int, round: int, device: torch.device | str = "cpu"
    ) -> Decoded:
        """A received payload's header and values.

        Args:
            payload, site, round: as for `open`.
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
        opened = self.open(payload, site, round)
        if opened.header.finite and self.sections:
            self._add_opened(opened, out)
        return opened.header

    def decode_sum(self, payloads: Sequence[Opened], out: torch.Tensor) -> None:
        """Overwrite `out`, fp32 [numel], with the sum of a round's payloads, in the order in which they come.

        What it held before does not matter. Payloads flagged as not finite add nothing.

        Raises:
            UsageError: the payloads are of several rounds.
            PayloadError: a body is one that no encoder writes; `out` then means nothing.
        """
        self._check("out", out, (torch.float32,), self.numel)
        rounds = {opened.header.round for opened in payloads}
        if len(rounds) > 1:
            raise UsageError(f"payloads: of rounds {sorted(rounds)}: must be of one round")
        finite = [opened for opened in payloads if opened.header.finite]
        if not self.sections or not finite:
            out.zero_()
            return
        self._decode_sum(finite, out)

    @classmethod
    @abstractmethod
    def runs_on(cls, device: torch.device) -> bool:
        """Whether values may live on a device."""

    @abstractmethod
    def _encode(
        self, values: torch.Tensor, weight: float, residual: torch.Tensor | None, key: Key, body: torch.Tensor
    ) -> bool:
        """`encode` of checked arguments: False if the update is not finite, the residual then undone.

        `body` is uint8 [payload_bytes - HEADER_BYTES].
        """

    @abstractmethod
    def _decode_add(self, body: torch.Tensor, key: Key, out: torch.Tensor) -> None:
        """`decode_add` of a body of the right size that matched its checksum.

        Raises:
            ValueError: whatever no encoder writes, in a few words, before `out` is touched.
        """

    def _decode_sum(self, payloads: Sequence[Opened], out: torch.Tensor) -> None:
        """`decode_sum` of at least one payload, all of them finite."""
        out.zero_()
        for opened in payloads:
            self._add_opened(opened, out)

    def _add_opened(self, opened: Opened, out: torch.Tensor) -> None:
        site, round = opened.header.site, opened.header.round
        try:
            self._decode_add(opened.body, self._key(round, site), out)
        except ValueError as error:
            raise wire.payload_error(site, round, str(error)) from None

    def _key(self, round: int, site: int) -> Key:
        return Key(self._seed, round, self.fragment, self.shard, site)

    @staticmethod
    def _check(name: str, tensor: torch.Tensor, dtypes: tuple[torch.dtype, ...], numel: int) -> None:
        if tensor.dtype not in dtypes or tensor.shape != (numel,) or not tensor.is_contiguous():
            want = " or ".join(str(d).removeprefix("torch.") for d in dtypes)
            raise UsageError(
                f"{name}: {tuple(tensor.shape)} {tensor.dtype}: must be contiguous {want} [{numel}]"
            )
