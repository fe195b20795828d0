"""The payload's header: who sent what for which round, and a checksum over all of it (docs/wire.md)."""

import struct
from dataclasses import dataclass, replace

import numpy as np

from geosim.errors import PayloadError
from geosim.policy.codec import HEADER_BYTES
from runtime.codec.digest import digest

MAGIC = b"GSW1"
VERSION = 2
NOT_FINITE = 1

_HEADER = struct.Struct("<4sHHQIHH8sQQII8sQQ")
assert _HEADER.size == HEADER_BYTES


@dataclass(frozen=True)
class Header:
    """What a header says.

    Attributes:
        round: which round of the fragment, from 0.
        fragment, site, shard: whose payload this is.
        layout: the layout's fingerprint, 8 bytes.
        numel: elements of the fragment on this shard.
        tokens: of the site in the window; verifies the batch plan.
        exchange_us: the site's longest exchange of the last completed round, microseconds.
        step_us: its compute time of a step, microseconds.
        chain: the site's chain hash (`next_chain`), 8 bytes.
        body_bytes: bytes that follow the header.
        finite: False: the round is skipped by all, and the body is zeros.
    """

    round: int
    fragment: int
    site: int
    shard: int
    layout: bytes
    numel: int
    tokens: int = 0
    exchange_us: int = 0
    step_us: int = 0
    chain: bytes = bytes(8)
    body_bytes: int = 0
    finite: bool = True


def seal(header: Header, payload: memoryview) -> None:
    """Write a header, checksum included, in front of the body that the payload already holds.

    A header with `finite=False` also zeroes the body.

    Args:
        header: what to write.
        payload: writable bytes [HEADER_BYTES + header.body_bytes].
    """
    if not header.finite:
        np.frombuffer(payload, np.uint8)[HEADER_BYTES:] = 0
    checksum = digest(_pack(header, 0), payload[HEADER_BYTES:])
    payload[:HEADER_BYTES] = _pack(header, checksum)


def unseal(payload: memoryview, expected: Header) -> Header:
    """The header of a received payload.

    Args:
        payload: all of it.
        expected: what `round`, `fragment`, `site`, `shard`, `layout`, `numel` and `body_bytes` must be.

    Raises:
        PayloadError: one line that names the site, the round and what is wrong.
    """
    wrong = _whats_wrong(payload, expected)
    if wrong:
        raise payload_error(expected.site, expected.round, wrong)
    fields = _HEADER.unpack_from(payload)
    return replace(
        expected,
        tokens=fields[9],
        exchange_us=fields[10],
        step_us=fields[11],
        chain=fields[12],
        finite=not fields[2] & NOT_FINITE,
    )


def payload_error(site: int, round: int, reason: str) -> PayloadError:
    """The error for a payload that cannot be trusted."""
    return PayloadError(f"payload from site {site}, round {round}: {reason}", site)


def next_chain(chain: bytes, round: int, fragment: int, result: np.ndarray) -> bytes:
    """The chain hash after one more decoded result d(t): equal on all sites as long as their results are.

    Args:
        chain: the hash so far, 8 bytes; zeros at the start.
        round, fragment: whose result.
        result: fp32 [numel].
    """
    hashed = digest(chain + struct.pack("<QI", round, fragment), np.ascontiguousarray(result, "<f4").data)
    return hashed.to_bytes(8, "little")


def _pack(header: Header, checksum: int) -> bytes:
    return _HEADER.pack(
        MAGIC,
        VERSION,
        0 if header.finite else NOT_FINITE,
        header.round,
        header.fragment,
        header.site,
        header.shard,
        header.layout,
        header.numel,
        header.tokens,
        header.exchange_us,
        header.step_us,
        header.chain,
        header.body_bytes,
        checksum,
    )


def _whats_wrong(payload: memoryview, expected: Header) -> str | None:
    """The first thing that is wrong with a payload, or None. Identity comes before the checksum."""
    size = HEADER_BYTES + expected.body_bytes
    if len(payload) != size:
        return f"{len(payload)} bytes instead of {size}"
    magic, version, flags, *fields = _HEADER.unpack_from(payload)
    if magic != MAGIC:
        return f"starts with {magic!r} instead of {MAGIC!r}"
    if version != VERSION:
        return f"format version {version} instead of {VERSION}"
    layout = fields[4]
    if layout != expected.layout:
        return f"layout {layout.hex()} instead of {expected.layout.hex()}: model, policy or shards differ"
    found = dict(zip(("round", "fragment", "site", "shard"), fields[:4], strict=True))
    found |= {"numel": fields[5], "body_bytes": fields[10]}
    for name, value in found.items():
        if value != getattr(expected, name):
            return f"{name} {value} instead of {getattr(expected, name)}"
    blank = bytes(payload[: HEADER_BYTES - 8]) + bytes(8)
    if digest(blank, payload[HEADER_BYTES:]) != fields[11]:
        return "checksum does not match"
    if flags & ~NOT_FINITE:
        return f"unknown flags {flags:#06x}"
    if flags & NOT_FINITE and np.frombuffer(payload, np.uint8)[HEADER_BYTES:].any():
        return "flagged as not finite, but its body is not zero"
    return None
