"""What is built in: figures against what their publishers print, and every entry says where it comes from."""

import pytest
import yaml

from geosim.cost.step.describe import sequences_per_accelerator
from geosim.errors import UsageError
from geosim.scenario import Scenario, accelerators, load_scenario, models, scenario_names
from geosim.scenario.accelerator import PRECISIONS
from geosim.spec import from_dict

PUBLISHED_TOTALS = {
    "gpt2-124m": 124_439_808,
    "gpt2-355m": 354_823_168,
    "gpt2-774m": 774_030_080,
    "gpt2-1.5b": 1_557_611_200,
    "llama-7b": 6_738_415_616,
    "llama-13b": 13_015_864_320,
    "llama-2-70b": 68_976_648_192,
    "llama-3.2-1b": 1_235_814_400,
    "llama-3-8b": 8_030_261_248,
    "llama-3-70b": 70_553_706_496,
    "llama-3.1-405b": 405_853_388_800,
    "tinyllama-1.1b": 1_100_048_384,
    "mistral-7b": 7_241_732_096,
    "mpt-7b": 6_649_286_656,
}
NOMINAL_TOTALS = {
    "gpt3-1.3b": 1.3e9,
    "gpt3-2.7b": 2.7e9,
    "gpt3-6.7b": 6.7e9,
    "gpt3-13b": 13e9,
    "gpt3-175b": 175e9,
    "intellect-1-10b": 10.2e9,
}


@pytest.mark.parametrize(("name", "total"), PUBLISHED_TOTALS.items())
def test_a_model_has_exactly_its_published_number_of_parameters(name, total):
    assert models()[name].param_table().numel == total


@pytest.mark.parametrize(("name", "total"), NOMINAL_TOTALS.items())
def test_a_model_known_by_its_nominal_size_is_within_two_per_cent(name, total):
    assert models()[name].param_table().numel == pytest.approx(total, rel=0.02)


def test_models_reach_from_124_million_to_405_billion_and_name_their_source():
    sizes = [m.param_table().numel for m in models().values()]
    assert min(s for s in sizes if s > 1e8) < 1.25e8
    assert max(sizes) > 4e11
    assert all(m.source for m in models().values())


@pytest.mark.parametrize("name", ["byte-gpt-tiny", "byte-gpt-3m", "byte-gpt-19m"])
def test_the_byte_models_have_the_tensors_of_those_that_train(name):
    torch = pytest.importorskip("torch")
    from runtime.models import GPT, PRESETS

    with torch.device("meta"):
        real = GPT(PRESETS[name])
    described = models()[name].param_table()
    assert sorted(t.shape for t in described.tensors()) == sorted(tuple(p.shape) for p in real.parameters())
    assert described.layers == PRESETS[name].layers
    assert (models()[name].heads, models()[name].positions) == (PRESETS[name].heads, PRESETS[name].sequence)


@pytest.mark.parametrize("model", models().values(), ids=list(models()))
def test_a_model_is_its_embeddings_and_equal_layers(model):
    table = model.param_table("bf16")
    tensors = table.tensors()
    assert table.layers == model.layers
    assert len({t.name for t in tensors}) == len(tensors)
    assert {t.dtype for t in tensors} == {"bf16"}
    per_layer = {i: sum(t.numel for t in tensors if t.layer == i) for i in (0, model.layers - 1)}
    assert len(set(per_layer.values())) == 1
    heads = sum(t.name == "head.weight" for t in tensors)
    assert heads == (not model.tied)


def test_the_accelerators_that_users_have():
    assert set(accelerators()) == {
        "A100-40", "A100-80", "H100", "H200", "B200", "L40S", "RTX-4090", "cpu-core",
    }  # fmt: skip


@pytest.mark.parametrize("device", accelerators().values(), ids=list(accelerators()))
def test_peaks_are_dense_and_ordered_by_precision(device):
    assert len(device.source) > 15
    offered = [p for p in PRECISIONS if getattr(device, f"{p}_flops") is not None]
    peaks = [device.peak_flops(p) for p in offered]
    assert peaks == sorted(peaks)
    if device.name != "cpu-core":
        # Tensor cores halve from fp8 to 16 bits to TF32; a sparse figure would be a factor 2 off.
        assert device.fp16_flops == device.bf16_flops
        assert device.bf16_flops == pytest.approx(2 * device.tf32_flops, rel=0.03)
        if device.fp8_flops is not None:
            assert device.fp8_flops == pytest.approx(2 * device.bf16_flops, rel=0.03)


def test_a_precision_that_a_device_lacks_is_refused():
    with pytest.raises(
        UsageError, match=r"workload\.precision: A100-80 has no fp8: use one of fp32, tf32, bf16, fp16"
    ):
        accelerators()["A100-80"].peak_flops("fp8")
    with pytest.raises(UsageError, match=r"cpu-core has no bf16: use one of fp32$"):
        accelerators()["cpu-core"].peak_flops("bf16")


@pytest.mark.parametrize("name", scenario_names())
def test_a_scenario_says_what_is_trained_and_survives_yaml(name):
    scenario = load_scenario(name)
    work = scenario.workload
    sequences = "sequence" if work.batch_per_accelerator == 1 else "sequences"
    assert scenario.name == name
    said = " ".join(scenario.about.split())
    assert work.model.name in said
    batch = f"{work.batch_per_accelerator} {sequences} of {work.sequence} tokens an accelerator and step"
    if work.parallel is not None and work.parallel.micro_batches is not None:
        site_sequences = sequences_per_accelerator(work) * scenario.sites[0].ranks
        batch = f"{site_sequences:.0f} sequences of {work.sequence} tokens a campus and step"
    assert batch in said
    again = from_dict(Scenario, yaml.safe_load(scenario.to_yaml()), name)
    assert again == scenario
    assert again.to_yaml() == scenario.to_yaml()
    assert hash(again) == hash(scenario)


@pytest.mark.parametrize("name", scenario_names())
def test_a_scenario_could_run(name):
    scenario = load_scenario(name)
    for i, a in enumerate(scenario.sites):
        for b in scenario.sites[i + 1 :]:
            assert scenario.link(a.name, b.name) is not None
    peaks = [site.accelerator.peak_flops(scenario.workload.precision) for site in scenario.sites]
    assert min(peaks) > 0
    # Weights, gradients and Adam's moments, spread over a site, fit into its memory.
    numel = scenario.workload.model.param_table().numel
    assert all(16 * numel < 0.8 * site.ranks * site.accelerator.memory_bytes for site in scenario.sites)
    positions = scenario.workload.model.positions
    assert not positions or scenario.workload.sequence <= positions


def test_beijing_ningxia_is_report_a():
    scenario = load_scenario("beijing-ningxia")
    assert [site.ranks for site in scenario.sites] == [4, 4]
    hop = scenario.sites[0].fabric.intra_node
    assert (hop.bandwidth_bytes_per_s, hop.latency_s) == (100e9, 2e-6)
    assert (scenario.wan[0].bandwidth_bytes_per_s, scenario.wan[0].rtt_s) == (1.25e9, 0.03)
    assert 6e9 < scenario.workload.model.param_table().numel < 8e9
    assert "Assumed: A100-80" in scenario.about


def test_hongkong_siliconvalley_is_report_b():
    scenario = load_scenario("hongkong-siliconvalley")
    a, b = scenario.sites
    assert (a.ranks, a.accelerator.name) == (8, "A100-80")
    assert (b.ranks, b.accelerator.name) == (16, "H100")
    assert a.fabric.intra_node.bandwidth_bytes_per_s * 2 == 600e9
    assert b.fabric.intra_node.bandwidth_bytes_per_s * 2 == 900e9
    nic = [s.fabric.inter_node.bandwidth_bytes_per_s * s.accelerators_per_node * 8 for s in (a, b)]
    assert nic == [40e9, 100e9]
    link = scenario.wan[0]
    assert (link.bandwidth_bytes_per_s, link.rtt_s) == (5e9, 0.18)
    assert link.jitter_s > 0


def test_laptop_is_two_by_two_cores_over_100_megabit():
    scenario = load_scenario("laptop")
    assert [(s.ranks, s.accelerator.name) for s in scenario.sites] == [(2, "cpu-core")] * 2
    assert (scenario.wan[0].bandwidth_bytes_per_s * 8, scenario.wan[0].rtt_s) == (100e6, 0.04)


def test_four_regions_are_the_measured_ones():
    scenario = load_scenario("four-regions")
    assert len(scenario.sites) == 4
    assert {frozenset(w.between): (w.rtt_s, w.bandwidth_bytes_per_s * 8 / 1e9) for w in scenario.wan} == {
        frozenset(pair): (pytest.approx(ms / 1000), pytest.approx(gbit))
        for pair, ms, gbit in [
            (("oregon", "virginia"), 67, 0.79),
            (("oregon", "frankfurt"), 143, 0.404),
            (("oregon", "tokyo"), 96, 0.523),
            (("virginia", "frankfurt"), 90, 1.02),
            (("virginia", "tokyo"), 143, 0.524),
            (("tokyo", "frankfurt"), 223, 0.36),
        ]
    }
    # One flow fills each link, as it did where it was measured.
    assert all(w.window_bytes > w.bandwidth_bytes_per_s * w.rtt_s for w in scenario.wan)
