"""What a step's compute is made of adds up to it, for any split."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from geosim.cost.compute import site_compute_parts, site_step
from geosim.cost.step.parts import NAMES
from geosim.errors import UsageError
from geosim.scenario import load_scenario

PARALLEL = [
    {"tensor": 8, "pipeline": 4, "micro_batch": 1},
    {"tensor": 1, "pipeline": 8, "micro_batch": 1, "recompute": "full"},
    {"tensor": 4, "pipeline": 1, "micro_batch": 2, "recompute": "selective", "attention": "standard"},
    {"tensor": 2, "pipeline": 1, "micro_batch": 1, "zero": 3},
]


def parts_of(parallel, name="llama-70b-two-campuses"):
    world = load_scenario(name, {"workload.parallel": parallel})
    return site_compute_parts(world.workload, world.sites[0]), site_step(world.workload, world.sites[0])


@pytest.mark.parametrize("parallel", PARALLEL)
def test_the_parts_add_up_to_the_compute_of_the_step(parallel):
    parts, step = parts_of(parallel)
    assert tuple(parts) == NAMES
    assert sum(parts.values()) == pytest.approx(step.compute_s, rel=1e-9)
    assert min(parts.values()) >= 0


@settings(max_examples=40, deadline=None)
@given(
    tensor=st.sampled_from([1, 2, 4, 8]),
    pipeline=st.sampled_from([1, 2, 4, 8, 16]),
    micro_batch=st.sampled_from([1, 2]),
    recompute=st.sampled_from(["none", "selective", "full"]),
    zero=st.sampled_from([0, 1, 2, 3]),
)
def test_the_parts_add_up_whatever_the_split(tensor, pipeline, micro_batch, recompute, zero):
    parallel = {"tensor": tensor, "pipeline": pipeline, "micro_batch": micro_batch, "recompute": recompute}
    parts, step = parts_of({**parallel, "zero": zero if pipeline == 1 else min(zero, 1)})
    assert sum(parts.values()) == pytest.approx(step.compute_s, rel=1e-9)
    assert min(parts.values()) >= 0
    assert (parts["bubble"] > 0) == (pipeline > 1)
    assert (parts["messages"] > 0) == (tensor > 1 or pipeline > 1)
    assert (parts["recompute"] > 0) == (recompute != "none")


def test_a_stage_of_the_head_alone_neither_attends_nor_waits_for_layers():
    """30 layers and both ends over 32 stages: the stage with the head, which is the slowest, has no layer."""
    layers = {
        f"workload.model.{name}": value for name, value in {"layers": 30, "vocabulary": 2_000_000}.items()
    }
    world = load_scenario(
        "llama-70b-two-campuses",
        {
            **layers,
            "workload.parallel": {"tensor": 8, "pipeline": 32, "micro_batch": 1},
            "workload.batch_per_accelerator": 2,
        },
    )
    parts = site_compute_parts(world.workload, world.sites[0])
    assert (parts["attention"], parts["messages"], parts["launch"]) == (0, 0, 0)
    assert parts["matmul"] > 0
    assert sum(parts.values()) == pytest.approx(site_step(world.workload, world.sites[0]).compute_s, rel=1e-9)


def test_what_is_recomputed_is_a_forward_pass():
    parts, _ = parts_of({"tensor": 8, "pipeline": 1, "micro_batch": 1, "recompute": "full"})
    without, _ = parts_of({"tensor": 8, "pipeline": 1, "micro_batch": 1})
    assert parts["matmul"] == pytest.approx(without["matmul"])
    assert 0.25 < parts["recompute"] / (parts["matmul"] + parts["attention"] + parts["memory"]) < 0.34


@pytest.mark.parametrize(
    "changes", [{"workload.mfu": 0.4}, {"workload.step_time": "2 s"}, {"sites.0.step_time": "2 s"}]
)
def test_nothing_is_known_below_a_given_time(changes):
    world = load_scenario("llama-70b-two-campuses", changes)
    assert site_compute_parts(world.workload, world.sites[0]) == {}
    assert site_compute_parts(load_scenario("laptop").workload, world.sites[0]) == {}


def test_a_precision_that_the_accelerator_does_not_offer_is_named():
    world = load_scenario("llama-70b-two-campuses")
    work = world.workload.model_copy(update={"precision": "fp8"})
    device = world.sites[0].accelerator.model_copy(update={"fp8_flops": None})
    with pytest.raises(UsageError, match="fp8"):
        site_compute_parts(work, world.sites[0].model_copy(update={"accelerator": device}))
