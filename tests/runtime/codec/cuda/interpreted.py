"""The Triton codec under triton's interpreter, bit for bit against the reference.

Not collected by name: triton must find TRITON_INTERPRET=1 when it is imported, so `test_cuda_interpreted.py`
runs this file in a process of its own.
"""

import random

import pytest
import torch
from cases import OTHERS, edge_inputs, layout_of, preset_codecs

from geosim.errors import NotFiniteError, PayloadError
from geosim.params import table
from geosim.policy import Cast, Codec, Feedback, Integer, SyncPolicy, TopK, make_layout
from geosim.policy.codec import HEADER_BYTES
from runtime.codec.cuda import TritonCodec
from runtime.codec.cuda.encode import Encoding
from runtime.codec.reference import ReferenceCodec

CODECS = preset_codecs() | OTHERS
EDGES = ["hierarchical-efsgd", "sparse-loco", "layerwise-8bit"]


def pair(codec: Codec, shapes=None, site: int = 1):
    layout = layout_of(codec, shapes)
    return TritonCodec(layout, 0, 0, site), ReferenceCodec(layout, 0, 0, site)


def noise(numel: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(numel, generator=torch.Generator().manual_seed(seed))


def bits(x: torch.Tensor) -> torch.Tensor:
    return x.view(torch.int32)


def encode_both(ours, theirs, values, residual, round=3, weight=0.7):
    """The payload of both, which must be equal to the last bit, as must their residuals."""
    mine = None if residual is None else residual.clone()
    one = torch.full((ours.payload_bytes,), 0xAA, dtype=torch.uint8)
    two = one.clone()
    ours.encode(values, weight, mine, round, one)
    theirs.encode(values, weight, residual, round, two)
    assert torch.equal(one, two)
    assert residual is None or torch.equal(bits(mine), bits(residual))
    theirs.seal(two, round)
    return two


def residual_of(coder) -> torch.Tensor | None:
    return None if coder.decay is None else torch.zeros(coder.numel)


@pytest.mark.parametrize("name", CODECS)
def test_bytes_residuals_and_sums_are_those_of_the_reference(name: str) -> None:
    ours, theirs = pair(CODECS[name])
    e = residual_of(ours)
    opened = []
    dtypes = (torch.float32, torch.bfloat16, torch.float16) if name in EDGES else (torch.float32,)
    for seed, dtype in enumerate(dtypes):
        payload = encode_both(ours, theirs, noise(ours.numel, seed).to(dtype), e)
        opened.append(theirs.open(payload, 1, 3))
    sums = torch.full((ours.numel,), float("nan")), torch.empty(ours.numel)
    ours.decode_sum(opened, sums[0])
    theirs.decode_sum(opened, sums[1])
    assert torch.equal(bits(sums[0]), bits(sums[1]))
    for coder, total in ((ours, sums[0]), (theirs, sums[1])):
        coder.decode_add(payload, 1, 3, total)
    assert torch.equal(bits(sums[0]), bits(sums[1]))


@pytest.mark.parametrize("name", EDGES)
def test_edges(name: str) -> None:
    ours, theirs = pair(CODECS[name], [("a", (4500,))])
    for what, values in edge_inputs(ours.numel):
        e = residual_of(ours)
        payload = encode_both(ours, theirs, values, e, weight=1.0)
        c, d = (coder.decode(payload, 1, 3).values for coder in (ours, theirs))
        assert torch.equal(bits(c), bits(d)), what


@pytest.mark.parametrize("name", ["hierarchical-efsgd", "block-int4", "layerwise-8bit"])
def test_tensors_of_all_small_sizes(name: str) -> None:
    shapes = [(str(n), (n,)) for n in (1, 2, 15, 16, 17, 63, 64, 65, 100, 101, 129)]
    ours, theirs = pair(CODECS[name], shapes)
    payload = encode_both(ours, theirs, noise(ours.numel), residual_of(ours))
    c, d = (coder.decode(payload, 1, 3).values for coder in (ours, theirs))
    assert torch.equal(bits(c), bits(d))


def test_a_sample_serves_noise_and_is_not_trusted_with_constants(monkeypatch) -> None:
    searched = []
    again = Encoding.again
    monkeypatch.setattr(Encoding, "again", lambda self: (searched.append(1), again(self)))
    ours, theirs = pair(CODECS["hierarchical-efsgd"], [("a", (14000,)), ("b", (3000,))])
    assert ours._lanes[0].samples < ours.numel / 2
    encode_both(ours, theirs, noise(ours.numel), residual_of(ours))
    assert not searched
    for values in (torch.zeros(ours.numel), torch.cat([noise(14000), torch.ones(3000)])):
        encode_both(ours, theirs, values, residual_of(ours))
    assert len(searched) == 2


@pytest.mark.parametrize(
    ("name", "at"),
    [
        ("hierarchical-efsgd", 0),
        ("hierarchical-efsgd", 13000),
        ("sparse-loco", 9050),
        ("layerwise-8bit", 9010),
        ("large-block-int8", 8999),
        ("dense-sign-wide", 13000),
        ("ddp", 0),
    ],
)
def test_what_is_not_finite_is_refused_and_the_residual_restored(name: str, at: int) -> None:
    ours, _ = pair(CODECS[name])
    values, e = noise(ours.numel), residual_of(ours)
    before = None
    if e is not None:
        e += noise(ours.numel, 5)
        before = e.clone()
    values[at] = float("nan")
    with pytest.raises(NotFiniteError, match=r"site 1, round 3.*not finite"):
        ours.encode(values, 1.0, e, 3, torch.zeros(ours.payload_bytes, dtype=torch.uint8))
    # Taken and undone: |u| and |c| are below 16, each of four operations may err by half a unit there.
    assert before is None or torch.all((e - before).abs() <= 4 * 2.0**-21)


def test_an_overflowing_sum_is_not_finite() -> None:
    ours, _ = pair(CODECS["hierarchical-efsgd"])
    e = torch.full((ours.numel,), 3e38)
    with pytest.raises(NotFiniteError):
        ours.encode(e.clone(), 1.0, e, 3, torch.zeros(ours.payload_bytes, dtype=torch.uint8))
    assert torch.all(e == 3e38)


def test_undo_takes_an_encode_back() -> None:
    ours, _ = pair(CODECS["sparse-loco"])
    values, e = noise(ours.numel), noise(ours.numel, 1)
    before = e.clone()
    payload = torch.zeros(ours.payload_bytes, dtype=torch.uint8)
    ours.encode(values, 0.5, e, 3, payload)
    ours.undo(values, 0.5, e, 3, payload)
    assert torch.allclose(e, before, rtol=1e-5, atol=1e-5)


def test_a_shard_without_pieces() -> None:
    layout = make_layout(table([("w", (1,))]), SyncPolicy(), 3)
    coder = next(c for c in (TritonCodec(layout, 0, s, 0) for s in range(3)) if not c.numel)
    payload = torch.zeros(coder.payload_bytes, dtype=torch.uint8)
    coder.encode(torch.zeros(0), 1.0, None, 0, payload)
    coder.seal(payload, 0)
    assert coder.decode(payload, 0, 0).values.numel() == 0


def fault(coder, body: torch.Tensor, out: torch.Tensor) -> str | None:
    try:
        coder._decode_add(body, coder._key(3, 1), out)
    except ValueError as error:
        return str(error)
    return None


@pytest.mark.parametrize(
    "name",
    [
        "hierarchical-efsgd",
        "block-int4",
        "large-block-int8",
        "fragment-sign",
        "streaming-diloco-e3m0",
        "drawn-fragment",
        "ddp-fp16",
        "ddp",
    ],
)
def test_refusals_are_those_of_the_reference(name: str) -> None:
    ours, theirs = pair(CODECS[name], [("a", (700,)), ("b", (90,)), ("c", (331,))])
    payload = encode_both(ours, theirs, noise(ours.numel), residual_of(ours))
    rng = random.Random(name)
    reasons = set()
    for _ in range(8):
        body = payload[HEADER_BYTES:].clone()
        at = rng.randrange(len(body))
        width = rng.choice((1, 2, 4))
        data = rng.choice((rng.randbytes(width), b"\xff" * width, b"\x88" * width))[: len(body) - at]
        body[at : at + width] = torch.tensor(list(data), dtype=torch.uint8)
        out, other = torch.ones(ours.numel), torch.ones(ours.numel)
        reason = fault(theirs, body, other)
        assert fault(ours, body, out) == reason
        assert torch.equal(bits(out), bits(other)), reason
        reasons.add(reason)
    assert len(reasons) > 1


BROKEN = [
    (Integer(group="section"), 0, b"\x00\x00\xc0\x7f", "scale is not finite"),
    (Integer(group="section"), 0, b"\x00\x00\x00\x80", "scale is negative"),
    (Integer(group="section"), 0, b"\x00\x00\x7f\x7f", "scale is out of range"),
    (Integer(group="section"), 0, b"\x01\x00\x00\x00", "scale is out of range"),
    (Integer(group="section"), 4, b"\x80", "value is out of range"),
    (Integer(kind="int4", group="section"), 4, b"\x88", "value is out of range"),
    (Cast(kind="fp32"), 0, b"\x00\x00\x80\xff", "value is not finite"),
    (Cast(kind="fp16"), 0, b"\x00\x7c", "value is not finite"),
    (Cast(kind="bf16"), 0, b"\x80\xff", "value is not finite"),
]


@pytest.mark.parametrize(("quantize", "at", "data", "reason"), BROKEN)
def test_each_part_is_checked_before_anything_is_added(quantize, at: int, data: bytes, reason: str) -> None:
    ours, theirs = pair(Codec(quantize=quantize), [("a", (33,))])
    payload = encode_both(ours, theirs, noise(33), None)
    payload[HEADER_BYTES + at : HEADER_BYTES + at + len(data)] = torch.tensor(list(data), dtype=torch.uint8)
    theirs.seal(payload, 3)
    out = torch.ones(33)
    with pytest.raises(PayloadError, match=rf"site 1, round 3: .*{reason}"):
        ours.decode_add(payload, 1, 3, out)
    assert torch.all(out == 1)
    with pytest.raises(PayloadError, match=rf"site 1, round 3: .*{reason}"):
        ours.decode_sum([theirs.open(payload, 1, 3)], out)


def test_unused_bits_and_counts_are_checked() -> None:
    codec = Codec(select=TopK(ratio=0.1), quantize=Integer(kind="int4"), residual=Feedback())
    ours, theirs = pair(codec, [("a", (130,))])
    payload = encode_both(ours, theirs, noise(130), torch.zeros(130))[HEADER_BYTES:]
    seen = set()
    for at in range(len(payload)):
        body = payload.clone()
        body[at] ^= 0x80 if at % 2 or at == len(payload) - 1 else 1
        reason = fault(theirs, body, torch.zeros(130))
        assert fault(ours, body, torch.zeros(130)) == reason
        seen.add(reason)
    assert {"unused bits are not zero", "12 positions instead of 13", "14 positions instead of 13"} <= seen
