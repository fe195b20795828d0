"""A byte-level GPT in plain torch: 256 tokens, pre-norm, causal attention, tied embedding.

Parameter names carry the layer (``blocks.3.attn.qkv.weight``), so a layout can be read off
``named_parameters()``. The head is the token embedding itself and appears there once.

In shapes, B is the number of sequences, T their length, D ``d_model`` and H ``heads``.
"""

import math
from dataclasses import dataclass
from difflib import get_close_matches

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from geosim.errors import UsageError

VOCABULARY = 256


@dataclass(frozen=True)
class GPTConfig:
    """The shape of a GPT; `sequence` is the longest input it has positions for."""

    layers: int
    d_model: int
    heads: int
    sequence: int

    def __post_init__(self) -> None:
        for name in ("layers", "d_model", "heads", "sequence"):
            if getattr(self, name) < 1:
                raise UsageError(f"{name} is {getattr(self, name)}: give at least 1")
        if self.d_model % self.heads:
            raise UsageError(
                f"d_model {self.d_model} does not divide into {self.heads} heads: give a multiple of heads"
            )


PRESETS = {
    "byte-gpt-tiny": GPTConfig(layers=4, d_model=64, heads=4, sequence=128),
    "byte-gpt-3m": GPTConfig(layers=4, d_model=256, heads=4, sequence=256),
    "byte-gpt-19m": GPTConfig(layers=6, d_model=512, heads=8, sequence=512),
}


class Attention(nn.Module):
    """Causal self-attention, [B, T, D] -> [B, T, D]."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.heads = config.heads
        self.qkv = nn.Linear(config.d_model, 3 * config.d_model, bias=False)
        self.out = nn.Linear(config.d_model, config.d_model, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        heads = self.qkv(x).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = heads.permute(2, 0, 3, 1, 4)  # each [B, H, T, D / H]
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        out: Tensor = self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return out


class MLP(nn.Module):
    """Two layers with a GELU between, four times as wide inside, [B, T, D] -> [B, T, D]."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.up = nn.Linear(config.d_model, 4 * config.d_model, bias=False)
        self.down = nn.Linear(4 * config.d_model, config.d_model, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.down(F.gelu(self.up(x)))
        return out


class Block(nn.Module):
    """One pre-norm transformer layer, [B, T, D] -> [B, T, D]."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.attn_norm = nn.LayerNorm(config.d_model, bias=False)
        self.attn = Attention(config)
        self.mlp_norm = nn.LayerNorm(config.d_model, bias=False)
        self.mlp = MLP(config)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.attn_norm(x))
        out: Tensor = x + self.mlp(self.mlp_norm(x))
        return out


class GPT(nn.Module):
    """The model; make one with `build` or `from_config`, which also set its weights."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.config = config
        self.token = nn.Embedding(VOCABULARY, config.d_model)
        self.position = nn.Embedding(config.sequence, config.d_model)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.norm = nn.LayerNorm(config.d_model, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits [B, T, 256] for tokens [B, T] (int64)."""
        length = tokens.shape[1]
        if length > self.config.sequence:
            raise UsageError(
                f"sequences of {length} bytes are longer than the model's {self.config.sequence}: "
                "shorten them or choose a model with more positions"
            )
        x = self.token(tokens) + self.position.weight[:length]
        for block in self.blocks:
            x = block(x)
        return F.linear(self.norm(x), self.token.weight)

    def loss(self, tokens: Tensor, targets: Tensor) -> Tensor:
        """Mean cross entropy in nats a byte, a float32 scalar; both arguments [B, T] (int64)."""
        logits = self(tokens).float()
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def build(name: str, seed: int) -> GPT:
    """The preset `name`, its weights a function of `seed` alone."""
    if name not in PRESETS:
        choices = get_close_matches(name, PRESETS, n=2) or list(PRESETS)
        raise UsageError(f"unknown model {name!r}: choose {' or '.join(choices)}")
    return from_config(PRESETS[name], seed)


def from_config(config: GPTConfig, seed: int) -> GPT:
    """A float32 model on the CPU, its weights a function of `config` and `seed` alone.

    All sites get the same bits. Weights are uniform rather than normal because a uniform draw
    needs no logarithm or cosine, whose last bit depends on the processor's instruction set. The
    global random state is neither read nor changed.

    A matrix with D columns has variance 1 / D; one that writes to the residual stream has
    1 / (2 layers) of that, so that the stream's scale does not grow with depth, and an embedding a
    quarter of it, so that the tied head starts near chance.
    """
    with torch.device("meta"):
        model = GPT(config)
    model.to_empty(device="cpu")
    generator = torch.Generator().manual_seed(seed % 2**64)
    depth_scale = 1 / math.sqrt(2 * config.layers)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.ndim == 1:
                weight.fill_(1.0)
                continue
            std = 1 / math.sqrt(weight.shape[1])
            if name.startswith(("token", "position")):
                std /= 2
            elif name.endswith(("attn.out.weight", "mlp.down.weight")):
                std *= depth_scale
            unit = torch.rand(weight.shape, generator=generator, dtype=torch.float32)
            weight.copy_((unit - 0.5) * (std * math.sqrt(12)))
    return model
