"""Codecs, tensors and inputs that the tests of the Triton codec share."""

from collections.abc import Iterator

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
    load_policy,
    make_layout,
    preset_names,
)
from geosim.policy.layout import Layout

# Several tiles, a partial block and group, small tensors between large ones, sizes that align nothing.
SHAPES = [("a", (9001,)), ("b", (40,)), ("c", (70, 65)), ("d", (7,)), ("e", (1,))]
SMALL = 400.0


def preset_codecs() -> dict[str, Codec]:
    """The presets' codecs, with small tensors that fit these shapes; each once."""
    out: dict[str, Codec] = {}
    for name in preset_names():
        codec = load_policy(name).codec
        if codec.small_below_bytes:
            codec = codec.model_copy(update={"small_below_bytes": SMALL})
        if codec not in out.values():
            out[name] = codec
    return out


# Each way to select with some way to write, so that every kernel and every format occurs.
OTHERS = {
    "piece-fp32": Codec(select=TopK(ratio=0.01), quantize=Cast(kind="fp32")),
    "piece-e3m0-decay": Codec(
        select=TopK(ratio=0.02), quantize=E3M0(rounding="stochastic"), residual=Feedback(decay=0.9)
    ),
    "fragment-sign": Codec(
        select=TopK(ratio=0.05, scope="fragment"),
        quantize=Sign(group="section"),
        residual=Feedback(),
        small_below_bytes=SMALL,
        small_dtype="bf16",
    ),
    "fragment-all": Codec(
        select=TopK(ratio=1.0, scope="fragment"),
        quantize=Integer(kind="int4", group=100),
        residual=Feedback(decay=0.9),
        small_below_bytes=SMALL,
    ),
    "block-int4": Codec(
        select=TopK(ratio=0.1, scope=100), quantize=Integer(kind="int4", group=9), residual=NoResidual()
    ),
    "block-fp16": Codec(select=TopK(ratio=0.3, scope=16), quantize=Cast(kind="fp16"), residual=Feedback()),
    "large-block-int8": Codec(
        select=TopK(ratio=0.01, scope=8200), quantize=Integer(group="section"), residual=Feedback(decay=0.9)
    ),
    "drawn-piece": Codec(select=RandomK(ratio=0.1), quantize=Integer(kind="int2"), residual=Feedback()),
    "drawn-fragment": Codec(
        select=RandomK(ratio=0.05, scope="fragment"),
        quantize=Cast(kind="bf16"),
        residual=Feedback(decay=0.9),
        small_below_bytes=SMALL,
    ),
    "drawn-block": Codec(
        select=RandomK(ratio=0.2, scope=64),
        quantize=Integer(rounding="stochastic"),
        residual=Feedback(decay=0.9),
    ),
    "dense-sign": Codec(select=Dense(), quantize=Sign(group=8), residual=Feedback()),
    "dense-sign-wide": Codec(select=Dense(), quantize=Sign(group=5000), residual=Feedback(decay=0.9)),
    "dense-int8-section": Codec(select=Dense(), quantize=Integer(group="section"), residual=NoResidual()),
    "dense-int4-stochastic": Codec(
        select=Dense(),
        quantize=Integer(kind="int4", group=4096, rounding="stochastic"),
        residual=Feedback(decay=0.9),
        small_below_bytes=SMALL,
        small_dtype="fp16",
    ),
    "dense-e3m0-odd": Codec(select=Dense(), quantize=E3M0(group=100, rounding="stochastic")),
    "dense-int2": Codec(select=Dense(), quantize=Integer(kind="int2", group=64, rounding="stochastic")),
}


def layout_of(
    codec: Codec, shapes: list[tuple[str, tuple[int, ...]]] | None = None, shards: int = 1
) -> Layout:
    """The layout of a codec for a model of these shapes."""
    return make_layout(table(shapes or SHAPES), SyncPolicy(codec=codec, seed=9), shards)


def edge_inputs(numel: int) -> Iterator[tuple[str, torch.Tensor]]:
    """Named updates [numel] that are easy to get wrong."""
    noise = torch.randn(numel, generator=torch.Generator().manual_seed(1))
    rare = torch.rand(numel, generator=torch.Generator().manual_seed(2)) < 0.005
    yield "zeros", torch.zeros(numel)
    yield "negative zeros", -torch.zeros(numel)
    yield "equal", torch.full((numel,), -0.3)
    yield "mostly zero", torch.where(rare, noise, torch.zeros(numel))
    yield "ties", torch.round(noise * 2) / 2
    yield "denormal", noise * 1e-40
    yield "near the smallest scale", noise * 2.0**-120
    yield "huge", noise.clamp(-1, 1) * 3e38
    yield "beyond fp16", noise * 1e5
    yield "largest", torch.where(noise > 0, 1.0, -1.0) * torch.finfo(torch.float32).max
    yield "ties between levels", torch.round(noise * 3).clamp(-7, 7) * 0.5
