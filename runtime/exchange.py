"""The background exchange: a thread that trades sealed payloads with the other sites and sums what comes."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch import Tensor

from geosim.errors import GeosimError, PayloadError, RunError
from geosim.policy.routes import Transfer, forwarders
from runtime.codec import FragmentCodec, Header, Opened
from runtime.transfer import Channel


@dataclass(eq=False)
class Flight:
    """One round of one fragment, from its send to its result.

    Attributes:
        fragment, round: which.
        payload: what this site sends, sealed; uint8 [payload_bytes].
        tokens: what each site's header must say, in site order.
        chain: what every header must carry: the chain hash and the optimizer's settings, hashed.
        chain_round: how many results that hash covers, for the message where sites differ.
        finite: whether this site's own update was finite.
        total: fp32 [numel] on the exchanger's device once done: the sum over sites in site order, or zeros.
        not_finite: numbers of the sites whose update was not finite; where there are any, all skip the round.
        queued_s, started_s, received_s, finished_s: `time.perf_counter` when it was handed over, when its
            first byte could leave, when all payloads had come, when the sum stood.
    """

    fragment: int
    round: int
    payload: Tensor
    tokens: tuple[int, ...]
    chain: bytes
    chain_round: int
    finite: bool
    total: Tensor | None = None
    not_finite: tuple[int, ...] = ()
    queued_s: float = 0.0
    started_s: float = 0.0
    received_s: float = 0.0
    finished_s: float = 0.0
    _done: threading.Event = field(default_factory=threading.Event)
    _error: BaseException | None = None

    @property
    def skipped(self) -> bool:
        """Whether all skip it."""
        return bool(self.not_finite)

    def finish(self, total: Tensor, not_finite: tuple[int, ...]) -> None:
        """It has its result."""
        self.total = total
        self.not_finite = not_finite
        self.finished_s = time.perf_counter()
        self._done.set()

    def fail(self, error: BaseException) -> None:
        """It will never have one."""
        self._error = error
        self._done.set()

    def wait(self) -> Tensor:
        """The sum over sites, as soon as it stands.

        Raises:
            RunError: whatever went wrong on the way, naming peer and round.
        """
        self._done.wait()
        if self._error is not None:
            raise self._error
        assert self.total is not None
        return self.total


class Exchanger:
    """First in, first out, over one channel, on one thread; after an error every flight fails with it."""

    def __init__(
        self,
        channel: Channel | None,
        codecs: Sequence[FragmentCodec],
        names: Sequence[str],
        index: int,
        device: torch.device | str = "cpu",
        routes: tuple[Transfer, ...] = (),
    ) -> None:
        """Start the thread.

        Args:
            channel: to the peers; None where there is only one site.
            codecs: one a fragment.
            names, index: of the sites, and this one's number.
            device: where the sums are wanted. On a GPU they are made on a stream of this thread's own,
                beside whatever else runs there.
            routes: on which payloads come; to name who has passed on a damaged one.
        """
        self._channel = channel
        self._device = torch.device(device)
        self._codecs = codecs
        self._names = names
        self._index = index
        self._routes = routes
        self._error: GeosimError | None = None
        self._queue: queue.SimpleQueue[Flight | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="geosim-exchange", daemon=True)
        self._thread.start()

    def send(self, flight: Flight) -> None:
        """Hand a flight over."""
        flight.queued_s = time.perf_counter()
        self._queue.put(flight)

    def check(self) -> None:
        """Raise what has gone wrong so far, if anything has."""
        if self._error is not None:
            raise self._error

    def close(self) -> None:
        """Let the thread end after what it was given."""
        self._queue.put(None)
        self._thread.join()

    def _work(self) -> None:
        while (flight := self._queue.get()) is not None:
            if self._error is None:
                try:
                    self._fly(flight)
                    continue
                except GeosimError as error:
                    self._error = error
                except Exception as error:
                    # Whatever it is, the main thread must learn of it and not wait for ever.
                    self._error = RunError(
                        f"round {flight.round}: the exchange failed: {type(error).__name__}: {error}"
                    )
            flight.fail(self._error)

    @torch.no_grad()
    def _fly(self, flight: Flight) -> None:
        flight.started_s = time.perf_counter()
        payloads = [flight.payload]
        if self._channel is not None:
            payloads = self._channel.exchange(flight.fragment, flight.round, flight.payload)
        flight.received_s = time.perf_counter()
        codec = self._codecs[flight.fragment]
        opened = self._open(codec, payloads, flight)
        not_finite = tuple(m for m, one in enumerate(opened) if not one.header.finite)
        try:
            with _beside(self._device):
                total = torch.empty(codec.numel, dtype=torch.float32, device=self._device)
                codec.decode_sum([] if not_finite else opened, total)
        except PayloadError as error:
            raise self._named(error) from None
        if self._channel is not None:
            self._channel.expect(flight.fragment)
        flight.finish(total, not_finite)

    def _open(self, codec: FragmentCodec, payloads: Sequence[Tensor], flight: Flight) -> list[Opened]:
        try:
            opened = codec.open_all(payloads, flight.round)
        except PayloadError as error:
            raise self._named(error) from None
        for site, one in enumerate(opened):
            self._check(one.header, site, flight)
        return opened

    def _check(self, header: Header, site: int, flight: Flight) -> None:
        name = self._names[site]
        if header.tokens != flight.tokens[site]:
            raise RunError(
                f"site '{name}', round {flight.round}: its window had {header.tokens} tokens and the batch "
                f"plan says {flight.tokens[site]}: give all sites the same plan"
            )
        if header.chain != flight.chain:
            raise RunError(
                f"sites '{self._names[self._index]}' and '{name}' have diverged at round "
                f"{flight.chain_round}: their results, or their optimizers' settings (learning rate, ...), "
                f"differ: give all the same, and resume all from a checkpoint before it"
            )

    def _named(self, error: PayloadError) -> PayloadError:
        """An error with the site that sent the payload, and those that have passed it on."""
        by = forwarders(self._routes, error.site, self._index) if error.site != self._index else ()
        way = " and ".join(f"'{self._names[m]}'" for m in by)
        passed = f", passed on by {way}" if by else ""
        return PayloadError(f"site '{self._names[error.site]}'{passed}: {error}", error.site)


@contextmanager
def _beside(device: torch.device) -> Iterator[None]:
    """On a GPU: work on another stream than the one that computes, done when the block ends."""
    if device.type != "cuda":
        yield
        return
    stream = torch.cuda.Stream(device)
    with torch.cuda.stream(stream):
        yield
    stream.synchronize()
