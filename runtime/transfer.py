"""Payloads between this WAN rank and its peers: cut into slices, over parallel streams, all at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.distributed import Work

from geosim.errors import RunError
from runtime.gloo import Stream


class PeerLost(RunError):
    """A peer's connection ended or stayed silent: most often the consequence of an error over there."""


@dataclass(frozen=True)
class Slice:
    """Bytes [start, stop) of a payload, and the stream that they take."""

    start: int
    stop: int
    stream: int


def slices(size: int, streams: int, chunk_bytes: int | None) -> tuple[Slice, ...]:
    """Cut a payload of `size` bytes: one part a stream, or slices of `chunk_bytes` dealt over the streams."""
    step = max(1, -(-size // streams) if chunk_bytes is None else chunk_bytes)
    starts = range(0, size, step)
    return tuple(Slice(at, min(at + step, size), i % streams) for i, at in enumerate(starts))


class Channel:
    """Sends and receives the payloads of all fragments, whose sizes never change.

    Receives are posted before their round begins. A sender of gloo waits for the receiver's word that its
    buffer is ready; sent ahead, that word is there already, and data leave at once and not half a round
    trip later.
    """

    def __init__(
        self,
        groups: Sequence[Stream],
        names: Sequence[str],
        index: int,
        sizes: Sequence[int],
        chunk_bytes: int | None,
        pinned: bool = False,
    ) -> None:
        """Post the first receives.

        Args:
            groups: the streams.
            names, index: of the sites, and this one's number.
            sizes: payload bytes of each fragment, alike at all sites.
            chunk_bytes: of a slice; None: one slice a stream.
            pinned: whether buffers lie in memory that a GPU reads by itself.
        """
        self._groups = groups
        self._names = names
        self._index = index
        self._slices = [slices(size, len(groups), chunk_bytes) for size in sizes]
        self._tags = [0]  # of a fragment's first slice: unique, so that nothing is taken for something else
        for cut in self._slices:
            self._tags.append(self._tags[-1] + len(cut))
        self._peers = [m for m in range(len(names)) if m != index]
        self._buffers = {
            (f, m): torch.empty(size, dtype=torch.uint8, pin_memory=pinned)
            for f, size in enumerate(sizes)
            for m in self._peers
        }
        self._posted: dict[tuple[int, int], list[Work]] = {}
        for fragment in range(len(sizes)):
            self.expect(fragment)

    def expect(self, fragment: int) -> None:
        """Post the receives of a fragment's next round; what the last one brought is overwritten now."""
        for m in self._peers:
            buffer = self._buffers[fragment, m]
            try:
                self._posted[fragment, m] = [
                    self._groups[s.stream].recv([buffer[s.start : s.stop]], m, self._tags[fragment] + i)
                    for i, s in enumerate(self._slices[fragment])
                ]
            except RuntimeError:
                # The connection is gone already; whoever waits for this round says so.
                self._posted[fragment, m] = []

    def exchange(self, fragment: int, round_: int, payload: Tensor) -> list[Tensor]:
        """Send `payload` (uint8, CPU) to all peers and wait for theirs.

        Returns:
            The payloads of all sites in site order, one's own among them; valid until `expect` is called.

        Raises:
            PeerLost: naming the peer and the round.
        """
        sent: list[tuple[int, Work]] = []
        for m in self._peers:
            try:
                sent += [
                    (m, self._groups[s.stream].send([payload[s.start : s.stop]], m, self._tags[fragment] + i))
                    for i, s in enumerate(self._slices[fragment])
                ]
            except RuntimeError as error:
                raise self._lost(m, round_, error) from None
        for m in self._peers:
            posted = self._posted.pop((fragment, m))
            if not posted:
                raise self._lost(m, round_, RuntimeError("connection closed"))
            for work in posted:
                self._wait(work, m, round_)
        for m, work in sent:
            self._wait(work, m, round_)
        return [payload if m == self._index else self._buffers[fragment, m] for m in range(len(self._names))]

    def _wait(self, work: Work, peer: int, round_: int) -> None:
        try:
            work.wait()
        except RuntimeError as error:
            raise self._lost(peer, round_, error) from None

    def _lost(self, peer: int, round_: int, error: RuntimeError) -> PeerLost:
        text = " ".join(str(error).split()).split("] ", 1)[-1].split(". ")[0]
        silent = "imed out" in text
        why = "sent nothing for too long" if silent else "closed its connection"
        return PeerLost(
            f"site '{self._names[peer]}' {why} in round {round_} ({text}): "
            f"look there for the first error, then resume all sites from their checkpoints"
        )
