"""Laws: nothing is lost, everything decodes, outer steps are torch's, skipped rounds leave no trace."""

import jax.numpy as jnp
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from geosim.params import table
from geosim.policy import (
    E3M0,
    Cast,
    Codec,
    Delayed,
    Dense,
    Eager,
    Feedback,
    Integer,
    OuterMomentum,
    OuterSGD,
    RandomK,
    Sign,
    SyncPolicy,
    TopK,
    make_layout,
)
from geosim.policy.maths import (
    Key,
    accumulate,
    aggregate,
    applied,
    compress_fragment,
    contribution,
    decompress_fragment,
    is_finite,
    make_sections,
    mix,
    momentum_of,
    outer_step,
    residual,
    residual_after,
    sum_unless,
    window_mean,
)

TABLE = table([("0.w", (37, 11)), ("0.b", (11,)), ("1.w", (64, 8)), ("1.b", (9,)), ("norm", (1,))])
SELECTS = [
    Dense(),
    TopK(ratio=0.1),
    TopK(ratio=0.05, scope="fragment"),
    TopK(ratio=0.1, scope=16),
    RandomK(ratio=0.2),
    RandomK(ratio=0.2, scope="fragment"),
]
QUANTIZES = [
    Cast(kind="fp32"),
    Cast(kind="bf16"),
    Cast(kind="fp16"),
    Integer(group=64),
    Integer(kind="int4", group="section"),
    Integer(kind="int2", group=8),
    Integer(rounding="stochastic"),
    E3M0(),
    Sign(),
]
codecs = st.builds(
    Codec,
    select=st.sampled_from(SELECTS),
    quantize=st.sampled_from(QUANTIZES),
    residual=st.just(Feedback()),
    small_below_bytes=st.sampled_from([0.0, 100.0]),
    small_dtype=st.sampled_from(["fp32", "bf16", "fp16"]),
)


def sections_of(codec: Codec, order: str = "model"):
    layout = make_layout(TABLE, SyncPolicy(codec=codec, order=order), shards=1)
    pieces = layout.pieces(0, 0)
    return make_sections(pieces, codec), sum(p.numel for p in pieces)


@settings(max_examples=25, deadline=None)
@given(
    codecs,
    st.integers(1, 4),
    st.integers(1, 6),
    st.integers(0, 1000),
    st.sampled_from(["model", "largest-first"]),
)
def test_what_is_applied_and_what_is_kept_is_all_there_was(codec, sites, windows, seed, order) -> None:
    """sum_t g + sum_m e_m = sum_t sum_m a_m G_m, also when the weights change from window to window."""
    rng = np.random.default_rng(seed)
    sections, n = sections_of(codec, order)
    e = [np.zeros(n, np.float32) for _ in range(sites)]
    total, wanted, size = np.zeros(n), np.zeros(n), np.zeros(n)
    for t in range(windows):
        weights = rng.dirichlet(np.ones(sites)).astype(np.float32)
        cs = []
        for m in range(sites):
            g = rng.standard_normal(n).astype(np.float32)
            u = contribution(g, weights[m], e[m])
            c = decompress_fragment(compress_fragment(u, sections, Key(seed=seed, round=t, site=m)), sections)
            # decode(encode(u)) + residual is u to one rounding of each.
            e[m] = residual(u, c)
            assert np.all(np.abs(c.astype(np.float64) + e[m] - u) <= np.abs(e[m]) * 2**-24 + 1e-45)
            wanted += np.float64(weights[m]) * g
            size += np.abs(u) + np.abs(c) + np.abs(e[m])
            cs.append(c)
        total += aggregate(cs)
    np.testing.assert_array_less(np.abs(total + sum(e) - wanted), size * (windows + sites) * 2**-22 + 1e-30)


def test_dense_fp32_keeps_nothing_back() -> None:
    sections, n = sections_of(Codec(residual=Feedback()))
    u = np.random.default_rng(0).standard_normal(n).astype(np.float32)
    c = decompress_fragment(compress_fragment(u, sections, Key()), sections)
    np.testing.assert_array_equal(residual(u, c), np.zeros(n))


def test_a_residual_decays() -> None:
    u, c = np.float32([3.0, 1.0]), np.float32([1.0, 1.0])
    assert residual(u, c, 0.75).tolist() == [1.5, 0.0]
    assert np.asarray(residual(jnp.asarray(u), jnp.asarray(c), jnp.float32(0.75))).tolist() == [1.5, 0.0]


def test_scope_fragment_is_one_section_of_the_coded_pieces_then_the_plain_ones() -> None:
    sections, n = sections_of(Codec(select=TopK(scope="fragment"), small_below_bytes=100.0))
    assert [s.spans for s in sections] == [
        ((0, 407), (418, 930)),
        ((407, 418),),
        ((930, 939),),
        ((939, 940),),
    ]
    u = np.arange(n, dtype=np.float32) + 1
    part = compress_fragment(u, sections, Key())
    c = decompress_fragment(part, sections)
    assert set(np.flatnonzero(c)) == {*range(407, 418), *range(921, 940)}
    np.testing.assert_array_equal(c[c != 0], u[c != 0])


@pytest.mark.parametrize(
    "convert", [np.asarray, torch.from_numpy, jnp.asarray], ids=["numpy", "torch", "jax"]
)
@pytest.mark.parametrize("nesterov", [False, True])
def test_outer_momentum_is_torch_sgd(convert, nesterov: bool) -> None:
    rng = np.random.default_rng(0)
    start = rng.standard_normal(50).astype(np.float32)
    parameter = torch.nn.Parameter(torch.from_numpy(start.copy()))
    optimizer = torch.optim.SGD([parameter], lr=0.7, momentum=0.9, nesterov=nesterov)
    outer = OuterMomentum(lr=0.7, momentum=0.9, nesterov=nesterov)
    theta, v = convert(start), convert(start * 0)
    for _ in range(6):
        d = rng.standard_normal(50).astype(np.float32)
        parameter.grad = torch.from_numpy(d.copy())
        optimizer.step()
        theta, v = outer_step(outer, theta, convert(d), v)
    np.testing.assert_allclose(np.asarray(theta), parameter.detach().numpy(), rtol=2e-6, atol=2e-6)


def test_plain_outer_sgd_of_rate_one_is_averaging() -> None:
    rng = np.random.default_rng(0)
    start = rng.standard_normal(20).astype(np.float32)
    sites = rng.standard_normal((4, 20)).astype(np.float32)
    d = aggregate([contribution(start - s, 0.25, None) for s in sites])
    theta, _ = outer_step(OuterSGD(), start, d, start * 0)
    np.testing.assert_allclose(theta, sites.mean(0), atol=1e-6)
    swept, _ = outer_step(OuterSGD(), start, d, start * 0, lr=np.float32(0.5))
    np.testing.assert_array_equal(swept, start - d * np.float32(0.5))


def test_the_sum_is_in_the_order_of_sites() -> None:
    parts = [np.float32([1e8]), np.float32([1.0]), np.float32([-1e8])]
    assert aggregate(parts).tolist() == [0.0]
    assert aggregate([parts[0], parts[2], parts[1]]).tolist() == [1.0]


def test_the_window_mean_counts_tokens() -> None:
    total = np.zeros(1, np.float32)
    for gradient, tokens in ((1.0, 30), (5.0, 10)):
        total = accumulate(total, np.float32([gradient]), tokens)
    assert window_mean(total, 40).tolist() == [2.0]


def test_eager_takes_the_fresh_share_for_the_stale_one() -> None:
    due, now, then = np.float32([3.0]), np.float32([0.5]), np.float32([1.0])
    assert applied(Eager(), due, now, then).tolist() == [2.5]
    assert applied(Delayed(), due, now, then).tolist() == [3.0]


def test_eager_is_blocking_where_updates_do_not_change() -> None:
    rng = np.random.default_rng(0)
    cs = [rng.standard_normal(9).astype(np.float32) for _ in range(3)]
    for m in range(3):
        np.testing.assert_array_equal(applied(Eager(), aggregate(cs), cs[m], cs[m]) * 0, 0 * cs[0])
        np.testing.assert_allclose(applied(Eager(), aggregate(cs), cs[m], cs[m]), aggregate(cs), atol=1e-6)


def test_mix_and_momentum_are_weighted_means() -> None:
    one, three = np.float32([1.0]), np.float32([3.0])
    assert mix(one, three, 0.25).tolist() == [2.5]
    assert mix(one, three, 0.0).tolist() == [3.0]
    assert momentum_of(one, three, 0.75).tolist() == [1.5]


@pytest.mark.parametrize(
    "convert", [np.asarray, torch.from_numpy, jnp.asarray], ids=["numpy", "torch", "jax"]
)
def test_a_round_that_is_not_finite_is_skipped(convert) -> None:
    before, after, c = (convert(np.float32(x)) for x in ([5.0], [1.0], [2.0]))
    assert not bool(is_finite(convert(np.float32([1.0, np.nan]))))
    assert bool(is_finite(before))
    for finite, skipped, want in ((True, False, 1.0), (True, True, 3.0), (False, True, 5.0)):
        assert float(residual_after(before, after, c, finite, skipped)[0]) == want
    for bits in (0x7FFFFFFF, 0xFFFFFFFF, 0x7FC00000, 0x7F800000):
        odd = convert(np.array([bits], np.uint32).view(np.float32))
        assert not bool(is_finite(contribution(odd, 0.5, None)))
    poisoned = convert(np.float32([np.nan]))
    assert float(residual_after(before, poisoned, poisoned, False, True)[0]) == 5.0
    assert float(sum_unless(True, poisoned)[0]) == 0.0
    assert float(sum_unless(False, c)[0]) == 2.0
