"""Plans, refusals that name what works, overrides, and money."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from step_cases import site, workload

from geosim.cost import build
from geosim.cost.compute import as_utilization, site_step, step_time
from geosim.cost.money import money
from geosim.cost.room import has_room
from geosim.cost.step.check import check, fits
from geosim.cost.step.grid import make_grid, parallel_at
from geosim.cost.step.plan import plan
from geosim.cost.step.valid import first_fault
from geosim.errors import UsageError
from geosim.policy import load_policy
from geosim.scenario import Parallel, Scenario, Workload, load_scenario
from geosim.sim import simulate
from geosim.spec import from_dict
from geosim.tune import default_base, tune
from geosim.tune.sensitivity import with_batch, with_model_scale


def test_a_grid_of_ten_thousand_for_405b_on_4096() -> None:
    work = workload("llama-3.1-405b", batch_per_accelerator=4)
    here = site("H200", 512)
    made = plan(work, here, count=20)
    assert made.considered >= 10_000
    assert 0 < made.fitting < made.considered
    times = [choice.step_s for choice in made.best]
    assert times == sorted(times)
    for choice in made.best:
        assert choice.memory_bytes <= here.accelerator.memory_bytes
        assert 0.3 < choice.mfu < 0.6
        stated = work.model_copy(update={"parallel": choice.parallel})
        assert check(stated, here).total == pytest.approx(choice.memory_bytes)
        step = site_step(stated, here)
        total = step.compute_s + (step.data_s or 0) + (step.optimizer_s or 0)
        assert total == pytest.approx(choice.step_s)


@given(st.integers(0, 10**6), st.sampled_from(["llama-3-8b", "mixtral-8x7b", "gpt3-13b"]))
def test_every_choice_of_a_grid_is_valid_where_it_is_stated(seed: int, model: str) -> None:
    work = workload(model, sequence=2048, batch_per_accelerator=4)
    grid = make_grid(work, 64)
    parallel = parallel_at(grid, seed % len(grid), Parallel())
    assert first_fault(work, parallel, 64) is None
    assert float(grid.distance(parallel)[seed % len(grid)]) == 0


def test_a_grid_holds_each_choice_once() -> None:
    grid = make_grid(workload("mixtral-8x7b"), 32)
    seen = {parallel_at(grid, i, Parallel()) for i in range(len(grid))}
    assert len(seen) == len(grid)
    assert {p.expert for p in seen} == {1, 2, 4, 8}


@pytest.mark.parametrize(
    ("stated", "says"),
    [
        (
            {"tensor": 3},
            r"parallel\.data: tensor x pipeline x data must be the 512 accelerators .*3 x 1 x 170",
        ),
        ({"tensor": 128}, r"parallel\.tensor: must divide the 64 heads of llama-3-70b \(got 128\)"),
        ({"tensor": 8, "pipeline": 32}, r"parallel\.pipeline: .*80 layers.*82.*got 32 x 1"),
        ({"tensor": 8, "data": 32}, r"parallel\.data: .*got 8 x 1 x 32"),
        ({"tensor": 8, "pipeline": 8, "micro_batch": 3}, r"parallel\.micro_batch: .*512 sequences.*8 x 3"),
        ({"tensor": 8, "expert": 2}, r"parallel\.expert: must divide the 1 experts"),
        (
            {"tensor": 1, "pipeline": 4, "schedule": "interleaved", "chunks": 5, "micro_batch": 2},
            r"parallel\.chunks: .*multiples of the pipeline degree \(got 2 and 4\)",
        ),
    ],
)
def test_what_does_not_divide_is_refused_with_the_nearest_that_works(stated: dict, says: str) -> None:
    with pytest.raises(UsageError, match=says + r".*nearest that works: tensor \d+, pipeline \d+") as refused:
        check(workload(**stated), site())
    assert "\n" not in str(refused.value)
    assert str(refused.value).startswith("workload.parallel.")


@pytest.mark.parametrize("field", ["tensor", "pipeline"])
@pytest.mark.parametrize("degree", [3, 5, 7, 2048])
def test_the_nearest_is_found_where_degrees_leave_accelerators_over(field: str, degree: int) -> None:
    """With micro-batches stated the batch follows from the replicas, of which 5 x 16 leave 12.8."""
    scenario = load_scenario("llama-405b-four-campuses", {f"workload.parallel.{field}": degree})
    with pytest.raises(UsageError, match=rf"got .*{degree}.*nearest that works: tensor") as refused:
        check(scenario.workload, scenario.sites[0])
    words = named(str(refused.value))
    stated = {
        k: v if k == "recompute" else v == "true" if k == "sequence_parallel" else int(v)
        for k, v in words.items()
    }
    stated["schedule"] = "interleaved" if "chunks" in stated else "1f1b"
    again = load_scenario("llama-405b-four-campuses", {"workload.parallel": stated})
    assert check(again.workload, again.sites[0]).total <= again.sites[0].accelerator.memory_bytes


def named(message: str) -> dict[str, str]:
    """The choice that a refusal names, as fields."""
    words = message.split("nearest that works: ")[1].split(", ")
    return dict(word.split(" ", 1) for word in words)


def test_what_does_not_fit_is_refused_with_its_figures_and_the_nearest_that_does() -> None:
    work = workload(tensor=8)
    with pytest.raises(UsageError, match=r"needs 220 GB of the 80 GB of H100 .*\(weights 17\.6 GB") as no:
        check(work, site())
    near = named(str(no.value))
    stated = {k: v if k == "recompute" else int(v) for k, v in near.items() if k != "sequence_parallel"}
    fitting = workload(**stated, sequence_parallel="sequence_parallel" in near)
    assert check(fitting, site()).total <= 80e9


def test_a_policy_that_leaves_no_room_is_refused() -> None:
    scenario = load_scenario("llama-70b-two-campuses", {"workload.parallel.pipeline": 4})
    build(scenario, load_policy("diloco"))
    with pytest.raises(UsageError, match=r"exchange 47 GB.*nearest that works: tensor 16, pipeline 4"):
        build(scenario, load_policy("diloco", {"shards": 24}))
    with pytest.raises(UsageError, match=r"exchange 141 GB.*: raise policy\.shards, or leave it out"):
        build(scenario, load_policy("diloco", {"shards": 8}))


def test_where_nothing_fits_the_refusal_says_so() -> None:
    here = site("H100", 1)
    with pytest.raises(UsageError, match="no parallelism of these accelerators works"):
        check(workload("llama-3.1-405b"), here)
    with pytest.raises(UsageError, match=r"none of \d+ parallelisms fits 8 H100 at site here"):
        plan(workload("llama-3.1-405b"), here)


def test_measured_values_override_the_model_and_no_parallelism_is_as_before() -> None:
    here = site()
    work = workload(tensor=8, pipeline=4, zero=1)
    modelled = site_step(work, here).compute_s
    assert site_step(work.model_copy(update={"step_time_s": 1.5}), here).compute_s == 1.5
    half = site_step(work.model_copy(update={"mfu": 0.5}), here)
    quarter = site_step(work.model_copy(update={"mfu": 0.25}), here)
    assert quarter.compute_s == pytest.approx(2 * half.compute_s)
    assert half.data_s == quarter.data_s != 0
    assert modelled not in (half.compute_s, quarter.compute_s)
    plain = Workload(model="llama-3-70b", sequence=8192)
    assert site_step(plain, here).data_s is None
    assert site_step(plain, here).compute_s == step_time(plain, here.accelerator)
    assert step_time(plain, here.accelerator) == step_time(
        plain.model_copy(update={"mfu": 0.4}), here.accelerator
    )


def test_a_stated_parallelism_reaches_the_simulation() -> None:
    scenario = load_scenario("llama-70b-two-campuses")
    work, here = scenario.workload, scenario.sites[0]
    step = site_step(work, here)
    result = simulate(scenario, load_policy("diloco"), seeds=1, windows=4)
    assert result.parts["compute"] == pytest.approx(step.compute_s, rel=0.02)
    assert result.parts["site_collective"] == pytest.approx(step.data_s, rel=0.02)
    assert result.parts["update"] == pytest.approx(step.optimizer_s, rel=0.02)


def test_a_site_that_is_divided_gathers_only_what_an_accelerator_needs() -> None:
    scenario = load_scenario("llama-70b-two-campuses")
    whole = scenario.model_copy(
        update={"workload": scenario.workload.model_copy(update={"parallel": None, "mfu": 0.4})}
    )
    policy = load_policy("diloco")
    parts, full = build(scenario, policy).fragments[0], build(whole, policy).fragments[0]
    assert parts.gather_s[0] < full.gather_s[0]
    assert parts.payload_bytes == full.payload_bytes


def test_money_by_hand() -> None:
    prices = {"accelerator_hour": 2.0, "egress_per_terabyte": 50.0, "currency": "EUR"}
    scenario = load_scenario(
        "laptop", {"prices": {**prices, "sites": [{"site": "west", "accelerator_hour": 4.0}]}}
    )
    assert from_dict(Scenario, scenario.to_dict(), "again") == scenario
    # 1000 steps of 1000 tokens, 3.6 s each: an hour of two accelerators at 2 and of two at 4.
    cost = money(scenario, 3.6, 1000.0, {"east": 1e9, "west": 1e9})
    assert cost.accelerator_hours_per_million_tokens == pytest.approx(4)
    assert cost.compute_per_million_tokens == pytest.approx(2 * 2 + 2 * 4)
    assert cost.egress_per_million_tokens == pytest.approx(1000 * 2e9 / 1e12 * 50)
    assert cost.per_million_tokens == pytest.approx(12 + 100)
    assert cost.currency == "EUR"
    with pytest.raises(UsageError, match="prices: this scenario states none"):
        money(load_scenario("laptop"), 1.0, 1.0, {})


@pytest.mark.parametrize(
    ("prices", "says"),
    [
        ({"accelerator_hour": -1, "egress_per_terabyte": 0}, r"prices\.accelerator_hour"),
        ({"accelerator_hour": 1}, r"prices\.egress_per_terabyte: this field is required"),
        (
            {"accelerator_hour": 1, "egress_per_terabyte": 1, "sites": [{"site": "nowhere"}]},
            "no site is called 'nowhere'",
        ),
        (
            {"accelerator_hour": 1, "egress_per_terabyte": 1, "sites": [{"site": "east"}] * 2},
            "site 'east' are there twice",
        ),
    ],
)
def test_prices_that_make_no_sense(prices: dict, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        load_scenario("laptop", {"prices": prices})


@pytest.mark.parametrize(
    ("parallel", "says"),
    [
        ({"tensr": 8}, "unknown key; did you mean 'tensor'"),
        ({"tensor": 0}, r"workload\.parallel\.tensor"),
        ({"schedule": "interleaved"}, r"chunks: schedule 'interleaved' needs 2 or more"),
        ({"chunks": 2}, "chunks: 2 needs schedule 'interleaved'"),
        ({"sequence_parallel": True}, "sequence_parallel: splits over the tensor group"),
        ({"zero": 3, "pipeline": 2}, "zero: stage 3 .* use zero 1"),
        ({"zero": 4}, r"workload\.parallel\.zero"),
        ({"recompute": True}, r"workload\.parallel\.recompute"),
    ],
)
def test_parallelism_that_makes_no_sense(parallel: dict, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        load_scenario("llama-70b-two-campuses", {"workload.parallel": parallel})


def test_recomputation_is_said_once() -> None:
    with pytest.raises(UsageError, match=r"recompute: say it in parallel\.recompute"):
        load_scenario("llama-70b-two-campuses", {"workload.recompute": True})


def test_fits_is_memory_against_capacity() -> None:
    work, here = workload(), site()
    grid = make_grid(work, here.ranks)
    few, many = fits(grid, work, here), fits(grid, work, site("H200"))
    assert np.all(many >= few)
    assert np.all(fits(grid, work, here, 1e12) == False)  # noqa: E712


def test_what_ifs_of_other_sizes_keep_the_utilization_and_drop_the_degrees() -> None:
    scenario = load_scenario("llama-70b-two-campuses")
    work, here = scenario.workload, scenario.sites[0]
    plain = as_utilization(work, here)
    assert plain.parallel is None
    assert step_time(plain, here.accelerator) == pytest.approx(site_step(work, here).compute_s)
    for factor in (0.37, 2.9):
        for changed in (with_model_scale(scenario, factor), with_batch(scenario, factor)):
            assert build(changed, load_policy("diloco")).sites[0].step_s > 0
    assert as_utilization(plain, here) == plain


def test_the_tuner_leaves_out_what_memory_has_no_room_for() -> None:
    """With 48 WAN ranks each copy of what a rank owns takes 5.9 GB of the 34 GB that are left."""
    base = default_base().model_copy(update={"shards": 48})
    tight = load_scenario("llama-70b-two-campuses", {"workload.parallel.chunks": 2})
    wide = tune(tight, base=base, max_interval=4)
    assert has_room(tight, wide.chosen.policy)
    loose = tight.model_copy(
        update={"workload": tight.workload.model_copy(update={"parallel": None, "mfu": 0.4})}
    )
    assert tune(loose, base=base, max_interval=4).screened > wide.screened
    full = tight.model_copy(
        update={"workload": tight.workload.model_copy(update={"parallel": Parallel(tensor=2)})}
    )
    with pytest.raises(UsageError, match="nearest that works"):
        tune(full, base=base, max_interval=4)
