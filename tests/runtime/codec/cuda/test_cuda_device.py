"""The same bytes, residuals and sums as the reference on a real GPU; skipped where there is none."""

import pytest
import torch
from cases import OTHERS, edge_inputs, layout_of, preset_codecs

from geosim.errors import NotFiniteError
from runtime.codec.cuda import TritonCodec
from runtime.codec.reference import ReferenceCodec

CODECS = preset_codecs() | OTHERS
SHAPES = [("a", (1 << 20,)), ("b", (300, 4099)), ("c", (40,)), ("d", (70, 65))]

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


class Pair:
    """A codec on the device beside the reference, their residuals and payloads."""

    def __init__(self, name: str) -> None:
        layout = layout_of(CODECS[name], SHAPES)
        self.ours, self.theirs = TritonCodec(layout, 0, 0, 1), ReferenceCodec(layout, 0, 0, 1)
        self.numel = self.ours.numel
        self.values = torch.zeros(self.numel, device="cuda")
        self.kept: torch.Tensor | None = None
        self.their_kept: torch.Tensor | None = None
        if self.ours.decay is not None:
            self.kept, self.their_kept = torch.zeros(self.numel, device="cuda"), torch.zeros(self.numel)
        self.one = torch.zeros(self.ours.payload_bytes, dtype=torch.uint8, pin_memory=True)
        self.two = torch.zeros(self.ours.payload_bytes, dtype=torch.uint8)

    def encode(self, values: torch.Tensor, round: int) -> None:
        """On the device always from the same place: its launches are captured, then replayed."""
        self.values.copy_(values)
        self.ours.encode(self.values, 0.7, self.kept, round, self.one)
        self.theirs.encode(values, 0.7, self.their_kept, round, self.two)
        self.ours.seal(self.one, round)
        self.theirs.seal(self.two, round)

    def check(self, what: object) -> None:
        assert torch.equal(self.one, self.two), what
        if self.kept is not None and self.their_kept is not None:
            assert torch.equal(self.kept.cpu().view(torch.int32), self.their_kept.view(torch.int32)), what

    def check_decoded(self, round: int) -> None:
        c = self.ours.decode(self.one, 1, round, "cuda").values.cpu()
        d = self.theirs.decode(self.two, 1, round).values
        assert torch.equal(c.view(torch.int32), d.view(torch.int32)), round


@pytest.mark.parametrize("name", CODECS)
def test_a_gpu_agrees_with_the_reference(name: str) -> None:
    pair = Pair(name)
    generator = torch.Generator().manual_seed(0)
    inputs = [(f"noise {i}", torch.randn(pair.numel, generator=generator)) for i in range(3)]
    for round, (what, values) in enumerate([*inputs, *edge_inputs(pair.numel), *inputs]):
        if round >= len(inputs):
            for kept in (pair.kept, pair.their_kept):
                if kept is not None:
                    kept.zero_()
        pair.encode(values, round)
        pair.check(what)
        pair.check_decoded(round)


@pytest.mark.parametrize("name", ["hierarchical-efsgd", "sparse-loco"])
def test_what_is_not_finite_is_undone_also_when_replayed(name: str) -> None:
    pair = Pair(name)
    noise = torch.randn(pair.numel, generator=torch.Generator().manual_seed(1))
    for round in range(3):
        pair.encode(noise, round)
    assert pair.kept is not None
    before = pair.kept.clone()
    pair.values[pair.numel // 2] = float("nan")
    with pytest.raises(NotFiniteError):
        pair.ours.encode(pair.values, 0.7, pair.kept, 3, pair.one)
    largest = float(before.abs().max()) + float(noise.abs().max())
    assert float((pair.kept - before).abs().max()) <= 2**-22 * largest
    pair.kept.copy_(before)
    pair.encode(noise, 3)
    pair.check("after")


@pytest.mark.parametrize("name", ["hierarchical-efsgd", "sparse-loco"])
def test_a_body_that_no_encoder_writes_is_refused_also_when_replayed(name: str) -> None:
    pair = Pair(name)
    pair.encode(torch.randn(pair.numel, generator=torch.Generator().manual_seed(2)), 0)
    out = torch.zeros(pair.numel, device="cuda")
    key = pair.ours._key(0, 1)
    body = pair.one[80:]
    spoiled = body.clone()
    spoiled[: len(body) // 8] = 255
    for _ in range(3):
        pair.ours._decode_add(body, key, out)
        with pytest.raises(ValueError, match=r"position|scale|value|bits"):
            pair.ours._decode_add(spoiled, key, out)
    wanted = pair.theirs.decode(pair.two, 1, 0).values
    assert torch.equal(out.cpu(), wanted + wanted + wanted)


def test_values_at_another_place_are_read_there() -> None:
    pair = Pair("hierarchical-efsgd")
    generator = torch.Generator().manual_seed(3)
    for round in range(6):
        if round % 2 == 0:
            pair.values = torch.empty_like(pair.values)
        pair.encode(torch.randn(pair.numel, generator=generator), round)
        pair.check(round)
