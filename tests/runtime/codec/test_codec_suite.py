"""The suite that every codec passes: laws, sizes, parity with the reference, edges and refusals."""

import pytest
import torch

from geosim.errors import NotFiniteError, PayloadError, UsageError
from geosim.params import table
from geosim.policy import (
    Codec,
    Feedback,
    Integer,
    RandomK,
    SyncPolicy,
    TopK,
    load_policy,
    make_layout,
    preset_names,
    wire_bytes,
)
from geosim.policy.codec import HEADER_BYTES
from runtime import backends
from runtime.codec import codec_for
from runtime.codec.cpu import CpuCodec
from runtime.codec.reference import ReferenceCodec


def residual_of(coder) -> torch.Tensor | None:
    return None if coder.decay is None else torch.zeros(coder.numel)


def send(coder, values, weight=1.0, residual=None, round=3, **header):
    out = torch.full((coder.payload_bytes,), 0xAA, dtype=torch.uint8)
    coder.encode(values, weight, residual, round, out)
    coder.seal(out, round, **header)
    return out, coder.decode(out, coder.site, round).values


@pytest.mark.parametrize("order", ["model", "largest-first"])
def test_decoded_plus_residual_is_the_update(codec_class, codec, build, update, order) -> None:
    coder = build(codec_class, codec, order=order)
    e = residual_of(coder)
    for round in range(2):
        values = update(coder.numel, round)
        u = 0.25 * values + (0 if e is None else e)
        _, c = send(coder, values, 0.25, e, round)
        if e is not None:
            error = (c.double() + e.double() - u.double()).abs()
            assert torch.all(error <= e.double().abs() * 2**-24 + 1e-45)


def test_payload_is_as_large_as_the_layout_says_and_every_byte_is_written(
    codec_class, codec, build, update
) -> None:
    coder = build(codec_class, codec)
    bodies = []
    for fill in (0x00, 0xFF):
        out = torch.full((coder.payload_bytes,), fill, dtype=torch.uint8)
        coder.encode(update(coder.numel), 1.0, residual_of(coder), 0, out)
        assert torch.all(out[:HEADER_BYTES] == fill)
        bodies.append(out[HEADER_BYTES:])
    assert torch.equal(*bodies)


def test_same_bytes_and_residual_as_the_reference(codec_class, codec, build, update) -> None:
    ours, theirs = build(codec_class, codec), build(ReferenceCodec, codec)
    e, f = residual_of(ours), residual_of(theirs)
    for round in range(2):
        one, c = send(ours, update(ours.numel, round), 0.7, e, round)
        two, d = send(theirs, update(ours.numel, round), 0.7, f, round)
        assert torch.equal(one, two)
        assert torch.equal(c, d)
        assert e is None or torch.equal(e, f)


def test_decode_add_adds_in_any_number_and_once(codec_class, codec, build, update) -> None:
    total, wanted = None, 0.0
    for site in range(3):
        coder = build(codec_class, codec, site=site)
        payload, c = send(coder, update(coder.numel, site), 0.3, residual_of(coder), 5)
        total = torch.zeros(coder.numel) if total is None else total
        build(codec_class, codec, site=0).decode_add(payload, site, 5, total)
        wanted = wanted + c
    assert torch.equal(total, wanted)


@pytest.mark.parametrize("preset", preset_names())
def test_presets_send_what_the_layout_prices(codec_class, preset: str) -> None:
    shapes = [("embed", (300, 64))]
    for i in range(4):
        shapes += [(f"{i}.attn", (64, 192)), (f"{i}.norm", (64,)), (f"{i}.mlp", (64, 256))]
    for shards in (1, 3):
        layout = make_layout(table(shapes), load_policy(preset), shards)
        for fragment in range(len(layout.fragments)):
            for shard in range(shards):
                coder = codec_class(layout, fragment, shard, 0)
                payload, _ = send(coder, torch.randn(coder.numel), 0.5, residual_of(coder))
                assert len(payload) == layout.payload_bytes(fragment, shard)


@pytest.mark.parametrize("numel", [1, 2, 15, 16, 17, 63, 64, 65, 127, 129])
def test_single_tensors_of_all_sizes(codec_class, codec, numel: int) -> None:
    layout = make_layout(table([("w", (numel,))]), SyncPolicy(codec=codec), 1)
    coder = codec_class(layout, 0, 0, 0)
    small = codec.is_small(numel)
    assert coder.payload_bytes == wire_bytes([] if small else [numel], [numel] if small else [], codec)
    for values in (torch.randn(numel), torch.zeros(numel), torch.full((numel,), 0.3)):
        send(coder, values, 1.0, residual_of(coder))


@pytest.mark.parametrize("values", [1e-40, -3e-45, 3e38, 3.4028234663852886e38, 1e30], ids=str)
def test_denormal_and_huge_values_stay_finite(codec_class, codec, build, update, values: float) -> None:
    coder = build(codec_class, codec)
    v = (update(coder.numel).clamp(-1, 1) * values).float()
    e = residual_of(coder)
    _, c = send(coder, v, 1.0, e)
    assert torch.isfinite(c).all()
    assert e is None or torch.isfinite(e).all()


def test_a_shard_without_pieces(codec_class) -> None:
    layout = make_layout(table([("w", (1,))]), SyncPolicy(), 3)
    sizes = [codec_class(layout, 0, s, 0).numel for s in range(3)]
    coder = codec_class(layout, 0, sizes.index(0), 0)
    payload, c = send(coder, torch.zeros(0))
    assert len(payload) == HEADER_BYTES
    assert c.numel() == 0
    assert coder.decode(payload, 0, 3).values.numel() == 0


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_input_counts_as_fp32(codec_class, build, update, dtype) -> None:
    coder = build(codec_class, Codec(select=TopK(ratio=0.1), quantize=Integer(), residual=Feedback()))
    v = update(coder.numel).to(dtype)
    one = send(coder, v, 0.3, residual_of(coder))[0]
    assert torch.equal(one, send(coder, v.float(), 0.3, residual_of(coder))[0])


def test_random_positions_need_not_travel_and_are_those_of_all_sites(codec_class, build, update) -> None:
    codec = Codec(select=RandomK(ratio=0.1), residual=Feedback())
    kept = []
    for site, round in ((0, 4), (1, 4), (0, 5)):
        coder = build(codec_class, codec, site=site)
        kept.append(send(coder, update(coder.numel, site), 1.0, residual_of(coder), round)[1] != 0)
    assert torch.equal(kept[0], kept[1])
    assert not torch.equal(kept[0], kept[2])


def test_the_header_arrives(codec_class, build, update) -> None:
    coder = build(codec_class, Codec())
    chain = bytes(range(8))
    payload, _ = send(coder, update(coder.numel), tokens=1 << 40, exchange_us=1 << 33, step_us=5, chain=chain)
    header = coder.open(payload, 1, 3).header
    assert (header.tokens, header.exchange_us, header.step_us, header.chain) == (
        1 << 40,
        (1 << 32) - 1,
        5,
        chain,
    )
    assert header.finite


def test_a_flagged_round_adds_nothing_and_says_so(codec_class, codec, build, update) -> None:
    coder = build(codec_class, codec)
    payload, _ = send(coder, update(coder.numel), 1.0, residual_of(coder), finite=False)
    assert not payload[HEADER_BYTES:].any()
    total = torch.ones(coder.numel)
    assert not coder.decode_add(payload, 1, 3, total).finite
    assert torch.all(total == 1)


def test_a_sum_is_that_of_its_payloads_in_order(codec_class, codec, build, update) -> None:
    receiver = build(codec_class, codec, site=0)
    opened, wanted = [], torch.zeros(receiver.numel)
    for site in (2, 0, 3, 1):
        coder = build(codec_class, codec, site=site)
        payload, c = send(coder, update(coder.numel, site), 0.3, residual_of(coder), 5, finite=site != 3)
        opened.append(receiver.open(payload, site, 5))
        wanted = wanted + c
    total = torch.full((receiver.numel,), float("nan"))
    receiver.decode_sum(opened, total)
    assert torch.equal(total, wanted)


def test_undo_takes_an_encode_back(codec_class, codec, build, update) -> None:
    coder = build(codec_class, codec)
    e = residual_of(coder)
    send(coder, update(coder.numel, 1), 1.0, e)
    before = None if e is None else e.clone()
    v = update(coder.numel, 2)
    payload, _ = send(coder, v, 0.5, e)
    coder.undo(v, 0.5, e, 3, payload)
    assert e is None or torch.allclose(e, before, rtol=1e-5, atol=1e-5)


def test_what_is_not_finite_is_refused_before_anything_changes(codec_class, codec, build, update) -> None:
    coder = build(codec_class, codec)
    v, e = update(coder.numel), residual_of(coder)
    v[-1] = float("nan")
    with pytest.raises(NotFiniteError, match=r"site 1, round 3.*not finite"):
        send(coder, v, 1.0, e)
    assert e is None or not e.any()


def test_wrong_arguments_are_named(codec_class, build, update) -> None:
    coder = build(codec_class, Codec())
    out = torch.zeros(coder.payload_bytes, dtype=torch.uint8)
    v = update(coder.numel)
    for bad in (
        lambda: coder.encode(v[1:], 1.0, None, 0, out),
        lambda: coder.encode(v.double(), 1.0, None, 0, out),
        lambda: coder.encode(v, 1.0, None, 0, out[1:]),
        lambda: coder.encode(v, 1.0, v, 0, out),
        lambda: coder.decode_add(out, 0, 0, v[1:]),
    ):
        with pytest.raises(UsageError, match=r"values|out|residual"):
            bad()


def test_the_wrong_peer_round_or_layout_is_named(codec_class, build, update) -> None:
    coder = build(codec_class, Codec())
    payload, _ = send(coder, update(coder.numel))
    cases = [
        (coder, payload, 2, 3, "site 1 instead of 2"),
        (coder, payload, 1, 4, "round 3 instead of 4"),
        (coder, payload[1:], 1, 3, "bytes instead of"),
        (coder, payload[:0], 1, 3, "0 bytes instead of"),
        (build(codec_class, Codec(), seed=10), payload, 1, 3, "model, policy or shards differ"),
    ]
    for receiver, data, site, round, reason in cases:
        with pytest.raises(PayloadError, match=rf"site {site}, round {round}: .*{reason}"):
            receiver.decode(data, site, round)


def test_the_fastest_that_is_installed_is_chosen(monkeypatch) -> None:
    assert codec_for("auto", "cpu") is CpuCodec
    assert codec_for("reference", "cuda") is ReferenceCodec
    monkeypatch.setattr(backends, "find_spec", lambda package: None if package == "numba" else object())
    assert codec_for("auto", "cpu") is ReferenceCodec
    with pytest.raises(UsageError, match=r"codec cpu: needs numba.*\.\[kernels\]"):
        codec_for("cpu", "cpu")


def test_a_codec_that_cannot_be_had_is_refused() -> None:
    with pytest.raises(UsageError, match=r"codec fast: .*use auto, triton, cpu, reference"):
        codec_for("fast", "cpu")
    with pytest.raises(UsageError, match="codec cpu: does not run on device cuda"):
        codec_for("cpu", "cuda")
