"""Laws of every codec over random policies of the whole vocabulary, random tensors and random updates."""

import fuzz
import numpy as np
import pytest
import torch
from fuzz import home
from hypothesis import HealthCheck, assume, given, note, settings
from hypothesis import strategies as st

from geosim.errors import NotFiniteError
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
    policy_from_dict,
    wire_bytes,
)
from geosim.policy.codec import HEADER_BYTES, chosen, section_bytes
from runtime.codec.interface import FragmentCodec
from runtime.codec.reference import ReferenceCodec
from runtime.optimizer import GeoOptimizer
from runtime.sites import Sites

SIZES = range(20_001)
WEIGHTS = [1.0, 0.25, 0.3, 1 / 3, 0.0, 1e-30]
DTYPES = [torch.float32, torch.bfloat16, torch.float16]
TAME = ("normal", "ties", "halves", "equal", "zeros", "signed zeros", "almost zeros", "levels")


def laws(examples: int):
    """As many examples, always the same ones."""
    return settings(
        max_examples=examples,
        deadline=None,
        derandomize=True,
        suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    )


@st.composite
def picks(draw):
    """What `fuzz` makes its choices with."""
    return lambda options: draw(st.sampled_from(options))


class Pair:
    """A codec of a random policy, the reference of the same, and a residual of each."""

    def __init__(self, pick, codec_class: type[FragmentCodec], site: int = 1) -> None:
        self.pick = pick
        self.device = home(codec_class)
        self.codec = fuzz.codec_from(pick)
        sizes = pick([fuzz.SIZES, SIZES])
        self.layout = fuzz.layout_from(pick, self.codec, sizes)
        self.shard = pick(range(self.layout.shards))
        note(
            f"{self.codec!r} {[t.numel for t in self.layout.tensors]} shard {self.shard}/{self.layout.shards}"
        )
        self.ours = codec_class(self.layout, 0, self.shard, site)
        self.theirs = ReferenceCodec(self.layout, 0, self.shard, site)
        self.e = fuzz.residual_of(self.theirs)
        self.ours_e = None if self.e is None else self.e.to(self.device, copy=True)

    def update(self, kinds=tuple(fuzz.UPDATES), dtypes=DTYPES) -> torch.Tensor:
        return fuzz.update_from(self.pick, self.ours.numel, self.pick(dtypes), kinds)

    def encode(self, values: torch.Tensor, weight: float, round: int) -> torch.Tensor:
        """The payload of our codec, sealed."""
        out = torch.full((self.ours.payload_bytes,), 0x5A, dtype=torch.uint8)
        self.ours.encode(values.to(self.device), weight, self.ours_e, round, out)
        self.ours.seal(out, round)
        return out


def same(one: torch.Tensor, two: torch.Tensor) -> bool:
    """Bit for bit."""
    return torch.equal(one.cpu().view(torch.int32), two.cpu().view(torch.int32))


def close(one: torch.Tensor, two: torch.Tensor, *terms: torch.Tensor) -> bool:
    """Equal but for the rounding of sums of such terms that were taken and undone."""
    most = torch.cat([*(t.cpu() for t in terms), torch.zeros(1)]).nan_to_num(0.0, 0.0, 0.0).abs().max().item()
    return torch.allclose(one.cpu(), two.cpu(), rtol=0, atol=most * 2.0**-18, equal_nan=True)


@laws(150)
@given(picks())
def test_a_few_rounds_are_those_of_the_reference_and_lose_nothing(codec_class, pick) -> None:
    pair = Pair(pick, codec_class)
    layout, codec = pair.layout, pair.codec
    pieces = layout.pieces(0, pair.shard)
    coded, plain = ([p.numel for p in pieces if p.small == small] for small in (False, True))
    size = wire_bytes(coded, plain, codec)
    assert size == layout.payload_bytes(0, pair.shard) == pair.ours.payload_bytes
    for round in range(3):
        values, weight = pair.update(), pick(WEIGHTS)
        mean = values.to(torch.float32) * torch.tensor(weight, dtype=torch.float32)
        u = mean if pair.e is None else mean + pair.e
        assume(torch.isfinite(u).all())
        wanted = torch.full((size,), 0xA5, dtype=torch.uint8)
        pair.theirs.encode(values, weight, pair.e, round, wanted)
        payload = pair.encode(values, weight, round)
        assert torch.equal(payload[HEADER_BYTES:], wanted[HEADER_BYTES:])
        decoded = pair.ours.decode(payload, 1, round, pair.device).values.cpu()
        assert same(decoded, pair.theirs.decode(payload, 1, round).values)
        if pair.e is not None:
            assert same(pair.ours_e, pair.e)
            assert torch.equal(pair.e, (u - decoded) * torch.tensor(pair.ours.decay))


@laws(100)
@given(picks())
def test_a_sum_is_that_of_its_payloads_in_order(codec_class, pick) -> None:
    pair = Pair(pick, codec_class)
    payloads, opened, decoded = [], [], []
    for site in range(pick([1, 2, 5])):
        sender = ReferenceCodec(pair.layout, 0, pair.shard, site)
        payload = torch.zeros(sender.payload_bytes, dtype=torch.uint8)
        sender.encode(pair.update(), pick(WEIGHTS), fuzz.residual_of(sender), 4, payload)
        sender.seal(payload, 4, finite=pick([True, True, True, False]))
        payloads.append(payload)
        opened.append(pair.ours.open(payload, site, 4))
        decoded.append(pair.theirs.decode(payload, site, 4).values)
    total = torch.full((pair.ours.numel,), float("nan"), device=pair.device)
    pair.ours.decode_sum(opened, total)
    wanted = fuzz.sums_in_order(opened, decoded)
    assert torch.equal(total.cpu().nan_to_num(1.5), wanted.nan_to_num(1.5))
    before = fuzz.update_from(pick, pair.ours.numel, kinds=TAME)
    total = before.to(pair.device, copy=True)
    for site, values in enumerate(decoded):
        if pair.ours.decode_add(payloads[site], site, 4, total).finite:
            before = before + values
    assert torch.equal(total.cpu().nan_to_num(1.5), before.nan_to_num(1.5))


@laws(100)
@given(picks())
def test_undo_restores(codec_class, pick) -> None:
    pair = Pair(pick, codec_class)
    pair.encode(pair.update(TAME, [torch.float32]), 1.0, 0)
    before = None if pair.e is None else pair.ours_e.clone()
    values, weight = pair.update(TAME), pick(WEIGHTS)
    payload = pair.encode(values, weight, 1)
    pair.ours.undo(values.to(pair.device), weight, pair.ours_e, 1, payload)
    if before is not None:
        assert close(pair.ours_e, before, before, values.float())


@laws(150)
@given(picks())
def test_what_is_not_finite_is_refused_and_the_residual_restored(codec_class, pick) -> None:
    pair = Pair(pick, codec_class)
    assume(pair.ours.numel)
    first = pair.update(TAME, [torch.float32])
    pair.encode(first, 1.0, 0)
    values = pair.update(TAME)
    before = None if pair.e is None else pair.ours_e.cpu().clone()
    terms = [t for t in (before, values.float(), first) if t is not None]
    at = pick(range(pair.ours.numel))
    kind = pick(["nan", "inf", "-inf", "residual", "sum"])
    weight = pick([1.0, 0.3])
    if kind == "residual" and before is not None:
        before[at] = float(pick(["nan", "inf"]))
    elif kind == "sum" and before is not None:
        values = values.to(torch.bfloat16).to(pick([torch.float32, torch.bfloat16]))
        before[at], values[at], weight = fuzz.FP32_MAX, 3e38, 1.0
    else:
        values[at] = float(kind if kind in ("inf", "-inf") else "nan")
    if before is not None:
        pair.ours_e.copy_(before)
    with pytest.raises(NotFiniteError, match=r"^site 1, round 7, fragment 0: the update is not finite$"):
        pair.encode(values, weight, 7)
    if before is not None:
        assert close(pair.ours_e, before, *terms)
        pair.ours_e.copy_(before.nan_to_num(0.5, 0.5, 0.5).clamp(-2, 2))
        pair.e = pair.ours_e.cpu().clone()
    # And nothing of it is left in the codec.
    good = pair.update(TAME)
    wanted = torch.zeros(pair.ours.payload_bytes, dtype=torch.uint8)
    pair.theirs.encode(good, 0.5, pair.e, 8, wanted)
    assert torch.equal(pair.encode(good, 0.5, 8)[HEADER_BYTES:], wanted[HEADER_BYTES:])


@laws(60)
@given(picks())
def test_views_at_any_element_do(codec_class, pick) -> None:
    """A vector within a larger one, at odd elements and bytes; what lies beside it stays."""
    pair = Pair(pick, codec_class)
    numel, size, at = pair.ours.numel, pair.ours.payload_bytes, pick([1, 3, 7])

    def inside(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        fill = 77 if x.dtype == torch.uint8 else 0.77
        room = torch.full(
            (at + x.numel() + 9,), fill, dtype=x.dtype, device=pair.device if fill != 77 else "cpu"
        )
        room[at : at + x.numel()] = x
        return room, room[at : at + x.numel()]

    values = pair.update()
    plain = pair.encode(values, 0.3, 2)
    room, out = inside(torch.zeros(size, dtype=torch.uint8))
    kept, e = (None, None) if pair.e is None else inside(torch.zeros(numel))
    given, view = inside(values)
    copy = given.clone()
    pair.ours.encode(view, 0.3, e, 2, out)
    pair.ours.seal(out, 2)
    assert torch.equal(out, plain)
    assert torch.equal(given, copy)
    assert e is None or same(e, pair.ours_e)
    sums, total = inside(torch.ones(numel))
    pair.ours.decode_add(out, 1, 2, total)
    assert torch.equal(total.cpu(), 1 + pair.theirs.decode(plain, 1, 2).values)
    pair.ours.decode_sum([pair.ours.open(out, 1, 2)], total)
    assert torch.equal(total.cpu(), pair.theirs.decode(plain, 1, 2).values)
    for whole in (room, sums, kept):
        if whole is not None:
            beside = torch.cat([whole[:at], whole[-9:]])
            assert torch.all(beside == beside[0])


@pytest.mark.parametrize("select", [TopK, RandomK])
@pytest.mark.parametrize("quantize", ["fp32", "fp16", "int8", "int4", "int2", "e3m0", "sign"])
@pytest.mark.parametrize(("ratio", "sizes"), [(1.0, (300, 7, 2500, 5, 64, 1)), (0.97, (9, 3, 7))])
def test_all_of_several_spans_may_travel(codec_class, select, quantize: str, ratio: float, sizes) -> None:
    """With scope fragment, small tensors between the others, and a ratio that keeps everything."""
    codec = Codec(
        select=select(ratio=ratio, scope="fragment"),
        quantize={"kind": quantize} | ({} if quantize[:2] == "fp" else {"group": 13}),
        residual=Feedback(decay=0.9),
        small_below_bytes=28.0,
        small_dtype="bf16",
    )
    layout = make_layout(
        table((f"{i}.w", (n,)) for i, n in enumerate(sizes)), SyncPolicy(codec=codec, order="model"), 1
    )
    ours, theirs = codec_class(layout, 0, 0, 1), ReferenceCodec(layout, 0, 0, 1)
    assert len(ours.sections[0].spans) > 1
    e = torch.zeros(ours.numel, device=home(codec_class))
    f = torch.zeros(ours.numel)
    values = torch.randn(ours.numel, generator=torch.Generator().manual_seed(1))
    for round in range(2):
        outs = [torch.zeros(ours.payload_bytes, dtype=torch.uint8) for _ in range(2)]
        ours.encode(values.to(e.device), 0.5, e, round, outs[0])
        theirs.encode(values, 0.5, f, round, outs[1])
        for out in outs:
            ours.seal(out, round)
        assert torch.equal(*outs)
        assert same(e, f)
        decoded = theirs.decode(outs[1], 1, round).values
        assert torch.equal(ours.decode(outs[0], 1, round, e.device).values.cpu(), decoded)
        total = torch.full_like(e, float("nan"))
        ours.decode_sum([ours.open(outs[0], 1, round)] * 2, total)
        assert torch.equal(total.cpu(), decoded + decoded)
    before = e.clone()
    bad = values.clone()
    bad[-1] = float("nan")
    with pytest.raises(NotFiniteError):
        ours.encode(bad.to(e.device), 0.5, e, 2, outs[0])
    assert close(e, before, f, values)


@pytest.mark.parametrize("kind", ["int8", "int4", "int2", "e3m0", "sign"])
@pytest.mark.parametrize("group", [9, 13, 2049, "section"])
def test_odd_groups_are_restored_to_the_last_bit_written(codec_class, kind: str, group) -> None:
    """Groups that end within a byte: an encoder that stops there must know what it wrote so far."""
    codec = Codec(quantize={"kind": kind, "group": group}, residual=Feedback(decay=0.5))
    layout = make_layout(table([("w", (9001,))]), SyncPolicy(codec=codec), 1)
    coder = codec_class(layout, 0, 0, 1)
    g = torch.Generator().manual_seed(2)
    e = torch.randn(coder.numel, generator=g).to(home(codec_class))
    before, values = e.clone(), torch.randn(coder.numel, generator=g).to(e.device)
    for at in (0, 2040, 2048, 4095, 9000):
        for fill in (0x00, 0xFF, 0x6B):
            out = torch.full((coder.payload_bytes,), fill, dtype=torch.uint8)
            bad = values.clone()
            bad[at] = float("inf")
            with pytest.raises(NotFiniteError):
                coder.encode(bad, 1.0, e, 0, out)
            assert close(e, before, before.cpu(), values.cpu())
            e.copy_(before)


FORMATS = [
    *(Cast(kind=kind) for kind in ("fp32", "bf16", "fp16")),
    *(Integer(kind=kind, group=group) for kind in ("int8", "int4", "int2") for group in (8, 64, "section")),
    *(kind(group=group) for kind in (E3M0, Sign) for group in (8, 64, "section")),
]


@pytest.mark.parametrize("quantize", FORMATS, ids=lambda q: f"{q.kind}-{getattr(q, 'group', '')}")
@pytest.mark.parametrize("scope", ["piece", 64])
def test_no_section_is_larger_than_a_dense_one(quantize, scope) -> None:
    """Where the positions cost more than the values that stay behind, all travel."""
    for numel in (*range(1, 20), 64, 100, 1000, 4096, 65537, 1 << 20):
        dense = section_bytes(numel, Codec(quantize=quantize))
        for ratio in np.geomspace(1e-4, 1, 60).tolist():
            codec = Codec(select=TopK(ratio=ratio, scope=scope), quantize=quantize, residual=Feedback())
            size = section_bytes(numel, codec)
            assert size <= dense
            whole = chosen(codec.select, quantize, numel).kind == "dense"
            assert whole == (size == dense)


def parameters(plain: bool) -> list[torch.nn.Parameter]:
    """Five dimensions, strides of all kinds, a scalar; `plain`: the same values, contiguous."""
    g = torch.Generator().manual_seed(3)
    odd = [
        torch.randn(4, 3, 2, 5, 3, generator=g).contiguous(memory_format=torch.channels_last_3d),
        torch.randn(17, 9, generator=g).t(),
        torch.randn(11, 14, generator=g)[1:10:2, ::3],
        torch.randn(40, generator=g)[3:36],
        torch.randn((), generator=g),
        torch.randn(3, 5, 4, 2, generator=g).permute(2, 0, 3, 1),
    ]
    return [torch.nn.Parameter(x.clone(memory_format=torch.contiguous_format) if plain else x) for x in odd]


@pytest.mark.parametrize("update", ["accumulate", "local"])
def test_parameters_of_any_shape_and_strides_train_alike(update: str) -> None:
    trained = []
    for plain in (False, True):
        params = parameters(plain)
        assert plain or sum(not p.is_contiguous() for p in params) == 4
        policy = {
            "interval": 2,
            "update": update,
            "codec": {"select": {"kind": "topk", "ratio": 0.3}, "quantize": "int8", "residual": "feedback"},
        }
        inner = torch.optim.SGD(params, lr=0.1, momentum=0.9)
        geo = GeoOptimizer(inner, policy_from_dict(policy), Sites(["east"], "east", None))
        for step in range(6):
            geo.zero_grad()
            loss = sum((p.float() * (step + 1)).sin().square().sum() for p in params)
            loss.backward()
            geo.step()
        geo.close()
        trained.append([p.detach().clone(memory_format=torch.contiguous_format) for p in params])
    begun = parameters(True)
    for odd, plain, start in zip(*trained, begun, strict=True):
        assert torch.equal(odd, plain)
        assert not torch.equal(odd, start)
