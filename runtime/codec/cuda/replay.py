"""Launches that are made once and replayed: a CUDA graph, while all that they read and write stays put.

An encode is some thirty launches, a check some ten, and Python takes longer to make them than a GPU takes to
carry them out on fewer than some 100 million elements. What a graph allocates it keeps; hence the limits.
"""

from collections.abc import Sequence

import torch

from geosim.policy.maths import Key
from runtime.codec.cuda.decode import Decoding
from runtime.codec.cuda.encode import Encoding
from runtime.codec.cuda.launch import encoding_words
from runtime.codec.cuda.plan import Lane
from runtime.codec.cuda.selection import Source
from runtime.codec.cuda.tables import Tables

# Above these the launches cost little beside the work, and what graphs keep would be felt.
MOST_ELEMENTS, MOST_BODY_BYTES = 1 << 27, 1 << 24


def replays(device: torch.device, numel: int, body_bytes: int) -> bool:
    """Whether graphs are worth their memory here; where the caller captures a graph itself, none is made."""
    small = numel <= MOST_ELEMENTS and body_bytes <= MOST_BODY_BYTES
    return device.type == "cuda" and small and not torch.cuda.is_current_stream_capturing()


class Encoder:
    """A codec's encodes on one device, on its current stream, one after the other."""

    def __init__(self, lanes: Sequence[Lane], tables: Sequence[Tables], device: torch.device) -> None:
        self._lanes, self._tables, self._device = lanes, tables, device
        self._seen: tuple[object, ...] | None = None
        self._graph: torch.cuda.CUDAGraph | None = None
        self._encoding: Encoding | None = None
        self._words: list[torch.Tensor] = []

    def run(self, source: Source, key: Key, body_bytes: int) -> Encoding:
        """Queue an encode. One at the place of the one before is captured, those after it are replayed."""
        words = [encoding_words(lane, key) for lane in self._lanes]
        if not replays(self._device, source.values.numel(), body_bytes):
            return self._launch(source, [w.to(self._device) for w in words], body_bytes)
        place = _place(source)
        if place != self._seen:
            self._seen, self._graph, self._encoding = place, None, None
            return self._launch(source, [w.to(self._device) for w in words], body_bytes)
        if self._graph is None:
            self._words = [torch.empty_like(w, device=self._device) for w in words]
            graph = torch.cuda.CUDAGraph()
            # Other threads go on computing meanwhile.
            graph.capture_begin(capture_error_mode="thread_local")
            try:
                self._encoding = self._launch(source, self._words, body_bytes)
            finally:
                graph.capture_end()
            self._graph = graph
        for held, drawn in zip(self._words, words, strict=True):
            held.copy_(drawn)
        self._graph.replay()
        assert self._encoding is not None
        return self._encoding

    def _launch(self, source: Source, words: Sequence[torch.Tensor], body_bytes: int) -> Encoding:
        encoding = Encoding(self._lanes, self._tables, source, words, body_bytes)
        encoding.start()
        encoding.finish()
        return encoding


def _place(source: Source) -> tuple[object, ...]:
    """What the launches of an encode depend on."""
    values, residual = source.values, source.residual
    kept = None if residual is None else residual.data_ptr()
    return values.data_ptr(), values.dtype, kept, source.weight, source.decay


class Checker:
    """A codec's checks of received bodies on one device: from the second on its kernels are replayed."""

    def __init__(
        self, lanes: Sequence[Lane], tables: Sequence[Tables], device: torch.device, body_bytes: int
    ) -> None:
        self._decoding = Decoding(lanes, tables, device, body_bytes)
        self._graph: torch.cuda.CUDAGraph | None = None
        self._stream = torch.cuda.Stream(device)
        self._warm = False
        self._free = torch.cuda.Event()

    def run(self, body: torch.Tensor) -> Decoding:
        """Queue the copy of a body and its checks on the current stream, after the use of the one before."""
        current = torch.cuda.current_stream()
        current.wait_event(self._free)
        self._decoding.load(body)
        if self._graph is None and self._warm:
            graph = torch.cuda.CUDAGraph()
            # A capture needs a stream that is not the default one, and runs nothing.
            with torch.cuda.stream(self._stream):
                graph.capture_begin(capture_error_mode="thread_local")
                try:
                    self._decoding.inspect()
                finally:
                    graph.capture_end()
            self._graph = graph
        if self._graph is None:
            self._decoding.inspect()
        else:
            self._graph.replay()
        self._warm = True
        return self._decoding

    def used(self) -> None:
        """All that reads the body has been queued on the current stream."""
        self._free.record()
