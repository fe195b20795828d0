"""numpy, torch and jax give the same bits; under jit everything is static and nothing compiles twice."""

import subprocess
import sys
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from geosim.policy import Eager
from geosim.policy.maths import (
    Key,
    Section,
    accumulate,
    aggregate,
    applied,
    compress,
    contribution,
    decompress,
    mix,
    momentum,
    momentum_of,
    residual,
    residual_after,
    sum_unless,
    window_mean,
)
from geosim.policy.maths.counter import position_bits, rounding_bits
from geosim.policy.quantize import E3M0, Cast, Integer, Sign
from geosim.policy.select import Dense, RandomK, TopK

N = 1003
KEY = Key(seed=7, round=3, fragment=1, shard=2, site=1, section=0)
INTEGERS = [Integer(kind=k, group=g) for k in ("int8", "int4", "int2") for g in (64, "section")]
STOCHASTIC = [Integer(kind="int8", rounding="stochastic"), Integer(kind="int2", rounding="stochastic")]
FORMATS = [
    *(Cast(kind=k) for k in ("fp32", "bf16", "fp16")),
    *INTEGERS,
    *STOCHASTIC,
    E3M0(),
    E3M0(group=8, rounding="stochastic"),
    Sign(group=60),
    Sign(group="section"),
]
SELECTS = [Dense(), TopK(ratio=0.05, scope=100), RandomK(ratio=0.1), RandomK(ratio=0.1, scope=64)]
SECTIONS = [Section(((0, N),), TopK(ratio=0.2), q) for q in FORMATS]
SECTIONS += [Section(((0, N),), s, Integer(group=64)) for s in SELECTS]
SECTIONS += [Section(((0, N),), Dense(), q) for q in (Cast(kind="bf16"), E3M0(), Integer(kind="int4"))]


def inputs() -> list[tuple[np.ndarray, np.ndarray]]:
    """(gradient, residual) pairs: ordinary, with ties, tiny, and close to overflow."""
    rng = np.random.default_rng(0)
    plain, e = rng.standard_normal((2, N)).astype(np.float32)
    ties = np.round(plain * 4) / 4
    return [(plain, e), (ties, e * 0), (plain * np.float32(1e-33), e * 0), (plain * np.float32(6e37), e * 0)]


def one_round(g, e, section, key, weight, decay):
    u = contribution(g, weight, e)
    part = compress(u, section, key)
    c = decompress(part, section)
    return u, part, c, residual(u, c, decay)


jitted = jax.jit(one_round, static_argnums=2)


def without_denormals(x: np.ndarray) -> np.ndarray:
    """XLA on the CPU takes denormal results as zero; decoded values never are: only a residual shows it."""
    return np.where(np.abs(x) < np.finfo(np.float32).tiny, np.float32(0), x)


def flat(result) -> list[np.ndarray]:
    u, part, c, e = result
    return [np.asarray(x) for x in (u, *part, c, e) if x is not None]


@pytest.mark.parametrize("section", SECTIONS, ids=lambda s: f"{s.select.kind}-{s.quantize}")
def test_bits_are_equal_on_all_backends(section: Section) -> None:
    for g, e in inputs():
        with np.errstate(all="raise", under="ignore"):
            want = flat(one_round(g, e, section, KEY, 0.3, 0.9))
        with_torch = flat(one_round(torch.from_numpy(g), torch.from_numpy(e), section, KEY, 0.3, 0.9))
        with_jax = flat(jitted(jnp.asarray(g), jnp.asarray(e), section, KEY, 0.3, 0.9))
        for other in (with_torch, with_jax):
            for i, (x, y) in enumerate(zip(want[:-1], other[:-1], strict=True)):
                np.testing.assert_array_equal(x, y, err_msg=f"array {i}")
        np.testing.assert_array_equal(want[-1], with_torch[-1], err_msg="residual")
        np.testing.assert_array_equal(without_denormals(want[-1]), with_jax[-1], err_msg="residual")
        assert np.isfinite(want[-1]).all()
        assert np.isfinite(want[-2]).all()


def test_counter_bits_are_equal_and_look_random() -> None:
    draws = {}
    for name, like in {"numpy": np.zeros(1), "torch": torch.zeros(1), "jax": jnp.zeros(1)}.items():
        draws[name] = np.asarray(rounding_bits(like, KEY._replace(seed=(1 << 32) - 1), 40_000)).astype(
            np.int64
        )
    assert np.array_equal(draws["numpy"], draws["torch"])
    assert np.array_equal(draws["numpy"], draws["jax"])
    bits = (draws["numpy"][:, None] >> np.arange(32)) & 1
    assert np.abs(bits.mean(0) - 0.5).max() < 5 * 0.5 / np.sqrt(40_000)
    assert np.abs(np.corrcoef(bits.T) - np.eye(32)).max() < 0.03


def test_every_part_of_the_key_counts() -> None:
    base = rounding_bits(np.zeros(1), KEY, 1000)
    for name in Key._fields:
        other = rounding_bits(np.zeros(1), KEY._replace(**{name: 9}), 1000)
        assert (base == other).sum() < 3
    here = position_bits(np.zeros(1), KEY, 1000)
    assert np.array_equal(here, position_bits(np.zeros(1), KEY._replace(site=5), 1000))
    assert len(np.unique(here)) == 1000


def test_known_counter_bits() -> None:
    """Pins the stream: a change would break random-k between versions."""
    assert position_bits(np.zeros(1), Key(), 3).tolist() == [674576515, 2758965540, 1161221894]


def test_jit_compiles_once_for_all_rounds_weights_and_rates() -> None:
    traces = []
    section = Section(((0, N),), RandomK(ratio=0.1), Integer(rounding="stochastic"))

    @partial(jax.jit, static_argnums=2)
    def step(g, e, section, key, weight, decay, lr, mu):
        traces.append(1)
        _, _, c, e = one_round(g, e, section, key, weight, decay)
        return momentum(g, c, e, lr, mu, True)

    g = jnp.asarray(inputs()[0][0])
    results = [
        step(
            g,
            g,
            section,
            Key(seed=1, round=np.int32(r)),
            np.float32(0.1 * r),
            np.float32(0.9),
            0.1 * r,
            0.01 * r,
        )
        for r in range(1, 4)
    ]
    assert len(traces) == 1
    assert not np.array_equal(results[0][0], results[1][0])


def test_update_rules_are_equal_on_all_backends_and_compile_once() -> None:
    traces = []

    def boundary(g, e, alpha, finite):
        traces.append(1)
        m = momentum_of(e, window_mean(accumulate(e, g, 3.0), 7.0), alpha)
        d = sum_unless(~finite, aggregate([g, m, e]))
        return mix(applied(Eager(), d, m, g), e, alpha), residual_after(e, m, d, finite, ~finite)

    compiled = jax.jit(boundary)
    g, e = inputs()[0]
    for alpha, finite in ((0.3, True), (0.7, False)):
        want = boundary(g, e, np.float32(alpha), np.bool_(finite))
        on_torch = boundary(torch.from_numpy(g), torch.from_numpy(e), alpha, torch.tensor(finite))
        on_jax = compiled(jnp.asarray(g), jnp.asarray(e), np.float32(alpha), np.bool_(finite))
        for x, y, z in zip(want, on_torch, on_jax, strict=True):
            np.testing.assert_array_equal(x, y)
            np.testing.assert_array_equal(x, np.asarray(z))
    assert len(traces) == 2 * 2 + 1


def test_vmap_over_sites() -> None:
    section = Section(((0, N),), TopK(ratio=0.1), Integer(rounding="stochastic"))
    g = np.random.default_rng(1).standard_normal((3, N)).astype(np.float32)

    def one(g, site):
        return decompress(compress(g, section, KEY._replace(site=site)), section)

    together = np.asarray(jax.jit(jax.vmap(one))(jnp.asarray(g), jnp.arange(3)))
    for m in range(3):
        np.testing.assert_array_equal(together[m], one(g[m], m))


def test_numpy_alone_imports_neither_torch_nor_jax() -> None:
    code = (
        "import sys, numpy as np\n"
        "from geosim.policy import Integer, TopK\n"
        "from geosim.policy.maths import Key, Section, compress, decompress\n"
        "s = Section(((0, 99),), TopK(), Integer())\n"
        "decompress(compress(np.ones(99, np.float32), s, Key()), s)\n"
        "assert not {'torch', 'jax'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
