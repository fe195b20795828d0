"""What travels: sizes, ties, blocks, and random-k's draw."""

import jax.numpy as jnp
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from geosim.policy.codec import kept_in_section
from geosim.policy.maths import Key
from geosim.policy.maths.select import select
from geosim.policy.select import Dense, RandomK, TopK, kept


def naive(u: np.ndarray, k: int) -> list[int]:
    """Sort by falling magnitude, then by index, and take the first k."""
    return sorted(sorted(range(len(u)), key=lambda i: (-abs(u[i]), i))[:k])


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.sampled_from([0.0, -0.0, 1.0, -1.0, 1e-40, -2e-40, 3.5, -3.5, 3e38]), min_size=1, max_size=150
    ),
    st.floats(0.01, 1),
    st.sampled_from(["piece", "fragment", 16, 64]),
)
def test_topk_is_the_naive_sort(values: list[float], ratio: float, scope: str | int) -> None:
    u = np.array(values, np.float32)
    block = scope if isinstance(scope, int) else len(u)
    want = [
        start + i
        for start in range(0, len(u), block)
        for i in naive(u[start : start + block], kept(len(u[start : start + block]), ratio))
    ]
    how = TopK(ratio=ratio, scope=scope)
    for convert in (np.asarray, torch.from_numpy):
        got = select(convert(u), how, Key())
        got = range(len(u)) if got is None else np.asarray(got).tolist()
        assert list(got) == want


@pytest.mark.parametrize(
    "convert", [np.asarray, torch.from_numpy, jnp.asarray], ids=["numpy", "torch", "jax"]
)
def test_equal_magnitudes_go_to_the_lower_index(convert) -> None:
    u = np.array([1, -2, 2, 0, -2, 2, 1], np.float32)
    assert np.asarray(select(convert(u), TopK(ratio=3 / 7), Key())).tolist() == [1, 2, 4]
    assert np.asarray(select(convert(u * 0), TopK(ratio=2 / 7), Key())).tolist() == [0, 1]
    tiny = np.array([1e-44, 3e-44, -2e-44], np.float32)
    assert np.asarray(select(convert(tiny), TopK(ratio=0.3), Key())).tolist() == [1]


@pytest.mark.parametrize("how", [Dense(), TopK(ratio=1.0), RandomK(ratio=1.0), TopK(ratio=1.0, scope=16)])
def test_all_is_none(how) -> None:
    assert select(np.ones(40, np.float32), how, Key()) is None


@pytest.mark.parametrize("numel", [1, 15, 16, 17, 100, 1000])
@pytest.mark.parametrize("how", [RandomK(ratio=0.1), RandomK(ratio=0.3, scope=16), TopK(ratio=0.1, scope=64)])
def test_indices_ascend_and_are_as_many_as_promised(numel: int, how) -> None:
    u = np.random.default_rng(numel).standard_normal(numel).astype(np.float32)
    got = select(u, how, Key())
    if got is not None:
        assert len(got) == kept_in_section(how, numel)
        assert np.all(np.diff(got) > 0)
        assert got[0] >= 0
        assert got[-1] < numel
        if isinstance(how.scope, int):
            held = np.bincount(got // how.scope)
            assert held[: numel // how.scope].tolist() == [kept(how.scope, how.ratio)] * (numel // how.scope)


def test_random_positions_are_uniform_and_new_each_round() -> None:
    u, how = np.zeros(200, np.float32), RandomK(ratio=0.1)
    draws = [select(u, how, Key(seed=3, round=r)) for r in range(2000)]
    counts = np.bincount(np.concatenate(draws), minlength=200)
    # Each count is binomial(2000, 0.1): mean 200, sigma 13.4.
    assert np.abs(counts - 200).max() < 5 * 13.4
    assert 0.8 < counts.var() / (2000 * 0.1 * 0.9) < 1.25
    assert np.array_equal(draws[5], select(u, how, Key(seed=3, round=5, site=4)))
