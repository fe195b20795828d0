"""The worked example of report A (papers' claim A6) on every backend."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from geosim.policy import Codec, Feedback, Integer, TopK
from geosim.policy.codec import section_bytes
from geosim.policy.maths import Key, Section, compress, contribution, decompress, residual

SECTION = Section(((0, 10_000),), TopK(ratio=0.05), Integer(group="section"))


def one_round(layer, e):
    u = contribution(layer, 1.0, e)
    part = compress(u, SECTION, Key())
    return u, part, residual(u, decompress(part, SECTION))


@pytest.mark.parametrize(
    ("convert", "step"),
    [(np.asarray, one_round), (torch.from_numpy, one_round), (jnp.asarray, jax.jit(one_round))],
    ids=["numpy", "torch", "jax"],
)
def test_two_rounds_of_the_worked_example(convert, step) -> None:
    generator = torch.Generator().manual_seed(42)
    layers = [(torch.randn(100, 100, generator=generator) * 0.1).flatten().numpy() for _ in range(2)]
    e = convert(np.zeros(10_000, np.float32))
    wants = [
        (0.003323531709611416, 2510012, 241, 8.562601),
        (0.003959358669817448, 2575136, 483, 11.180985),
    ]
    for layer, (scale, positions, total, norm) in zip(layers, wants, strict=True):
        u, part, e = step(convert(layer), e)
        indices, q = np.asarray(part.indices), np.asarray(part.q)
        assert float(part.scales[0]) == scale
        assert len(indices) == 500
        assert int(indices.sum()) == positions
        assert int(q.astype(int).sum()) == total
        assert float(np.linalg.norm(np.asarray(e))) == pytest.approx(norm, abs=1e-5)
        if layer is layers[0]:
            order = np.argsort(-np.abs(np.asarray(u)[indices]), kind="stable")
            assert q[order[:5]].tolist() == [127, -115, -109, -104, 104]


def test_bytes_of_the_worked_example() -> None:
    """500 positions in 4 + 2 bits, one scale, 500 values: 895 bytes, the report's pairs take 2504."""
    codec = Codec(select=TopK(ratio=0.05), quantize=Integer(group="section"), residual=Feedback())
    assert section_bytes(10_000, codec) == 250 + (500 + 9_999 // 16 + 7) // 8 + 4 + 500
