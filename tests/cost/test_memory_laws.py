"""Memory an accelerator: published formulas, and laws over random shapes and splits."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from step_cases import machines, shapes, splits

from geosim.cost.step.exchange import exchange_bytes
from geosim.cost.step.memory import layer_activations, memory
from geosim.cost.step.numbers import Machine, Shape, Split
from geosim.policy import load_policy


def gpt(hidden: int, heads: int, layers: int, sequence: int) -> Shape:
    return Shape(
        layers=layers,
        hidden=hidden,
        heads=heads,
        head_width=hidden / heads,
        kv_width=hidden,
        ffn=4 * hidden,
        matrices=2,
        vocabulary=51200,
        sequence=sequence,
        dense_parameters=12.0 * layers * hidden**2,
        dropout=True,
    )


def split(tensor: int = 1, **fields: object) -> Split:
    given_ = {
        "pipeline": 1,
        "data": 1,
        "micro_batch": 1,
        "micro_batches": 1,
        "fused_attention": False,
        **fields,
    }
    return Split(tensor=tensor, **given_)


MODELS = [(6144, 64, 48), (12288, 96, 96), (20480, 128, 105), (25600, 160, 128)]  # 22B, 175B, 530B, 1T


@pytest.mark.parametrize(("hidden", "heads", "layers"), MODELS)
@pytest.mark.parametrize("tensor", [1, 2, 8])
def test_activations_of_a_layer_are_the_published_formulas(
    hidden: int, heads: int, layers: int, tensor: int
) -> None:
    """Korthikanti et al., arXiv 2205.05198: eq. 2, eq. 4, and the last rows of table 2."""
    shape, s = gpt(hidden, heads, layers, 2048), 2048
    sbh, scores = s * hidden, 5 * heads * s / hidden
    assert layer_activations(shape, split(tensor)) == pytest.approx(
        sbh * (10 + 24 / tensor + scores / tensor)
    )
    parallel = split(tensor, sequence_parallel=True)
    assert layer_activations(shape, parallel) == pytest.approx(sbh / tensor * (34 + scores))
    chosen = replace(parallel, selective=True)
    assert layer_activations(shape, chosen) == pytest.approx(sbh / tensor * 34)
    fused = replace(parallel, fused_attention=True)
    assert layer_activations(shape, fused) == pytest.approx(sbh / tensor * 34)


@pytest.mark.parametrize(("model", "saved"), [(MODELS[1], 0.70), (MODELS[2], 0.65)])
def test_selective_recomputation_saves_what_is_published(model: tuple[int, int, int], saved: float) -> None:
    """70 % of GPT-3's activations, 65 % of MT-NLG's (arXiv 2205.05198, section 5)."""
    shape = gpt(*model, 2048)
    whole = layer_activations(shape, split(8, sequence_parallel=True))
    less = layer_activations(shape, split(8, sequence_parallel=True, selective=True))
    assert 1 - less / whole == pytest.approx(saved, abs=0.01)


def test_zero_is_the_published_table() -> None:
    """7.5 billion parameters over 64: 120, 31.4, 16.6 and 1.9 GB (arXiv 1910.02054, figure 1)."""
    shape = replace(gpt(4096, 32, 100, 1), dense_parameters=7.5e9)
    machine = Machine(1.0, 1.0, 1.0, 8, 1.0, 0.0, 1.0, 0.0)
    for zero, gigabytes in ((0, 120), (1, 31.4), (2, 16.6), (3, 1.9)):
        need = memory(shape, split(1, data=64, zero=zero, gradient_bytes=2.0), machine)
        total = need.weights + need.gradients + need.optimizer
        # Beside the table's shares: one layer's gradients, and two layers' parameters.
        layer = 7.5e7 * 2 * ((zero >= 2) + 2 * (zero >= 3))
        # The table shards 16-bit parameters as well, which FSDP casts from its fp32 ones.
        cast = 7.5e9 * 2 / 64 if zero == 3 else 0
        assert (total - layer + cast) / 1e9 == pytest.approx(gigabytes, abs=0.06)


@given(shapes(), splits(experts=True), machines())
def test_sharing_more_never_needs_more(shape: Shape, chosen: Split, machine: Machine) -> None:
    flat = replace(chosen, pipeline=1, chunks=1)
    needs = [memory(shape, replace(flat, zero=zero), machine).total for zero in range(4)]
    assert all(b <= a * (1 + 1e-9) for a, b in pairwise(needs))
    lean, full = (memory(shape, replace(flat, full=f, selective=False), machine) for f in (False, True))
    inputs = 2 * flat.micro_batch * shape.sequence * shape.hidden * shape.layers
    assert full.activations <= lean.activations + inputs
    wide = replace(flat, tensor=2 * flat.tensor)
    assert memory(shape, wide, machine).total <= memory(shape, flat, machine).total * (1 + 1e-9)


@given(shapes(), splits(), machines(), st.integers(2, 4))
def test_more_to_keep_never_needs_less(shape: Shape, chosen: Split, machine: Machine, more: int) -> None:
    base = memory(shape, chosen, machine).total
    assert memory(shape, replace(chosen, micro_batch=more * chosen.micro_batch), machine).total >= base
    assert memory(shape, replace(chosen, all_held=True), machine).total >= memory(
        shape, replace(chosen, all_held=False, chunks=1), machine
    ).total * (1 - 1e-9)
    assert memory(shape, chosen, machine, 1e9).total == pytest.approx(base + 1e9)


@pytest.mark.parametrize(
    ("policy", "copies"),
    [
        ("local-sgd", 1 + 2),  # outer parameters; a contribution and a sum
        ("diloco", 2 + 2),  # and the outer momentum
        ("hierarchical-efsgd", 2 + 4),  # sum of gradients, residual; two windows' results
    ],
)
def test_a_policy_keeps_what_the_runtime_keeps(policy: str, copies: int) -> None:
    assert exchange_bytes(load_policy(policy), 1e9, 8) == pytest.approx(copies * 4e9 / 8)


def test_streaming_keeps_only_what_is_in_flight() -> None:
    whole = exchange_bytes(load_policy("diloco"), 1e9, 8)
    streamed = load_policy(
        "diloco", {"overlap": {"kind": "streaming", "fragments": 10, "steps": 1}, "interval": 100}
    )
    assert exchange_bytes(streamed, 1e9, 8) == pytest.approx(whole - 8e9 / 8 * 0.9)
