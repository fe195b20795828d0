"""What the CPU codec does only with large sections: ranges, samples, several threads, streamed sums."""

import fuzz
import numpy as np
import pytest
import torch

from geosim.errors import NotFiniteError
from geosim.params import table
from geosim.policy import E3M0, Cast, Codec, Feedback, Integer, RandomK, Sign, SyncPolicy, TopK, make_layout
from runtime.codec.cpu import CpuCodec, select
from runtime.codec.cpu.add import FP32
from runtime.codec.cpu.lowlevel import LINE
from runtime.codec.cpu.whole import RANGE
from runtime.codec.reference import ReferenceCodec

# Ranges of a whole 2^20, one of a few, and none that ends where 64 or 8,192 elements do.
SIZES = (2 * RANGE + 37_003,)
# With scope fragment one section of three spans, none of which begins on a multiple of 64.
SPANS = (1_000_003, 101, 300_007, 55, 800_021)

WHOLE = Codec(select=TopK(ratio=0.01), quantize=Integer(), residual=Feedback())
JOINED = Codec(
    select=TopK(ratio=0.003, scope="fragment"),
    quantize=E3M0(group=13, rounding="stochastic"),
    residual=Feedback(decay=0.9),
    small_below_bytes=500.0,
)
EVERY = Codec(
    select=TopK(ratio=1.0, scope="fragment"),
    quantize=Integer(kind="int4", group=9),
    residual=Feedback(decay=0.9),
    small_below_bytes=500.0,
)
HALF = Codec(select=TopK(ratio=0.6), quantize=Cast(kind="fp16"))
DRAWN = Codec(select=RandomK(ratio=0.02), quantize=Sign(group=9), residual=Feedback(decay=0.9))
BLOCKS = Codec(
    select=TopK(ratio=0.01, scope=5000), quantize=Integer(kind="int4"), residual=Feedback(decay=0.5)
)
USUAL = Codec(select=TopK(ratio=0.01, scope=4096), quantize=Integer(), residual=Feedback())
# Neither groups nor bytes end where blocks do.
FEW = Codec(
    select=TopK(ratio=0.004, scope=700), quantize=E3M0(group=9, rounding="stochastic"), residual=Feedback()
)
NARROW = Codec(quantize=Integer(kind="int2", group=9), residual=Feedback(decay=0.9))
WIDE = Codec(quantize=Sign(group=1 << 20), residual=Feedback(decay=0.9))
SECTION = Codec(quantize=Integer(kind="int4", group="section", rounding="stochastic"), residual=Feedback())
ALL = {
    "whole": WHOLE,
    "joined": JOINED,
    "every": EVERY,
    "half": HALF,
    "drawn": DRAWN,
    "blocks": BLOCKS,
    "usual": USUAL,
    "few": FEW,
    "narrow": NARROW,
    "wide": WIDE,
    "section": SECTION,
}


@pytest.fixture(autouse=True)
def _threads():
    """Tests change how many threads there are."""
    count = torch.get_num_threads()
    yield
    torch.set_num_threads(count)


def make(codec_class, codec: Codec, site: int = 1):
    sizes = SPANS if codec in (JOINED, EVERY) else SIZES
    policy = SyncPolicy(codec=codec, order="model", seed=5)
    return codec_class(
        make_layout(table((f"{i}.w", (n,)) for i, n in enumerate(sizes)), policy, 1), 0, 0, site
    )


def seen_by_the_sample(n: int) -> torch.Tensor:
    """Positions of a section of n elements that threshold and passes are planned by."""
    out = np.empty(n // select.SAMPLED * LINE + LINE, np.uint32)
    places = np.arange(n, dtype=np.float32)
    found = []
    for at in range(0, n, RANGE):
        part = places[at : at + RANGE] + np.float32(1)
        part = part - np.float32(at)
        count = select.sample(part, FP32, np.float32(1), part, False, at // select.SAMPLED, out)
        found.append(out[:count].view(np.float32).astype(np.int64) - 1 + at)
    return torch.from_numpy(np.concatenate(found))


def random(n: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(n, generator=torch.Generator().manual_seed(seed))


def one_place(n: int) -> torch.Tensor:
    values = random(n) * 1e-3
    values[RANGE + 5 : RANGE + 5 + n // 50] += 10
    return values


def periodic(n: int) -> torch.Tensor:
    """The same 8,192 values again and again: each magnitude is tied hundreds of times."""
    return random(8192).repeat(n // 8192 + 1)[:n].clone()


def sample_sees_all(n: int) -> torch.Tensor:
    """Few large values, all of them in the sample: the first threshold is far too high."""
    values = random(n) * 1e-3
    values[seen_by_the_sample(n)] += 5
    return values


def sample_sees_none(n: int) -> torch.Tensor:
    """Zeros wherever the sample looks: the threshold is 0, so all are candidates."""
    values = random(n)
    values[seen_by_the_sample(n)] = 0
    return values


def almost_zeros(n: int) -> torch.Tensor:
    values = torch.zeros(n)
    at = torch.from_numpy(np.random.default_rng(1).integers(0, n, n // 100))
    values[at] = random(len(at))
    return values


def one_huge(n: int) -> torch.Tensor:
    values = random(n) * 1e-6
    values[n - 3] = -3e38
    return values


def ties_over_ranges(n: int) -> torch.Tensor:
    """Fewer above the tied magnitude than are kept, in the last range; the ties fill up from the first."""
    values = torch.where(random(n) < 0, -1.0, 1.0)
    values[n - 999 :] = 2.0
    return values


UPDATES = {
    "normal": random,
    "halves": lambda n: random(n).to(torch.bfloat16),
    "constant": lambda n: torch.full((n,), -0.1),
    "zeros": lambda n: -torch.zeros(n),
    **{f.__name__: f for f in (one_place, periodic, almost_zeros, one_huge, ties_over_ranges)},
    **{f.__name__: f for f in (sample_sees_all, sample_sees_none)},
}


def check(codec: Codec, values: torch.Tensor, e: torch.Tensor | None, counts=(1, 2, 3)) -> None:
    """Bytes and residual are the reference's on any number of threads."""
    truth = make(ReferenceCodec, codec)
    wanted = torch.zeros(truth.payload_bytes, dtype=torch.uint8)
    kept = None if e is None else e.clone()
    truth.encode(values, 0.3, kept, 2, wanted)
    coder = make(CpuCodec, codec)
    for count in counts:
        torch.set_num_threads(count)
        out, mine = torch.full_like(wanted, 0xA5), None if e is None else e.clone()
        coder.encode(values, 0.3, mine, 2, out)
        assert torch.equal(out[80:], wanted[80:])
        assert e is None or torch.equal(mine.view(torch.int32), kept.view(torch.int32))


@pytest.mark.parametrize("name", UPDATES)
def test_whole_sections_select_like_the_reference(name: str) -> None:
    values = UPDATES[name](SIZES[0])
    check(WHOLE, values, torch.zeros(SIZES[0]))


@pytest.mark.parametrize("name", ["normal", "ties_over_ranges", "sample_sees_all", "almost_zeros"])
def test_spans_select_like_the_reference(name: str) -> None:
    n = sum(SPANS)
    check(JOINED, UPDATES[name](n), random(n, 8) * 0.01)


@pytest.mark.parametrize("name", [name for name in ALL if name not in ("whole", "joined")])
def test_large_sections_of_other_kinds_are_the_reference_s(name: str) -> None:
    codec = ALL[name]
    n = make(ReferenceCodec, codec).numel
    check(codec, random(n, 1), random(n, 2) if isinstance(codec.residual, Feedback) else None, (3,))


def test_the_sample_misleads() -> None:
    """The updates that are made for it do what they say."""
    places = seen_by_the_sample(SIZES[0])
    assert len(places) == len(places.unique()) == (SIZES[0] // 8192 + 1) * 16
    n = int(WHOLE.select.ratio * SIZES[0])
    assert len(places) < n
    assert int((sample_sees_all(SIZES[0]).abs() > 1).sum()) == len(places)
    for codec in (JOINED, EVERY):
        assert len(make(CpuCodec, codec).sections[0].spans) == 3


@pytest.mark.parametrize("name", ALL)
def test_large_sums_at_odd_places(name: str) -> None:
    coder, truth = make(CpuCodec, ALL[name], 0), make(ReferenceCodec, ALL[name], 0)
    n = coder.numel
    opened, wanted = [], torch.zeros(n)
    for site in range(2):
        sender = make(CpuCodec, ALL[name], site)
        payload = torch.zeros(sender.payload_bytes, dtype=torch.uint8)
        sender.encode(random(n, site), 0.5, fuzz.residual_of(sender), 4, payload)
        sender.seal(payload, 4)
        opened.append(coder.open(payload, site, 4))
        wanted = wanted + truth.decode(payload, site, 4).values
    room = torch.full((n + 40,), 7.0)
    for at, count in ((0, 1), (1, 2), (7, 3), (16, 2), (29, 2)):
        torch.set_num_threads(count)
        room.fill_(7.0)
        coder.decode_sum(opened, room[at : at + n])
        assert torch.equal(room[at : at + n], wanted)
        assert torch.all(room[:at] == 7)
        assert torch.all(room[at + n :] == 7)


@pytest.mark.parametrize("name", [name for name in ALL if name != "half"])
def test_a_late_element_that_is_not_finite_restores_all_ranges(name: str) -> None:
    coder = make(CpuCodec, ALL[name])
    n = coder.numel
    e = random(n, 3)
    out = torch.full((coder.payload_bytes,), 0xFF, dtype=torch.uint8)
    for at, bad, count in ((n - 1, "nan", 1), (n - 1, "inf", 2), (RANGE + 70, "-inf", 3), (0, "nan", 2)):
        torch.set_num_threads(count)
        values, before = random(n, 4), e.clone()
        values[at] = float(bad)
        with pytest.raises(NotFiniteError):
            coder.encode(values, 0.7, e, 2, out)
        # Of three normal numbers that were added and taken off again; a scale may be of a few more.
        assert torch.allclose(e, before, rtol=0, atol=2.0**-19)
        e.copy_(before)
    values = random(n, 4)
    values[n - 2], e[n - 2] = 3e38, 3e38
    before = e.clone()
    with pytest.raises(NotFiniteError):
        coder.encode(values, 1.0, e, 2, out)
    assert e[n - 2] == before[n - 2]
    e[n - 2] = before[n - 2] = 0
    assert torch.allclose(e, before, rtol=0, atol=2.0**-19)
