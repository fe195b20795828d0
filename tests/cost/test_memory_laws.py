"""Memory an accelerator: published formulas, and laws over random shapes and splits."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from step_cases import machines, shapes, splits, workload

from geosim.cost.step.describe import shape_of
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
    wide = replace(flat, tensor=2 * flat.tensor)
    assert memory(shape, wide, machine).total <= memory(shape, flat, machine).total * (1 + 1e-9)


@given(shapes(), splits(experts=True), machines(), st.integers(1, 64), st.booleans())
def test_recomputing_more_never_needs_more(
    shape: Shape, chosen: Split, machine: Machine, count: int, one_layer_a_stage: bool
) -> None:
    """Also with one layer a stage and one micro-batch: a layer's input is kept once, not beside the layer."""
    if one_layer_a_stage:
        chosen = replace(chosen, pipeline=shape.layers, chunks=1)
    chosen = replace(chosen, micro_batches=count)
    none, selective, full = (
        memory(shape, replace(chosen, **what), machine).total
        for what in (
            {"full": False, "selective": False},
            {"full": False, "selective": True},
            {"full": True, "selective": False},
        )
    )
    assert selective <= none * (1 + 1e-12)
    assert full <= none * (1 + 1e-12)
    assert full <= selective * (1 + 1e-12)


@given(shapes(), splits(), st.integers(2, 12), st.integers(1, 8), st.integers(1, 6))
def test_no_stage_holds_more_than_the_schedule_lets_it(
    shape: Shape, chosen: Split, stages: int, chunks: int, rounds: int
) -> None:
    """Each stage's passes one by one, as Megatron-LM orders them; stages are equal, with all logits small."""
    shape = replace(shape, layers=stages * chunks, vocabulary=0)
    chosen = replace(chosen, pipeline=stages, chunks=chunks, micro_batches=rounds * stages)
    chosen = replace(chosen, full=False, selective=False)
    held = []
    for rank in range(stages):
        total = rounds * stages * chunks
        warm = (stages - rank - 1) * 2 + (chunks - 1) * stages if chunks > 1 else stages - rank - 1
        flying = most = 0
        for forward in range(total):
            flying += 1
            most = max(most, flying)
            flying -= forward >= warm
        held.append(total if chosen.all_held else most)
    need = memory(shape, chosen, Machine(1.0, 1.0, 1.0, 8, 1.0, 0.0, 1.0, 0.0))
    assert float(need.activations) == pytest.approx(max(held) * layer_activations(shape, chosen))


@pytest.mark.parametrize("micro_batches", [1, 4])
def test_a_stage_that_must_hold_all_is_seen_where_the_ends_have_fewer_layers(micro_batches: int) -> None:
    """18 layers over 4 stages are 4, 5, 5 and 4: the second holds 5 of one micro-batch, or of three."""
    shape = replace(gpt(1024, 16, 18, 2048), vocabulary=0)
    chosen = split(pipeline=4, micro_batches=micro_batches)
    machine = Machine(1.0, 1.0, 1.0, 8, 1.0, 0.0, 1.0, 0.0)
    each = layer_activations(shape, chosen)
    layers = {1: 5 * 1, 4: max(4 * 4, 5 * 3)}[micro_batches]
    assert float(memory(shape, chosen, machine).activations) == pytest.approx(layers * each)
    all_held = replace(chosen, all_held=True)
    assert float(memory(shape, all_held, machine).activations) == pytest.approx(5 * micro_batches * each)


def test_embedding_and_head_lie_with_the_ends_of_a_pipeline() -> None:
    """Llama 3 70B in equal stages: 20 of 80 layers and one of its two matrices of 128,256 x 8,192."""
    model = workload().model
    shape = shape_of(model, 128)
    table = model.param_table().numel
    one = (table - 2 * model.vocabulary * model.d_model) / model.layers
    machine = Machine(1.0, 1.0, 1.0, 8, 1.0, 0.0, 1.0, 0.0)
    chosen = split(8, pipeline=4, fused_attention=True)
    most = (20 * one + model.vocabulary * model.d_model) / 8
    assert float(memory(shape, chosen, machine).weights) == pytest.approx(2 * most, rel=1e-4)
    assert float(memory(shape, split(8), machine).weights) == pytest.approx(2 * table / 8)


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
