"""Layouts and codecs that every codec is tested on."""

import itertools

import pytest
import torch

from geosim.params import table
from geosim.policy import (
    E3M0,
    Cast,
    Codec,
    Dense,
    Feedback,
    Integer,
    NoResidual,
    RandomK,
    Sign,
    SyncPolicy,
    TopK,
    make_layout,
)
from runtime.codec.cpu import CpuCodec
from runtime.codec.reference import ReferenceCodec

TABLE = table(
    [
        ("0.w", (61, 33)),
        ("0.b", (33,)),
        ("1.w", (64, 16)),
        ("1.b", (16,)),
        ("2.w", (40, 41)),
        ("norm", (7,)),
        ("one", (1,)),
    ]
)
SELECTS = [
    Dense(),
    TopK(ratio=0.01),
    TopK(ratio=0.3),
    TopK(ratio=0.05, scope="fragment"),
    TopK(ratio=0.1, scope=64),
    RandomK(ratio=0.1),
    RandomK(ratio=0.1, scope="fragment"),
    RandomK(ratio=0.2, scope=32),
]
QUANTIZES = [
    Cast(kind="fp32"),
    Cast(kind="bf16"),
    Cast(kind="fp16"),
    Integer(group=16),
    Integer(group="section"),
    Integer(kind="int4", group=64),
    Integer(kind="int2", group=64),
    Integer(rounding="stochastic"),
    E3M0(),
    E3M0(rounding="stochastic"),
    Sign(group=8),
]


def _codecs() -> list[Codec]:
    smalls = itertools.cycle([(0.0, "fp32"), (150.0, "fp16"), (150.0, "bf16"), (5000.0, "fp32")])
    out = []
    for (select, quantize), (below, dtype) in zip(
        itertools.product(SELECTS, QUANTIZES), smalls, strict=False
    ):
        residual = NoResidual() if isinstance(select, Dense) else Feedback()
        out.append(
            Codec(
                select=select,
                quantize=quantize,
                residual=residual,
                small_below_bytes=below,
                small_dtype=dtype,
            )
        )
    return out


CODECS = _codecs()


@pytest.fixture(
    params=CODECS, ids=lambda c: f"{c.select.kind}-{getattr(c.select, 'scope', '')}-{c.quantize.kind}"
)
def codec(request) -> Codec:
    return request.param


@pytest.fixture(params=[ReferenceCodec, CpuCodec], ids=lambda c: c.name)
def codec_class(request):
    """Every codec passes the same suite."""
    return request.param


@pytest.fixture
def build():
    """build(codec_class, codec, ...) -> a FragmentCodec on the shared table."""

    def make(
        codec_class,
        codec: Codec,
        *,
        site: int = 1,
        shards: int = 2,
        shard: int = 1,
        order: str = "model",
        seed=9,
    ):
        policy = SyncPolicy(codec=codec, order=order, seed=seed)
        return codec_class(make_layout(TABLE, policy, shards), 0, shard, site)

    return make


@pytest.fixture
def update():
    """update(numel) -> reproducible fp32 values."""

    def make(numel: int, seed: int = 0) -> torch.Tensor:
        return torch.randn(numel, generator=torch.Generator().manual_seed(seed))

    return make
