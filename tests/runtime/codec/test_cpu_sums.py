"""The sum of a round's payloads is, bit for bit, what adding them one by one gives, however it is cut up."""

import re
import struct

import numpy as np
import pytest
import torch

from geosim.errors import PayloadError
from geosim.params import table
from geosim.policy import Cast, Codec, Feedback, Integer, RandomK, SyncPolicy, TopK, make_layout
from runtime.codec import elias_fano
from runtime.codec.cpu import CpuCodec, sums, total
from runtime.codec.interface import Opened
from runtime.codec.reference import ReferenceCodec

TILE = sums.TILE
CODECS = {
    "piece": Codec(select=TopK(ratio=0.01), quantize=Integer(group=64), residual=Feedback()),
    "blocks of a tile": Codec(select=TopK(ratio=0.01, scope=TILE), residual=Feedback()),
    "small blocks": Codec(
        select=TopK(ratio=0.02, scope=96), quantize=Integer(kind="int4"), residual=Feedback()
    ),
    "large blocks": Codec(
        select=TopK(ratio=0.01, scope=3 * TILE), quantize=Integer(kind="int2"), residual=Feedback(decay=0.9)
    ),
    "half": Codec(select=TopK(ratio=0.5), quantize=Cast(kind="fp32"), residual=Feedback()),
    "few": Codec(select=TopK(ratio=0.0001), quantize=Cast(kind="bf16"), residual=Feedback()),
    "drawn": Codec(select=RandomK(ratio=0.01), quantize=Integer(group=64), residual=Feedback()),
    "dense int8": Codec(quantize=Integer(group=100)),
    "dense in one group": Codec(quantize=Integer(group="section")),
    "dense fp16": Codec(quantize=Cast(kind="fp16")),
}


def coders(codec: Codec, numel: int, sites: int, kind: type = CpuCodec) -> list:
    layout = make_layout(table([("w", (numel,))]), SyncPolicy(codec=codec, seed=3), 1)
    return [kind(layout, 0, 0, site) for site in range(sites)]


def sent(codec: Codec, numel: int, sites: int) -> list[Opened]:
    """Payloads of one round, opened; updates differ in scale, and one of them is zeros but for a sign."""
    opened = []
    for site, coder in enumerate(coders(codec, numel, sites)):
        values = torch.randn(numel, generator=torch.Generator().manual_seed(site)) * 10.0**site
        if site == 1:
            values = -torch.zeros(numel)
        payload = torch.zeros(coder.payload_bytes, dtype=torch.uint8)
        coder.encode(values, 0.5, None if coder.decay is None else torch.zeros(numel), 4, payload)
        coder.seal(payload, 4)
        opened.append(coder.open(payload, site, 4))
    return opened


def one_by_one(coder, opened: list[Opened]) -> torch.Tensor:
    out = torch.zeros(coder.numel)
    for one in opened:
        coder._add_opened(one, out)
    return out


def outcome(coder, opened: list[Opened]) -> tuple[torch.Tensor, str]:
    """What adding them one by one gives, or the error's words."""
    try:
        return one_by_one(coder, opened), ""
    except PayloadError as error:
        return torch.empty(0), str(error)


def same(a: torch.Tensor, b: torch.Tensor) -> bool:
    return torch.equal(a.view(torch.int32), b.view(torch.int32))


@pytest.fixture(params=[False, True], ids=["through the caches", "past them"])
def past(request, monkeypatch) -> bool:
    """Small results would not be written past the caches, nor cut into ranges."""
    if request.param:
        monkeypatch.setattr(total, "_STREAMED_FROM", 1)
    monkeypatch.setattr(total, "_RANGE", 2 * TILE + 40)
    monkeypatch.setattr(total, "_MOST", 2 * TILE + 40)
    return request.param


@pytest.fixture(params=[1, 3])
def threads(request):
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


@pytest.mark.parametrize("name", CODECS)
@pytest.mark.parametrize("numel", [TILE - 1, TILE, TILE + 1, 7 * TILE + 17])
def test_all_sizes_and_places(name: str, numel: int, past: bool, threads: int) -> None:
    """Around the edges of tiles and ranges, at odd places; nothing beside is touched."""
    opened = sent(CODECS[name], numel, 3)
    coder = coders(CODECS[name], numel, 1)[0]
    reference = coders(CODECS[name], numel, 1, ReferenceCodec)[0]
    want = one_by_one(reference, opened)
    for at in (0, 1, 15):
        room = torch.full((at + numel + 16,), 7.5)
        coder.decode_sum(opened, room[at : at + numel])
        assert same(room[at : at + numel], want)
        assert torch.all(room[:at] == 7.5)
        assert torch.all(room[at + numel :] == 7.5)


@pytest.mark.parametrize("sites", [1, 2, 5, 17])
def test_any_number_of_payloads(sites: int, past: bool) -> None:
    codec, numel = CODECS["piece"], 5 * TILE + 3
    opened = sent(codec, numel, sites)
    coder = coders(codec, numel, 1)[0]
    out = torch.empty(numel)
    coder.decode_sum(opened, out)
    assert same(out, one_by_one(coder, opened))


def test_several_tensors_chosen_from_together(past: bool, threads: int) -> None:
    """A section of several spans goes to as many places, some shorter than a tile."""
    codec = Codec(select=TopK(ratio=0.02, scope="fragment"), residual=Feedback())
    params = table([("a", (3 * TILE + 5,)), ("b", (7,)), ("c", (2 * TILE,)), ("d", (TILE + 1,))])
    layout = make_layout(params, SyncPolicy(codec=codec, order="largest-first"), 2)
    opened = []
    for site in range(2):
        coder = CpuCodec(layout, 0, 1, site)
        payload = torch.zeros(coder.payload_bytes, dtype=torch.uint8)
        values = torch.randn(coder.numel, generator=torch.Generator().manual_seed(site))
        coder.encode(values, 0.5, torch.zeros(coder.numel), 4, payload)
        coder.seal(payload, 4)
        opened.append(coder.open(payload, site, 4))
    out = torch.empty(coder.numel)
    coder.decode_sum(opened, out)
    assert same(out, one_by_one(coder, opened))


@pytest.mark.parametrize("ratio", [0.0005, 0.01, 0.3])
def test_ranges_begin_anywhere(ratio: float, monkeypatch) -> None:
    """Within what shares its upper bits too, and where whole words hold no position."""
    monkeypatch.setattr(total, "_RANGE", 131)
    monkeypatch.setattr(total, "_MOST", 131)
    codec, numel = Codec(select=TopK(ratio=ratio), residual=Feedback()), 100_003
    coder = coders(codec, numel, 1)[0]
    values = torch.randn(numel, generator=torch.Generator().manual_seed(0))
    values[torch.arange(numel) // 600 % 100 == 0] *= 1e3
    payload = torch.zeros(coder.payload_bytes, dtype=torch.uint8)
    coder.encode(values, 1.0, torch.zeros(numel), 4, payload)
    coder.seal(payload, 4)
    opened, out = [coder.open(payload, 0, 4)], torch.empty(numel)
    coder.decode_sum(opened, out)
    assert same(out, one_by_one(coder, opened))


@pytest.mark.parametrize("numel", range(3, 40))
def test_few_values(numel: int) -> None:
    """What is read in words of eight bytes ends before them."""
    for quantize in (Integer(kind="int2", group="section"), Cast(kind="bf16")):
        codec = Codec(select=TopK(ratio=0.1), quantize=quantize, residual=Feedback())
        opened = sent(codec, numel, 2)
        coder = coders(codec, numel, 1)[0]
        out = torch.empty(numel)
        coder.decode_sum(opened, out)
        assert same(out, one_by_one(coder, opened))


def spoilt(opened: Opened, at: int, data: bytes) -> Opened:
    body = opened.body.clone()
    body[at : at + len(data)] = torch.from_numpy(np.frombuffer(bytearray(data), np.uint8))
    return Opened(opened.header, body)


@pytest.mark.parametrize(
    "name", ["piece", "blocks of a tile", "small blocks", "half", "dense int8", "dense fp16"]
)
def test_whatever_is_forged_is_what_the_reference_says_of_it(name: str, past: bool, threads: int) -> None:
    """Refused in the same words, naming the site that sent it, or summed alike; nothing beside is touched."""
    numel = 6 * TILE + 17
    opened = sent(CODECS[name], numel, 3)
    coder = coders(CODECS[name], numel, 1)[0]
    reference = coders(CODECS[name], numel, 1, ReferenceCodec)[0]
    rng = np.random.default_rng(0)
    outcomes = set()
    for _ in range(60):
        at = int(rng.integers(len(opened[2].body) - 4))
        bad = [opened[0], opened[1], spoilt(opened[2], at, rng.bytes(int(rng.integers(1, 4))))]
        room = torch.full((numel + 32,), 7.5)
        want, refused = outcome(reference, bad)
        outcomes.add(bool(refused))
        if refused:
            with pytest.raises(PayloadError, match=f"^{re.escape(refused)}$") as raised:
                coder.decode_sum(bad, room[16:-16])
            assert raised.value.site == 2
        else:
            coder.decode_sum(bad, room[16:-16])
            assert same(room[16:-16], want)
        assert torch.all(room[:16] == 7.5)
        assert torch.all(room[-16:] == 7.5)
    assert outcomes == {False, True}


@pytest.mark.parametrize(
    ("offset", "data"), [("scales_at", struct.pack("<f", float("nan"))), ("values_at", b"\x80")]
)
def test_scales_and_values_are_looked_at_before_anything_is_written(offset: str, data: bytes) -> None:
    numel = 3 * TILE
    opened = sent(CODECS["piece"], numel, 2)
    coder = coders(CODECS["piece"], numel, 1)[0]
    at = getattr(coder._decoder._plans[0], offset)
    out = torch.full((numel,), 7.5)
    with pytest.raises(PayloadError, match="site 0"):
        coder.decode_sum([spoilt(opened[0], at, data), opened[1]], out)
    assert torch.all(out == 7.5)


def test_a_block_with_a_wrong_number_is_laid_to_its_sender() -> None:
    """Counts, order and range are right. The other payloads, before and after it, are not blamed."""
    numel = 5 * TILE
    opened = sent(CODECS["blocks of a tile"], numel, 3)
    coder = coders(CODECS["blocks of a tile"], numel, 1)[0]
    keep = coder._decoder._plans[0].keep
    positions = np.concatenate([np.arange(keep) + TILE * block for block in range(5)])
    positions[keep] = TILE - 1  # of the second block, moved to the end of the first
    bad = spoilt(opened[1], 0, elias_fano.encode(positions, numel).tobytes())
    with pytest.raises(PayloadError, match=r"site 1, .*block 0 holds a wrong number"):
        coder.decode_sum([opened[0], bad, opened[2]], torch.empty(numel))
