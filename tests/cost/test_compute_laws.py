"""Laws of the step model over random shapes, splits and machines."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from step_cases import machines, shapes, site, splits, workload

from geosim.cost.compute import flops_per_token
from geosim.cost.step.constants import fitted
from geosim.cost.step.describe import machine_of, shape_of, split_of
from geosim.cost.step.groups import overlapped, scatter_time, send_time
from geosim.cost.step.kernels import fused_attention, matmul, passes
from geosim.cost.step.layer import head_time
from geosim.cost.step.memory import layer_activations
from geosim.cost.step.numbers import Machine, Shape, Split
from geosim.cost.step.step import step_time
from geosim.policy import load_policy
from geosim.scenario import load_scenario
from geosim.tune.screen import screen

FASTER = ("peak_flops", "attention_flops", "memory_bytes_per_s", "intra_bytes_per_s", "inter_bytes_per_s")


@given(shapes(), splits(experts=True), machines(), st.sampled_from(FASTER), st.floats(1.0, 10.0))
def test_more_of_anything_is_never_slower(
    shape: Shape, split: Split, machine: Machine, what: str, more: float
) -> None:
    better = replace(machine, **{what: getattr(machine, what) * more})
    if what == "peak_flops":
        better = replace(better, attention_flops=machine.attention_flops * more)
    assert step_time(shape, split, better).total_s <= step_time(shape, split, machine).total_s * (1 + 1e-9)


@given(shapes(), splits(), machines(), st.floats(0.0, 1.0))
def test_less_latency_is_never_slower(shape: Shape, split: Split, machine: Machine, less: float) -> None:
    near = replace(
        machine,
        intra_latency_s=machine.intra_latency_s * less,
        inter_latency_s=machine.inter_latency_s * less,
    )
    assert step_time(shape, split, near).total_s <= step_time(shape, split, machine).total_s * (1 + 1e-9)


@pytest.mark.parametrize("policy", ["ddp", "hierarchical-efsgd", "diloco", "streaming-diloco"])
@pytest.mark.parametrize("name", ["four-regions", "beijing-ningxia", "two-campuses", "laptop"])
def test_more_memory_is_never_slower_where_no_parallelism_is_stated(name: str, policy: str) -> None:
    """Also where a model comes to fit an accelerator whole, which then would update all of it."""
    scenario, known = load_scenario(name), load_policy(policy)
    steps = []
    for size in np.geomspace(1e9, 1e14, 21):
        sites = tuple(
            here.model_copy(
                update={"accelerator": here.accelerator.model_copy(update={"memory_bytes": size})}
            )
            for here in scenario.sites
        )
        steps.append(float(screen(scenario.model_copy(update={"sites": sites}), [known]).step_s[0]))
    assert (np.diff(steps) <= 1e-9 * np.array(steps[1:])).all()


@given(shapes(), splits(experts=True), machines())
def test_parts_are_not_negative_and_add_up(shape: Shape, split: Split, machine: Machine) -> None:
    step = step_time(shape, split, machine)
    parts = (step.compute_s, step.tensor_s, step.bubble_s, step.data_s, step.optimizer_s)
    assert min(parts) >= -1e-12 * step.total_s
    assert sum(parts) == pytest.approx(float(step.total_s), rel=1e-9)


@given(shapes(), splits(experts=True), machines())
def test_no_step_is_faster_than_its_flops_at_peak(shape: Shape, split: Split, machine: Machine) -> None:
    """MFU never exceeds 1, where attention counts as if nothing were masked."""
    tokens = split.data * split.micro_batches * split.micro_batch * shape.sequence
    active = shape.dense_parameters + shape.expert_parameters / shape.experts * shape.top_k
    flops = tokens * (6 * active + 12 * shape.layers * shape.hidden * shape.sequence)
    ranks = split.tensor * split.pipeline * split.data
    assert step_time(shape, split, machine).total_s >= flops / (ranks * machine.peak_flops)


@given(
    st.integers(1, 1 << 16), st.integers(1, 1 << 16), st.integers(1, 1 << 16), machines(), st.floats(1, 1e12)
)
def test_no_kernel_is_faster_than_peak_or_memory(
    m: int, k: int, n: int, machine: Machine, size: float
) -> None:
    known = fitted()
    time = matmul(m, k, n, machine.peak_flops, machine, known)
    assert time >= 2.0 * m * k * n / machine.peak_flops
    assert time >= 2.0 * (m * k + k * n + m * n) / machine.memory_bytes_per_s
    assert fused_attention(size, machine, known) >= size / machine.attention_flops
    assert passes(size, machine, known) >= size / machine.memory_bytes_per_s


@given(st.floats(1, 1e12), st.integers(1, 4096), st.sampled_from([1, 2, 8, 64]), machines())
def test_no_collective_is_faster_than_its_slowest_tier(
    size: float, ranks: int, stride: int, machine: Machine
) -> None:
    known = fitted()
    time = scatter_time(size, ranks, stride, machine, known)
    assert time == 0 if ranks == 1 else time > 0
    fastest = max(machine.intra_bytes_per_s, machine.inter_bytes_per_s * machine.per_node)
    assert time >= size * (ranks - 1) / ranks / fastest / 2
    alone = replace(machine, per_node=1)
    across = size * (ranks - 1) / ranks / machine.inter_bytes_per_s
    assert scatter_time(size, ranks, stride, alone, known) >= across
    assert send_time(size, 1, alone, known) >= size / machine.inter_bytes_per_s


@given(st.floats(0, 10), st.floats(0, 10))
def test_an_overlapped_collective_costs_between_the_longer_and_the_sum(a: float, b: float) -> None:
    both = overlapped(a, b, fitted())
    assert max(a, b) <= both <= a + b + 1e-12


@given(shapes(), splits(), machines())
def test_twice_the_layers_compute_twice_as_long(shape: Shape, split: Split, machine: Machine) -> None:
    flat = replace(split, pipeline=1, chunks=1, zero=0)
    head = flat.micro_batches * head_time(shape, flat, machine, fitted())
    one = step_time(shape, flat, machine).compute_s - head
    two = step_time(replace(shape, layers=2 * shape.layers), flat, machine).compute_s - head
    assert two == pytest.approx(2 * one, rel=1e-9)


@given(shapes(), splits(), machines())
def test_recomputing_and_standard_attention_are_never_faster(
    shape: Shape, split: Split, machine: Machine
) -> None:
    lean = step_time(shape, replace(split, full=False, selective=False), machine).total_s
    assert step_time(shape, replace(split, full=False, selective=True), machine).total_s >= lean
    assert step_time(shape, replace(split, full=True, selective=False), machine).total_s >= lean


@given(st.integers(2, 64), st.integers(1, 64), shapes(), machines())
def test_the_bubble_is_that_of_the_schedule(stages: int, rounds: int, shape: Shape, machine: Machine) -> None:
    """(p - 1) / m of what equal stages compute, and 1 / v of that with v chunks (arXiv 2104.04473, 2.2)."""
    even = replace(shape, layers=4 * stages)
    count = rounds * stages
    split = Split(tensor=1, pipeline=stages, data=1, micro_batch=1, micro_batches=count)
    for chunks in (1, 4):
        chosen = replace(split, chunks=chunks)
        step = step_time(even, chosen, machine)
        layers = step.compute_s + step.tensor_s - count * head_time(even, chosen, machine, fitted())
        assert step.bubble_s == pytest.approx(layers * (stages - 1) / count / chunks, rel=1e-6)


def test_one_expert_is_a_dense_model_and_more_cost_their_traffic() -> None:
    work = workload("mixtral-8x7b", tensor=1, zero=1)
    here = site()
    machine = machine_of(here.accelerator, here, "bf16")
    mixture = shape_of(work.model, 8192)
    split = split_of(work.parallel, work, here.ranks)
    apart = step_time(mixture, replace(split, expert=8), machine)
    assert apart.tensor_s > 0
    dense = replace(
        mixture,
        experts=1,
        top_k=1,
        dense_parameters=mixture.dense_parameters + mixture.expert_parameters / 8,
        expert_parameters=0.0,
    )
    assert step_time(dense, split, machine).compute_s < step_time(mixture, split, machine).compute_s
    # Two of eight experts: the FLOPs of 12.9 of 46.7 billion parameters (arXiv 2401.04088, section 2.1).
    active = flops_per_token(work) / 6 - 2 * work.model.layers * work.model.d_model * 8192
    assert active + work.model.vocabulary * work.model.d_model == pytest.approx(12.9e9, rel=0.01)
    assert work.model.param_table().numel == pytest.approx(46.7e9, rel=0.001)


def test_a_width_of_heads_counts_wherever_heads_do() -> None:
    """One that is d_model / heads changes nothing; twice as wide is as twice as many, to tiles."""
    work, here = workload(tensor=1), site()
    plain = work.model
    heads = plain.kv_heads or plain.heads
    stated, wide, many = (
        work.model_copy(update={"model": plain.model_copy(update=change)})
        for change in (
            {"head_dim": plain.head_width},
            {"head_dim": 2 * plain.head_width},
            {"heads": 2 * plain.heads, "kv_heads": 2 * heads, "head_dim": plain.head_width},
        )
    )
    assert shape_of(stated.model, 8192) == shape_of(plain, 8192)
    assert flops_per_token(stated) == flops_per_token(work)
    assert flops_per_token(wide) == flops_per_token(many)
    more = flops_per_token(wide) - flops_per_token(work)
    d, layers, width = plain.d_model, plain.layers, plain.head_width
    assert more == layers * width * (12 * d * (plain.heads + heads) + 12 * plain.heads * work.sequence)
    machine, split = machine_of(here.accelerator, here, "bf16"), split_of(work.parallel, work, here.ranks)
    times = [step_time(shape_of(w.model, 8192), split, machine).total_s for w in (work, wide, many)]
    kept = [layer_activations(shape_of(w.model, 8192), split) for w in (work, wide, many)]
    assert times[0] < times[1] <= times[2] * (1 + 1e-9)
    assert kept[0] < kept[1] == kept[2]


def test_arrays_give_what_numbers_give() -> None:
    shape = shape_of(workload().model, 8192)
    here = site()
    machine = machine_of(here.accelerator, here, "bf16")
    tensor, zero = np.array([1, 2, 4, 8, 8]), np.array([3, 2, 1, 0, 1])
    many = Split(
        tensor=tensor, pipeline=1, data=512 // tensor, micro_batch=1, micro_batches=tensor, zero=zero
    )
    together = step_time(shape, many, machine).total_s
    for i, (t, z) in enumerate(zip(tensor.tolist(), zero.tolist(), strict=True)):
        one = Split(tensor=t, pipeline=1, data=512 // t, micro_batch=1, micro_batches=t, zero=z)
        assert float(step_time(shape, one, machine).total_s) == together[i]
