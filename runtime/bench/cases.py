"""The codecs that are measured, what their payloads hold, and inputs that could trip them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from geosim.params import table as param_table
from geosim.policy import load_policy, make_layout
from geosim.policy.codec import HEADER_BYTES, Codec, Feedback, kept_in_section
from geosim.policy.layout import Layout
from geosim.policy.quantize import SCALE_BYTES, Cast, Integer
from geosim.policy.select import Dense, RandomK, TopK, kept

BLOCK, GROUP, RATIO = 4096, 64, 0.01


@dataclass(frozen=True)
class Case:
    """A codec.

    Attributes:
        key: its name in results.
        title: its name for people.
        codec: what it is.
        plain_width: elements a row of the plain torch pipeline it is held against, 0 for the whole tensor;
            None: it is not.
        degenerate: whether it is also given `DEGENERATE`.
    """

    key: str
    title: str
    codec: Codec
    plain_width: int | None = None
    degenerate: bool = False

    def layout(self, numel: int) -> Layout:
        """Of one tensor of so many elements that is one piece."""
        policy = load_policy("hierarchical-efsgd", {"shards": 1}).model_copy(update={"codec": self.codec})
        return make_layout(param_table([("weight", (numel,))]), policy, 1)

    def kept(self, numel: int) -> int:
        """Values that travel of so many."""
        return kept_in_section(self.codec.select, numel)


def _top(scope: str | int, kind: str) -> Codec:
    select = TopK.model_validate({"ratio": RATIO, "scope": scope})
    quantize = Integer.model_validate({"kind": kind, "group": GROUP})
    return Codec(select=select, quantize=quantize, residual=Feedback())


_DRAWN = Codec(
    select=RandomK(ratio=RATIO, scope="piece"),
    quantize=Integer(kind="int8", group=GROUP),
    residual=Feedback(),
)

CASES = (
    Case("piece-int8", "top 1 % of the piece, int8", _top("piece", "int8"), 0, True),
    Case("block-int8", f"top 1 % of blocks of {BLOCK:,}, int8", _top(BLOCK, "int8"), BLOCK, True),
    Case("piece-int4", "top 1 % of the piece, int4", _top("piece", "int4")),
    Case("block-int4", f"top 1 % of blocks of {BLOCK:,}, int4", _top(BLOCK, "int4")),
    Case("sparse-loco", "top 64 of blocks of 4,096, int2, decay", load_policy("sparse-loco").codec),
    Case("random-int8", "random 1 % of the piece, int8", _DRAWN),
    Case("dense-int8", "dense int8, group 256, no residual", Codec(quantize=Integer(kind="int8", group=256))),
    Case("dense-bf16", "dense bf16, no residual", Codec(quantize=Cast(kind="bf16"))),
)

# What `update` is filled with; the gradient is at hand.
DEGENERATE: dict[str, Callable[[Tensor, Tensor], object]] = {
    "zeros": lambda update, gradient: update.zero_(),
    "constant": lambda update, gradient: update.fill_(0.01),
    "mostly_zeros": lambda update, gradient: update.zero_()[::100].copy_(gradient[::100]),
    "one_huge": lambda update, gradient: update.copy_(gradient)[update.numel() // 2].fill_(1e30),
    "denormals": lambda update, gradient: torch.mul(gradient, 2.0**-127 / gradient.abs().max(), out=update),
}


def sizes(case: Case, numel: int) -> dict[str, float]:
    """Bytes a value that travels, header and scales included, and bits a position beside their bound.

    The bound is log2 of the number of sets of positions that the selection can choose, over their number.
    """
    count, quantize = case.kept(numel), case.codec.quantize
    payload = case.layout(numel).payload_bytes(0, 0)
    values = SCALE_BYTES * quantize.scale_count(count) + (count * quantize.bits + 7) // 8
    positions = payload - HEADER_BYTES - values
    return {
        "payload_bytes": payload,
        "kept_values": count,
        "bytes_per_kept_value": payload / count,
        "position_bits_per_kept_value": 8 * positions / count,
        "position_bound_bits_per_kept_value": _bound_bits(case.codec.select, numel) / count,
    }


def _bound_bits(select: Dense | TopK | RandomK, numel: int) -> float:
    """0 where positions do not travel."""
    if not isinstance(select, TopK):
        return 0.0
    block = select.scope if isinstance(select.scope, int) else numel
    whole, rest = divmod(numel, block)
    return whole * log2_choose(block, kept(block, select.ratio)) + log2_choose(rest, kept(rest, select.ratio))


def log2_choose(n: int, k: int) -> float:
    """log2 of the number of sets of k out of n."""
    return (math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)) / math.log(2)
