"""A payload's body: its sections one after the other, each positions, then scales, then values."""

from collections.abc import Sequence

import numpy as np

from geosim.policy.codec import kept_in_section
from geosim.policy.maths import Key, Section
from geosim.policy.maths.quantize import BF16_MAX, FP16_MAX, TINY, scale_limit, top_level
from geosim.policy.maths.select import random_positions
from geosim.policy.quantize import SCALE_BYTES, Cast, Quantize
from geosim.policy.select import RandomK, TopK
from runtime.codec import elias_fano
from runtime.codec.bits import pack, packed_bytes, unpack

Arrays = tuple[np.ndarray | None, np.ndarray, np.ndarray | None]


def write_section(
    section: Section, indices: np.ndarray | None, q: np.ndarray, scales: np.ndarray | None
) -> bytes:
    """One section's bytes.

    Args:
        section: what it is.
        indices: ascending positions, or None where all values travel.
        q, scales: as `geosim.policy.maths.quantize.quantize` gives them.
    """
    parts = []
    if indices is not None and isinstance(section.select, TopK):
        parts.append(elias_fano.encode(indices, section.numel).tobytes())
    if scales is not None:
        parts.append(scales.astype("<f4").tobytes())
    parts.append(_write_values(q, section.quantize))
    return b"".join(parts)


def read_body(body: np.ndarray, sections: Sequence[Section], key: Key) -> list[Arrays]:
    """(indices, q, scales) of every section of a body of the right size.

    Args:
        body: uint8 [body bytes].
        sections: what the body holds.
        key: of random-k's positions.

    Raises:
        ValueError: whatever no encoder writes, in a few words.
    """
    out, at = [], 0
    for number, section in enumerate(sections):
        count = kept_in_section(section.select, section.numel)
        indices = None
        if count < section.numel:
            if isinstance(section.select, RandomK):
                indices = random_positions(body, section.select, section.numel, key._replace(section=number))
            else:
                size = elias_fano.encoded_bytes(section.numel, count)
                indices = elias_fano.decode(body[at : at + size], section.numel, count)
                _check_scopes(indices, section)
                at += size
        scales = None
        size = SCALE_BYTES * section.quantize.scale_count(count)
        if size:
            scales = (
                body[at : at + size].view("<f4") if at % 4 == 0 else body[at : at + size].copy().view("<f4")
            )
            _check_scales(scales, section.quantize)
            at += size
        size = packed_bytes(count, section.quantize.bits)
        q = _read_values(body[at : at + size], section.quantize, count)
        at += size
        out.append((indices, q, scales))
    return out


def _check_scopes(indices: np.ndarray, section: Section) -> None:
    """Every block holds as many positions as its ratio says."""
    block = getattr(section.select, "scope", None)
    if isinstance(block, int):
        blocks = -(-section.numel // block)
        held = np.bincount(indices // block, minlength=blocks)
        wanted = np.full(blocks, kept_in_section(section.select, min(block, section.numel)))
        if section.numel % block and blocks > 1:
            wanted[-1] = kept_in_section(section.select, section.numel % block)
        if not np.array_equal(held, wanted):
            raise ValueError(f"block {int(np.argmax(held != wanted))} holds a wrong number of positions")


def _check_scales(scales: np.ndarray, how: Quantize) -> None:
    if not np.all(np.isfinite(scales)):
        raise ValueError("a scale is not finite")
    if np.any(np.signbit(scales)):
        raise ValueError("a scale is negative")
    if np.any((scales > scale_limit(how)) | ((scales < TINY) & (scales != 0))):
        raise ValueError("a scale is out of range")


def _write_values(q: np.ndarray, how: Quantize) -> bytes:
    if isinstance(how, Cast):
        if how.kind == "fp32":
            return q.astype("<f4").tobytes()
        if how.kind == "fp16":
            return q.astype("<f2").tobytes()
        return (q.astype("<f4").view("<u4") >> 16).astype("<u2").tobytes()
    if how.bits == 8:
        return q.tobytes()
    return pack(q.view(np.uint8) & ((1 << how.bits) - 1), how.bits).tobytes()


def _read_values(data: np.ndarray, how: Quantize, count: int) -> np.ndarray:
    if isinstance(how, Cast):
        return _read_floats(data.tobytes(), how.kind)
    q = data.view(np.int8) if how.bits == 8 else unpack(data, count, how.bits).astype(np.int8)
    if how.kind in ("int4", "int2"):
        q = np.where(q >= 1 << (how.bits - 1), q - (1 << how.bits), q).astype(np.int8)
    if how.kind in ("int8", "int4") and np.any(q < -top_level(how)):
        raise ValueError("a value is out of range")
    if how.kind == "e3m0" and np.any(q == 8):
        raise ValueError("a value is a negative zero")
    return q


def _read_floats(data: bytes, kind: str) -> np.ndarray:
    if kind == "fp32":
        values, most = np.frombuffer(data, "<f4").astype(np.float32), np.inf
    elif kind == "fp16":
        values, most = np.frombuffer(data, "<f2").astype(np.float32), FP16_MAX
    else:
        values, most = (np.frombuffer(data, "<u2").astype(np.uint32) << 16).view(np.float32), BF16_MAX
    if not np.all(np.isfinite(values) & (np.abs(values) <= most)):
        raise ValueError("a value is not finite")
    return values
