"""Payloads between this WAN rank and its peers: cut into slices, over parallel streams, on a topology's ways.

A site passes on another's payload slice by slice, as they come, once it has entered the exchange itself;
nobody reads or changes what passes through. Were payloads stored until they are whole, the later of two sites
behind a hub would make the other one as late for the next round, by turns and for ever.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from queue import SimpleQueue
from threading import Thread

import torch
from torch import Tensor
from torch.distributed import Work

from geosim.errors import RunError
from geosim.policy.routes import Transfer
from geosim.policy.slices import passing_slice
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
    """Sends, receives and passes on the payloads of all fragments, whose sizes never change.

    Receives are posted before their round begins. A sender of gloo waits for the receiver's word that its
    buffer is ready; sent ahead, that word is there already, and data leave at once and not half a round
    trip later.
    """

    def __init__(
        self,
        groups: Sequence[Stream],
        names: Sequence[str],
        index: int,
        routes: Sequence[Transfer],
        sizes: Sequence[int],
        chunk_bytes: int | None,
        pinned: bool = False,
    ) -> None:
        """Post the first receives.

        Args:
            groups: the streams.
            names, index: of the sites, and this one's number.
            routes: who sends what to whom, all sites'.
            sizes: payload bytes of each fragment, alike at all sites.
            chunk_bytes: of a slice; None: one slice a stream, or more where payloads are passed on.
            pinned: whether buffers lie in memory that a GPU reads by itself.
        """
        self._groups = groups
        self._names = names
        self._index = index
        passed_on = any(t.need is not None for t in routes)
        self._slices = [
            slices(
                size,
                len(groups),
                passing_slice(size, len(groups)) if passed_on and chunk_bytes is None else chunk_bytes,
            )
            for size in sizes
        ]
        self._tags = [0]  # of a fragment's first slice: unique, so that nothing is taken for something else
        for cut in self._slices:
            self._tags.append(self._tags[-1] + len(cut) * len(names))
        self._sources = {t.origin: t.source for t in routes if t.target == index}
        self._targets: dict[int, list[int]] = {}
        for t in routes:
            if t.source == index:
                self._targets.setdefault(t.origin, []).append(t.target)
        self._forwards = any(origin != index for origin in self._targets)
        self._buffers = {
            (f, origin): torch.empty(size, dtype=torch.uint8, pin_memory=pinned)
            for f, size in enumerate(sizes)
            for origin in self._sources
        }
        self._posted: dict[tuple[int, int], list[Work]] = {}
        for fragment in range(len(sizes)):
            self.expect(fragment)

    def expect(self, fragment: int) -> None:
        """Post the receives of a fragment's next round; what the last one brought is overwritten now."""
        for origin, source in self._sources.items():
            buffer, tag = self._buffers[fragment, origin], self._tag(fragment, origin)
            try:
                self._posted[fragment, origin] = [
                    self._groups[s.stream].recv([buffer[s.start : s.stop]], source, tag + i)
                    for i, s in enumerate(self._slices[fragment])
                ]
            except RuntimeError:
                # The connection is gone already; whoever waits for this round says so.
                self._posted[fragment, origin] = []

    def exchange(self, fragment: int, round_: int, payload: Tensor) -> list[Tensor]:
        """Send `payload` (uint8, CPU) on its ways, pass on others', and wait for all.

        Returns:
            The payloads of all sites in site order, one's own among them; valid until `expect` is called.

        Raises:
            PeerLost: naming the peer and the round.
        """
        sent: list[tuple[int, Work]] = []
        for i in range(len(self._slices[fragment])):
            sent += self._send(fragment, round_, self._index, payload, i)
        if self._forwards:
            sent += self._pass_on(fragment, round_)
        else:
            for origin in self._sources:
                self._receive(fragment, round_, origin)
        for m, work in sent:
            self._wait(work, m, m, round_)
        return [payload if m == self._index else self._buffers[fragment, m] for m in range(len(self._names))]

    def _pass_on(self, fragment: int, round_: int) -> list[tuple[int, Work]]:
        """Receive all payloads side by side, and pass each on."""
        arrivals: SimpleQueue[list[tuple[int, Work]] | PeerLost] = SimpleQueue()

        def relay(origin: int) -> None:
            try:
                arrivals.put(self._receive(fragment, round_, origin))
            except PeerLost as error:
                arrivals.put(error)

        for origin in self._sources:
            # Daemons: where one peer is lost, nobody need wait for the others.
            Thread(target=relay, args=(origin,), name=f"geosim-relay-{origin}", daemon=True).start()
        sent: list[tuple[int, Work]] = []
        for _ in self._sources:
            arrived = arrivals.get()
            if isinstance(arrived, PeerLost):
                raise arrived
            sent += arrived
        return sent

    def _send(
        self, fragment: int, round_: int, origin: int, payload: Tensor, i: int
    ) -> list[tuple[int, Work]]:
        """Start sending a slice of a site's payload to all that get it from here."""
        part, tag, sent = self._slices[fragment][i], self._tag(fragment, origin) + i, []
        for m in self._targets.get(origin, ()):
            try:
                work = self._groups[part.stream].send([payload[part.start : part.stop]], m, tag)
            except RuntimeError as error:
                raise self._lost(m, m, round_, error) from None
            sent.append((m, work))
        return sent

    def _receive(self, fragment: int, round_: int, origin: int) -> list[tuple[int, Work]]:
        """Wait until a site's payload is here; each slice goes on to others as soon as it has come."""
        source, posted = self._sources[origin], self._posted.pop((fragment, origin))
        if not posted:
            raise self._lost(source, origin, round_, RuntimeError("connection closed"))
        sent = []
        for i, work in enumerate(posted):
            self._wait(work, source, origin, round_)
            sent += self._send(fragment, round_, origin, self._buffers[fragment, origin], i)
        return sent

    def _tag(self, fragment: int, origin: int) -> int:
        return self._tags[fragment] + origin * len(self._slices[fragment])

    def _wait(self, work: Work, peer: int, origin: int, round_: int) -> None:
        try:
            work.wait()
        except RuntimeError as error:
            raise self._lost(peer, origin, round_, error) from None

    def _lost(self, peer: int, origin: int, round_: int, error: RuntimeError) -> PeerLost:
        text = " ".join(str(error).split()).split("] ", 1)[-1].split(". ")[0]
        silent = "imed out" in text
        why = "sent nothing for too long" if silent else "closed its connection"
        passes = f", which passes on what '{self._names[origin]}' sends," if origin != peer else ""
        return PeerLost(
            f"site '{self._names[peer]}'{passes} {why} in round {round_} ({text}): "
            f"look there for the first error, then resume all sites from their checkpoints"
        )
