"""Every format against its definition, an independent oracle, and the edges of fp32."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from geosim.policy.maths import Key
from geosim.policy.maths.quantize import FP32_MAX, TINY, dequantize, quantize, scale_limit
from geosim.policy.quantize import E3M0, Cast, Integer, Sign

FORMATS = [
    *(Cast(kind=k) for k in ("fp32", "bf16", "fp16")),
    *(
        Integer(kind=k, group=g, rounding=r)
        for k in ("int8", "int4", "int2")
        for g in (8, "section")
        for r in ("nearest", "stochastic")
    ),
    E3M0(group=8),
    E3M0(group=8, rounding="stochastic"),
    Sign(group=8),
    Sign(group="section"),
]
EDGES = {
    "empty": [],
    "one": [0.7],
    "zero": [0.0] * 20,
    "minus zero": [-0.0],
    "equal": [0.3] * 20,
    "denormal": [1e-40, -3e-45] * 9,
    "tiny": [1e-36, -1e-37] * 9,
    "smallest scale": [TINY, -TINY * 127, TINY * 130] * 5,
    "largest": [FP32_MAX, -FP32_MAX] * 9,
    "huge": [3e38, 1.0, -3e38, 1e30] * 5,
    "one huge": [3.4e38] + [1e-30] * 30,
    "beyond half": [7e4, -65520.0, 65504.0],
}


def values(name: str) -> np.ndarray:
    return np.array(EDGES[name], np.float32)


def ids(how) -> str:
    return "-".join(str(v) for v in how.to_dict().values()) if hasattr(how, "to_dict") else str(how)


@pytest.mark.parametrize("edge", EDGES)
@pytest.mark.parametrize("how", FORMATS, ids=ids)
def test_edges_stay_finite(how, edge: str) -> None:
    v = values(edge)
    with np.errstate(all="raise", under="ignore"):
        q, scales = quantize(v, how, Key())
        c = dequantize(q, scales, how)
    assert c.shape == v.shape
    assert c.dtype == np.float32
    assert np.isfinite(c).all()
    assert np.isfinite(v - c).all()
    if scales is not None:
        assert len(scales) == how.scale_count(len(v))
        assert np.all((scales == 0) | ((scales >= TINY) & (scales <= scale_limit(how))))
    if not np.any(v) and v.size:
        assert not np.any(c)


def oracle(v: float, scale: float, kind: str) -> float:
    """The nearest level by exhaustive search in float64; ties to the even level number."""
    levels = {
        "int8": [(abs(i), float(i)) for i in range(-127, 128)],
        "int4": [(abs(i), float(i)) for i in range(-7, 8)],
        "int2": [(i, i + 0.5) for i in range(-2, 2)],
        "e3m0": [(0, 0.0)] + [(c, s * 2.0 ** (c - 7)) for c in range(1, 8) for s in (1, -1)],
    }[kind]
    return min(levels, key=lambda level: (abs(v / scale - level[1]), level[0] % 2))[1]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(-64, 64), min_size=1, max_size=30),
    st.sampled_from(["int8", "int4", "int2", "e3m0"]),
    st.sampled_from([1.0, 0.3, 1e-20]),
)
def test_nearest_level_and_ties_to_even(steps: list[int], kind: str, unit: float) -> None:
    v = (np.array(steps) * np.float32(unit)).astype(np.float32)
    how = E3M0(group=64) if kind == "e3m0" else Integer(kind=kind, group=64)
    q, scales = quantize(v, how, Key())
    if scales[0] == 0:
        assert not np.any(v)
        return
    ratios = (v / scales[0]).astype(np.float64)
    want = [oracle(float(r), 1.0, kind) for r in ratios]
    np.testing.assert_array_equal(dequantize(q, scales, how), np.array(want, np.float32) * scales[0])


def test_known_codes() -> None:
    v = np.array([1, -1, 0.75, 0.74, -0.375, 2**-6, 2**-7, -(2**-7), 0.008], np.float32)
    assert quantize(v, E3M0(), Key())[0].tolist() == [7, 15, 6, 6, 14, 1, 0, 0, 1]
    v = np.array([2, -2, 0.4, -0.4, 1.1, 0, -0.0], np.float32)
    q, scales = quantize(v, Integer(kind="int2"), Key())
    assert scales.tolist() == [1.0]
    assert q.tolist() == [1, -2, 0, -1, 1, 0, 0]
    assert dequantize(q, scales, Integer(kind="int2")).tolist() == [1.5, -1.5, 0.5, -0.5, 1.5, 0.5, 0.5]
    q, scales = quantize(np.array([3, -1, 0, -4], np.float32), Sign(), Key())
    assert q.tolist() == [0, 1, 0, 1]
    assert scales.tolist() == [2.0]


@pytest.mark.parametrize("kind", ["bf16", "fp16"])
def test_casts_are_those_of_torch_and_saturate(kind: str) -> None:
    rng = np.random.default_rng(0)
    v = rng.integers(0, 1 << 32, 200_000, dtype=np.uint32).view(np.float32)
    v = v[np.isfinite(v)]
    dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}[kind]
    q, _ = quantize(v, Cast(kind=kind), Key())
    want = torch.from_numpy(v).to(dtype).float().numpy()
    most = torch.finfo(dtype).max
    np.testing.assert_array_equal(q, np.clip(want, -most, most))


def test_scales_belong_to_groups_in_order_and_nothing_clips() -> None:
    rng = np.random.default_rng(0)
    v = rng.standard_normal(100_003).astype(np.float32)
    for kind, level in (("int8", 127), ("int4", 7)):
        how = Integer(kind=kind, group=8)
        q, scales = quantize(v, how, Key())
        peaks = np.maximum.reduceat(np.abs(v), np.arange(0, len(v), 8))
        assert np.all(peaks / scales <= level)
        assert np.all(scales <= np.nextafter(peaks / np.float32(level), np.float32(9)))
        assert np.abs(v - dequantize(q, scales, how)).max() <= scales.max() * 0.5001
        assert np.all(np.abs(v - dequantize(q, scales, how)) <= 0.5001 * np.repeat(scales, 8)[: len(v)])


@pytest.mark.parametrize("kind", ["int8", "int4", "int2", "e3m0"])
def test_stochastic_rounding_has_the_right_mean(kind: str) -> None:
    stochastic = {"rounding": "stochastic", "group": 1 << 20}
    how = E3M0(**stochastic) if kind == "e3m0" else Integer(kind=kind, **stochastic)
    for x in (0.31, -0.62, 0.001):
        v = np.full(60_001, x, np.float32)
        v[0] = 1
        c = dequantize(*quantize(v, how, Key(seed=5)), how)[1:]
        assert len(np.unique(c)) <= 2
        assert c.mean() == pytest.approx(x, abs=5 * c.std() / np.sqrt(60_000) + 1e-6)


def test_sign_scale_is_the_mean_of_its_own_group_only() -> None:
    v = np.array([1, 2, 3, 4, 5, 6, 7, 8, 9, 10], np.float32)
    assert quantize(v, Sign(group=8), Key())[1].tolist() == [4.5, 9.5]
