"""Update in, what travels out, and back: selection, quantization and residual put together."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from geosim.policy.codec import Codec, chosen
from geosim.policy.maths import backend
from geosim.policy.maths.backend import Array
from geosim.policy.maths.counter import Key
from geosim.policy.maths.quantize import dequantize, quantize
from geosim.policy.maths.select import select
from geosim.policy.quantize import Cast, Quantize
from geosim.policy.select import Dense, Select


class Sized(Protocol):
    """What the codec needs of a piece (`geosim.policy.layout.Piece`)."""

    @property
    def numel(self) -> int:
        """Elements."""

    @property
    def small(self) -> bool:
        """Whether the whole tensor is small and goes plain."""


@dataclass(frozen=True)
class Section:
    """A part of a fragment's values that is selected and quantized on its own.

    Attributes:
        spans: [start, stop) ranges of the fragment's values, ascending; their values end to end are the
            section's values.
        select: which of them travel.
        quantize: how those are written.
    """

    spans: tuple[tuple[int, int], ...]
    select: Select
    quantize: Quantize

    @property
    def numel(self) -> int:
        """Elements."""
        return sum(stop - start for start, stop in self.spans)


class Compressed(NamedTuple):
    """One section as it travels: ascending positions (None: all), quantized values, scales (None: none)."""

    indices: Array | None
    q: Array
    scales: Array | None


def make_sections(pieces: Sequence[Sized], codec: Codec) -> tuple[Section, ...]:
    """The sections of a fragment's pieces, in the order they travel.

    Each piece is one section: plain (dense, `small_dtype`) if its tensor is small, else coded. With scope
    `fragment` one section of all coded pieces comes first, then the plain ones. A coded section of which all
    can travel in no more bytes is dense.
    """
    whole = getattr(codec.select, "scope", None) == "fragment"
    plain = Cast(kind=codec.small_dtype)
    sections = []
    coded: list[tuple[int, int]] = []
    at = 0
    for piece in pieces:
        span = (at, at + piece.numel)
        at += piece.numel
        if piece.small:
            sections.append(Section((span,), Dense(), plain))
        elif not whole:
            sections.append(_coded((span,), codec))
        elif coded and coded[-1][1] == span[0]:
            coded[-1] = (coded[-1][0], span[1])
        else:
            coded.append(span)
    if coded:
        sections.insert(0, _coded(tuple(coded), codec))
    return tuple(sections)


def _coded(spans: tuple[tuple[int, int], ...], codec: Codec) -> Section:
    numel = sum(stop - start for start, stop in spans)
    return Section(spans, chosen(codec.select, codec.quantize, numel), codec.quantize)


def contribution(mean: Array, weight: float | Array, residual: Array | None) -> Array:
    """u = weight * mean + residual, fp32 [numel]; product and sum round separately."""
    u = backend.settle(mean * backend.constant(mean, weight))
    return u if residual is None else u + residual


def compress(u: Array, section: Section, key: Key) -> Compressed:
    """One section's values [section.numel], fp32 and finite, as they travel."""
    indices = select(u, section.select, key)
    values = u if indices is None else backend.namespace(u).take(u, indices)
    return Compressed(indices, *quantize(values, section.quantize, key))


def decompress(part: Compressed, section: Section) -> Array:
    """The values [section.numel] that a compressed section stands for; zero where nothing travelled."""
    values = dequantize(part.q, part.scales, section.quantize)
    return values if part.indices is None else backend.scatter(section.numel, part.indices, values)


def residual(u: Array, c: Array, decay: float | Array = 1.0) -> Array:
    """What error feedback keeps back: decay * (u - c)."""
    left = u - c
    return (
        left
        if isinstance(decay, float) and decay == 1.0
        else backend.settle(left * backend.constant(u, decay))
    )


def compress_fragment(u: Array, sections: Sequence[Section], key: Key) -> tuple[Compressed, ...]:
    """All sections of one fragment's values [numel]; section i draws with `key.section = i`."""
    return tuple(compress(gather(u, s), s, key._replace(section=i)) for i, s in enumerate(sections))


def decompress_fragment(parts: Sequence[Compressed], sections: Sequence[Section]) -> Array:
    """A fragment's decoded values [numel] (at least one section)."""
    placed = []
    for part, section in zip(parts, sections, strict=True):
        values = decompress(part, section)
        at = 0
        for start, stop in section.spans:
            placed.append((start, values[at : at + stop - start]))
            at += stop - start
    placed.sort(key=lambda item: item[0])
    if len(placed) == 1:
        return placed[0][1]
    return backend.namespace(placed[0][1]).concat([values for _, values in placed])


def gather(values: Array, section: Section) -> Array:
    """A section's values end to end, out of the fragment's."""
    if len(section.spans) == 1:
        start, stop = section.spans[0]
        return values[start:stop]
    return backend.namespace(values).concat([values[start:stop] for start, stop in section.spans])
