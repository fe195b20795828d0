"""A decoder trusts nothing: every mutated payload is a PayloadError; a resealed one never crashes or lies."""

import random
import struct

import numpy as np
import pytest
import torch

from geosim.errors import PayloadError
from geosim.params import table
from geosim.policy import (
    E3M0,
    Cast,
    Codec,
    Feedback,
    Integer,
    RandomK,
    Sign,
    SyncPolicy,
    TopK,
    make_layout,
)
from geosim.policy.codec import HEADER_BYTES
from runtime.codec import elias_fano
from runtime.codec.digest import digest
from runtime.codec.wire import next_chain

CODECS = [
    Codec(select=TopK(ratio=0.1), quantize=Integer(group=16), residual=Feedback(), small_below_bytes=150.0),
    Codec(select=TopK(ratio=0.1, scope=64), quantize=E3M0(), residual=Feedback()),
    Codec(select=TopK(ratio=0.02, scope="fragment"), quantize=Integer(kind="int4"), residual=Feedback()),
    Codec(
        select=RandomK(ratio=0.05),
        quantize=Sign(),
        residual=Feedback(),
        small_below_bytes=150.0,
        small_dtype="fp16",
    ),
    Codec(quantize=Cast(kind="bf16")),
]


@pytest.fixture(params=CODECS, ids=lambda c: f"{c.select.kind}-{c.quantize.kind}")
def sent(request, codec_class, build, update):
    """(coder, payload as bytes) of site 1, round 3."""
    coder = build(codec_class, request.param)
    out = torch.zeros(coder.payload_bytes, dtype=torch.uint8)
    e = None if coder.decay is None else torch.zeros(coder.numel)
    coder.encode(update(coder.numel), 1.0, e, 3, out)
    coder.seal(out, 3, tokens=7)
    return coder, out.numpy().tobytes()


def reseal(data: bytes) -> bytes:
    return data[:72] + struct.pack("<Q", digest(data[:72] + bytes(8), memoryview(data)[80:])) + data[80:]


def decode(coder, data: bytes) -> torch.Tensor:
    return coder.decode(torch.from_numpy(np.frombuffer(bytearray(data), np.uint8)), 1, 3).values


def mutate(data: bytes, rng: random.Random) -> bytes:
    out = bytearray(data)
    kind = rng.randrange(5)
    at = rng.randrange(len(out)) if rng.random() < 0.5 else rng.randrange(HEADER_BYTES)
    if kind == 0:
        out[at] ^= 1 << rng.randrange(8)
    elif kind == 1:
        out[at] = (out[at] + rng.randrange(1, 256)) % 256
    elif kind == 2:
        del out[at:]
    elif kind == 3:
        out += rng.randbytes(rng.randrange(1, 9))
    else:
        width = rng.randrange(1, 40)
        out[at : at + width] = rng.randbytes(len(out[at : at + width]))
    return bytes(out)


def test_every_mutation_is_refused_in_one_line(sent) -> None:
    coder, data = sent
    rng = random.Random(0)
    for _ in range(800):
        bad = mutate(data, rng)
        if bad == data:
            continue
        with pytest.raises(PayloadError, match=r"^payload from site 1, round 3: [^\n]+$"):
            decode(coder, bad)


def test_resealed_mutations_are_refused_or_finite(sent) -> None:
    """Whoever forges a checksum can send other numbers, but nothing that crashes or is not a number."""
    coder, data = sent
    rng = random.Random(1)
    refused = 0
    for _ in range(500):
        bad = bytearray(data)
        at = rng.randrange(HEADER_BYTES, len(bad))
        stop = min(len(bad), at + rng.randrange(1, 5))
        bad[at:stop] = rng.randbytes(stop - at)
        try:
            values = decode(coder, reseal(bytes(bad)))
        except PayloadError as error:
            refused += "\n" not in str(error)
        else:
            assert torch.isfinite(values).all()
            assert values.abs().sum() > 0
    assert refused > (0 if isinstance(coder.sections[0].quantize, Cast | Sign) else 100)


@pytest.mark.parametrize(
    ("at", "value", "reason"),
    [
        (0, b"GSW2", "starts with"),
        (4, b"\x01\x00", "format version 1"),
        (6, b"\x02\x00", "unknown flags"),
        (6, b"\x01\x00", "body is not zero"),
        (8, bytes(8), "round 0 instead of 3"),
        (16, b"\x05", "fragment 5"),
        (20, b"\x00", "site 0"),
        (22, b"\x00", "shard 0"),
        (24, bytes(8), "layout"),
        (32, bytes(8), "numel 0"),
        (40, b"\x08", "checksum"),
        (64, bytes(8), "body_bytes 0"),
        (72, bytes(8), "checksum"),
        (90, b"\x77\x77", "checksum"),
    ],
)
def test_each_field_is_checked(sent, at: int, value: bytes, reason: str) -> None:
    coder, data = sent
    bad = data[:at] + value + data[at + len(value) :]
    if reason != "checksum":
        bad = reseal(bad)
    with pytest.raises(PayloadError, match=rf"^payload from site 1, round 3: .*{reason}"):
        decode(coder, bad)


@pytest.mark.parametrize(
    ("codec", "offset", "value", "reason"),
    [
        (Codec(quantize=Integer(group="section")), 0, struct.pack("<f", float("nan")), "scale is not finite"),
        (Codec(quantize=Integer(group="section")), 0, struct.pack("<f", float("inf")), "scale is not finite"),
        (Codec(quantize=Integer(group="section")), 0, struct.pack("<f", -1.0), "scale is negative"),
        (Codec(quantize=Integer(group="section")), 0, struct.pack("<f", -0.0), "scale is negative"),
        (Codec(quantize=Integer(group="section")), 0, struct.pack("<f", 3e38), "scale is out of range"),
        (Codec(quantize=Integer(group="section")), 0, struct.pack("<f", 1e-40), "scale is out of range"),
        (Codec(quantize=Integer(group="section")), 4, b"\x80", "value is out of range"),
        (Codec(quantize=Integer(kind="int4", group="section")), 4, b"\x88", "value is out of range"),
        (Codec(quantize=E3M0(group="section")), 4, b"\x88", "negative zero"),
        (Codec(), 0, struct.pack("<f", float("nan")), "value is not finite"),
        (Codec(quantize=Cast(kind="fp16")), 0, b"\x00\x7c", "value is not finite"),
        (Codec(quantize=Cast(kind="bf16")), 0, b"\x80\xff", "value is not finite"),
        (Codec(select=TopK(ratio=0.1), residual=Feedback()), 0, b"\xff" * 8, "ascend|out of range"),
    ],
)
def test_each_part_of_the_body_is_checked(codec_class, build, update, codec, offset, value, reason) -> None:
    coder = build(codec_class, codec)
    out = torch.zeros(coder.payload_bytes, dtype=torch.uint8)
    coder.encode(update(coder.numel), 1.0, None if coder.decay is None else torch.zeros(coder.numel), 3, out)
    coder.seal(out, 3)
    data = out.numpy().tobytes()
    at = HEADER_BYTES + offset
    total = torch.ones(coder.numel)
    bad = torch.from_numpy(
        np.frombuffer(bytearray(reseal(data[:at] + value + data[at + len(value) :])), np.uint8)
    )
    with pytest.raises(PayloadError, match=reason):
        coder.decode_add(bad, 1, 3, total)
    assert torch.all(total == 1)


def test_chain_hash_sees_every_part() -> None:
    d = np.arange(5, dtype=np.float32)
    one = next_chain(bytes(8), 1, 0, d)
    others = [
        next_chain(b"1" * 8, 1, 0, d),
        next_chain(bytes(8), 2, 0, d),
        next_chain(bytes(8), 1, 1, d),
        next_chain(bytes(8), 1, 0, d + 1),
    ]
    assert len(one) == 8
    assert len({one, *others}) == 5
    assert one == next_chain(bytes(8), 1, 0, d.copy())


@pytest.mark.parametrize(
    ("numel", "positions"),
    [(128, [*range(7), *range(64, 69)]), (80, [*range(5), 64, 65, 66]), (80, [*range(7), 64])],
)
def test_a_block_with_a_wrong_number_of_positions_is_refused(
    codec_class, numel: int, positions: list[int]
) -> None:
    """The count, the order and the range are right; only the share of one block is not."""
    codec = Codec(select=TopK(ratio=0.1, scope=64), residual=Feedback())
    coder = codec_class(make_layout(table([("w", (numel,))]), SyncPolicy(codec=codec), 1), 0, 0, 1)
    out = torch.zeros(coder.payload_bytes, dtype=torch.uint8)
    coder.encode(torch.ones(numel), 1.0, torch.zeros(numel), 3, out)
    coder.seal(out, 3)
    code = elias_fano.encode(np.array(positions), numel).tobytes()
    data = out.numpy().tobytes()
    assert torch.isfinite(decode(coder, data)).all()
    bad = reseal(data[:HEADER_BYTES] + code + data[HEADER_BYTES + len(code) :])
    with pytest.raises(PayloadError, match=r"block 0 holds a wrong number of positions"):
        decode(coder, bad)
