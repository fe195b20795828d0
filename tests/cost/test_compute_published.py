"""The step model against published rows: the bars, on what was fitted and on what was held out."""

import tomllib
from dataclasses import fields

import numpy as np
import pytest
from step_cases import site, workload

from geosim.cost.compute import flops_per_token, site_step, tokens_per_accelerator
from geosim.cost.step.constants import FITTED_FILE, Constants
from geosim.cost.step.memory import memory
from geosim.scenario import Fabric, Hop, Site, Workload, accelerators, load_scenario
from papers.errors import mean_percent, rate_errors, time_errors
from papers.llm_foundry import rows as llm_foundry
from papers.megatron_2021 import rows as megatron
from papers.rows import Rows
from papers.vtrain import rows as vtrain

BAR = 8.0  # per cent, mean absolute: below Calculon's 11.1 and 39, and vTrain's own 14.7 and 8.4


def test_ten_constants_and_the_file_says_where_they_come_from() -> None:
    assert len(fields(Constants)) <= 10
    document = tomllib.loads(FITTED_FILE.read_text(encoding="utf-8"))
    assert document["date"]
    by_name = {table["name"]: table for table in document["table"]}
    for name, rows in (
        ("vtrain single-node", vtrain.load("single_node")),
        ("vtrain multi-node", vtrain.load("multi_node")),
        ("llm-foundry", llm_foundry.load()),
        ("megatron 2021", megatron.load(2, 1)),
    ):
        said = by_name[name]
        assert said["rows_fitted"] + said["rows_held_out"] == len(rows.seconds)
        assert said["error_all"] == pytest.approx(mean_percent(time_errors(rows)), abs=0.06)


@pytest.mark.parametrize("table", ["single_node", "multi_node"])
def test_vtrain_step_times(table: str) -> None:
    assert mean_percent(time_errors(vtrain.load(table))) <= BAR


def test_vtrain_models_that_were_held_out() -> None:
    single, multi = vtrain.load("single_node"), vtrain.load("multi_node")
    assert mean_percent(time_errors(single)[np.isin(single.shape.layers, (16, 24))]) <= BAR
    assert mean_percent(time_errors(multi)[np.isin(multi.shape.hidden, (6144, 12288))]) <= BAR


def test_mfu_of_llm_foundry_by_model_and_by_cluster() -> None:
    rows = llm_foundry.load()
    off = rate_errors(rows)
    assert mean_percent(off) <= BAR
    for cluster in np.unique(rows.cluster):
        assert mean_percent(off[rows.cluster == cluster]) <= BAR
    for model in np.unique(rows.model):
        # 70b has six rows, of which one on 64 A100 40GB thrashes its memory.
        assert mean_percent(off[rows.model == model]) <= (BAR if model != "70b" else 2 * BAR)


def test_megatron_from_one_billion_to_a_trillion_without_a_fitted_row() -> None:
    assert mean_percent(rate_errors(megatron.load(2, 1))) <= BAR


def test_llama_3_405b_on_8192_and_16384() -> None:
    """43 % and 41 % MFU (arXiv 2407.21783, table 4; chunks are not stated: one layer each)."""
    for nodes, batch, published in ((1024, 32, 0.43), (2048, 16, 0.41)):
        here = site("H100", nodes)
        work = workload(
            "llama-3.1-405b",
            tensor=8,
            pipeline=16,
            micro_batches=batch,
            zero=1,
            schedule="interleaved",
            chunks=8,
            sequence_parallel=True,
        )
        assert mfu_of(work, here) == pytest.approx(published, rel=0.1)


def mfu_of(work: Workload, here: Site) -> float:
    """Model FLOPs over peak."""
    step = site_step(work, here)
    total = step.compute_s + (step.data_s or 0) + (step.optimizer_s or 0)
    peak = here.accelerator.peak_flops(work.precision)
    return flops_per_token(work) * tokens_per_accelerator(work) / (total * peak)


@pytest.mark.parametrize("name", ["llama-70b-two-campuses", "llama-405b-four-campuses"])
def test_the_large_scenarios_are_plausible(name: str) -> None:
    """Published runs of such models reach 38 to 46 % on Hopper; H200 saves recomputation and bandwidth."""
    scenario = load_scenario(name)
    assert 0.35 < mfu_of(scenario.workload, scenario.sites[0]) < 0.5


def capacity(rows: Rows) -> np.ndarray:
    return np.array([40e9 if "40GB" in cluster else 80e9 for cluster in rows.cluster])


@pytest.mark.parametrize(
    "rows",
    [vtrain.load("single_node"), vtrain.load("multi_node"), llm_foundry.load(), megatron.load(2, 1)],
    ids=["single", "multi", "llm-foundry", "megatron"],
)
def test_what_was_run_fits_its_memory(rows: Rows) -> None:
    """Each of these runs fitted. Four rows of one model (350m, 18 sequences, 40 GB) come out 1 % above."""
    used = memory(rows.shape, rows.split, rows.machine).total / capacity(rows)
    assert used.max() <= 1.02
    assert (used <= 1).mean() >= 0.97


def test_runs_that_fill_their_memory_come_out_nearly_full() -> None:
    """llm-foundry took the largest micro-batch that fits: the largest runs need most of their memory."""
    rows = llm_foundry.load()
    used = memory(rows.shape, rows.split, rows.machine).total / capacity(rows)
    assert np.quantile(used, 0.9) > 0.85


def test_peaks_are_those_that_the_tables_use() -> None:
    assert accelerators()["A100-80"].bf16_flops == 312e12


def test_a_published_run_stated_as_a_user_states_it() -> None:
    """GPT-3 175B on 512 A100: vTrain measured 55.7 s (tensor 8, pipeline 16, data 4, micro-batch 3)."""
    fabric = Fabric(
        intra_node=Hop(bandwidth_bytes_per_s=300e9, latency_s=2e-6),
        inter_node=Hop(bandwidth_bytes_per_s=12.5e9, latency_s=5e-6),
    )
    here = Site(name="here", accelerator="A100-80", nodes=64, accelerators_per_node=8, fabric=fabric)
    work = workload(
        "gpt3-175b",
        tensor=8,
        pipeline=16,
        micro_batch=3,
        micro_batches=128,
        recompute="full",
        attention="standard",
        overlap=False,
        sequence=2048,
        precision="fp16",
        gradient_dtype="fp16",
    )
    step = site_step(work, here)
    assert step.compute_s + (step.data_s or 0) + (step.optimizer_s or 0) == pytest.approx(55.68, rel=0.08)
