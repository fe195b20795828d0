"""config.json: parameters are those that the publishers state, to the last one."""

import json
from pathlib import Path

import pytest

from geosim.calibrate import read_file
from geosim.errors import UsageError
from geosim.scenario import load_scenario

FIXTURES = Path(__file__).parent / "fixtures"
# Trainable parameters of the released weights: sums of their tensors as Hugging Face shows them (safetensors
# metadata), or as model cards and papers print them. Tied matrices that a file holds twice count once.
PUBLISHED = {
    "llama-3.1-8b": 8_030_261_248,
    "llama-3.1-70b": 70_553_706_496,
    "llama-3.1-405b": 405_853_388_800,
    "llama-3.2-1b": 1_235_814_400,
    "mistral-7b": 7_241_732_096,
    "mixtral-8x7b": 46_702_792_704,
    "mistral-nemo-12b": 12_247_782_400,
    "qwen2.5-7b": 7_615_616_512,
    "qwen2.5-72b": 72_706_203_648,
    "qwen3-0.6b": 596_049_920,
    "qwen3-8b": 8_190_735_360,
    "qwen3-32b": 32_762_123_264,
    "qwen3-30b-a3b": 30_532_122_624,
    "falcon-7b": 7_217_189_760 - 65_024 * 4544,  # the file holds the embedding twice
    "gpt2": 124_439_808,
    "gpt-neox-20b": 20_554_567_680,
    "opt-1.3b": 1_315_758_080,
    "bloom-176b": 176_247_271_424,
    "gemma-2b": 2_506_172_416,
    "gemma-2-9b": 9_241_705_984,
    # Of google/gemma-3-27b-pt 27,432,406,640; its encoder (SigLIP, 27 layers of 1152) and projector are not
    # in text_config: patches and positions, layers, the last norm; and 1152 x 5376 with a norm.
    "gemma-3-27b-text": 27_432_406_640
    - (1152 * (14 * 14 * 3 + 1 + 4096) + 27 * (4 * 1152 * 1153 + 2 * 1152 * 4304 + 4304 + 5 * 1152) + 2304)
    - (1152 * 5376 + 1152),
    "phi-3-mini": 3_821_079_552,
    "deepseek-llm-7b": 6_910_365_696,
}


@pytest.mark.parametrize(("name", "count"), PUBLISHED.items())
def test_the_count_is_the_published_one(name, count):
    reading = read_file(FIXTURES / f"config-{name}.json")
    assert {f.name: f.text for f in reading.facts}["parameters"] == f"{count:,}"
    model = load_scenario("laptop", {"workload.model": reading.values[0].plain}).workload.model
    # What a shape leaves out is vectors, and counted: the rest is exact.
    left_out = sum(
        int(i.text.split(": ")[1].split()[0].replace(",", ""))
        for i in reading.unknown
        if "shape has not" in i.text
    )
    assert model.param_table().numel + left_out == count
    assert left_out < 1e-4 * count


def test_a_known_model_goes_by_its_name():
    names = {"llama-3.1-8b": "llama-3-8b", "mixtral-8x7b": "mixtral-8x7b", "gpt2": "gpt2-124m"}
    for file, name in names.items():
        assert read_file(FIXTURES / f"config-{file}.json").values[0].plain == name


def facts_of(name: str) -> dict[str, int]:
    facts = read_file(FIXTURES / f"config-{name}.json").facts
    return {f.name: int(f.text.replace(",", "")) for f in facts}


def test_active_parameters_of_experts():
    """Mixtral states 12.9 billion active parameters (arXiv 2401.04088), Qwen3-30B-A3B 3.3 (its card)."""
    assert facts_of("mixtral-8x7b")["active parameters"] == pytest.approx(12.9e9, rel=0.005)
    assert facts_of("qwen3-30b-a3b")["active parameters"] == pytest.approx(3.3e9, rel=0.02)


def test_gemma_2_without_its_embedding_is_what_its_paper_prints():
    """arXiv 2408.00118, table 2; the paper's embedding has 128 more rows than the released one."""
    assert facts_of("gemma-2-9b")["parameters"] - 256_000 * 3584 == 8_324_201_984


def test_gpt_oss_is_what_its_card_prints():
    """arXiv 2508.10925, table 1: 116.83 and, of which a token meets, 5.13 billion without the embedding."""
    facts = facts_of("gpt-oss-120b")
    assert f"{facts['parameters'] / 1e9:.2f}" == "116.83"
    # The card counts the biases of the experts that a token meets, here all of them are.
    without = facts["active parameters"] - 201_088 * 2880
    assert without / 1e9 == pytest.approx(5.13, abs=0.05)


def test_a_falcon_with_biases(tmp_path):
    """tiiuae/falcon-rw-1b: norms one after the other, biases everywhere; 1.3 billion by its card."""
    config = {
        "model_type": "falcon", "alibi": True, "bias": True, "hidden_size": 2048, "multi_query": False,
        "new_decoder_architecture": False, "num_attention_heads": 32, "num_hidden_layers": 24,
        "parallel_attn": False, "vocab_size": 50304,
    }  # fmt: skip
    file = tmp_path / "config.json"
    file.write_text(json.dumps(config))
    reading = read_file(file)
    assert int(reading.facts[0].text.replace(",", "")) == pytest.approx(1.31e9, rel=0.002)
    assert not any("shape has not" in i.text for i in reading.unknown)
    file.write_text(json.dumps({**config, "parallel_attn": True}))
    with pytest.raises(UsageError, match="bias: true"):
        read_file(file)


@pytest.mark.parametrize(
    ("name", "changes", "says"),
    [
        ("deepseek-v3", {}, "model_type: deepseek_v3 cannot be expressed: keys and values"),
        ("qwen3-8b", {"head_dim": 0}, "head_dim: a whole number of 1 or more is expected, got 0"),
        ("gemma-3-27b-text", {"model_type": "gemma3", "text_config": {"model_type": "gemma3_text"}},
         "gemma3 cannot be expressed: it has an encoder .*; its text_config can be read, in a file of its"),
        ("gpt2", {"model_type": "gpt7"}, "model_type: 'gpt7' is unknown: known are bloom, falcon, gemma"),
        ("gpt2", {"model_type": None}, "model_type: missing"),
        ("gpt2", {"n_layer": None}, "n_layer: missing: a whole number of 1 or more is expected"),
        ("gpt2", {"n_layer": 12.5}, r"n_layer: a whole number of 1 or more is expected, got 12\.5"),
        ("gpt2", {"n_embd": "wide"}, 'n_embd: a whole number of 1 or more is expected, got "wide"'),
        ("gpt2", {"n_head": 7}, "heads: 7 does not divide d_model"),
        ("llama-3.1-8b", {"num_key_value_heads": 5}, "kv_heads: 5 does not divide heads"),
        ("opt-1.3b", {"word_embed_proj_dim": 512}, "word_embed_proj_dim"),
        ("gpt-neox-20b", {"attention_bias": False}, "attention_bias"),
    ],
)  # fmt: skip
def test_what_cannot_be_expressed_is_named(tmp_path, name, changes, says):
    file = tmp_path / "config.json"
    file.write_text(json.dumps({**json.loads((FIXTURES / f"config-{name}.json").read_text()), **changes}))
    with pytest.raises(UsageError, match=says):
        read_file(file)


def test_heads_have_a_width_of_their_own_only_where_they_need_one(tmp_path):
    config = json.loads((FIXTURES / "config-qwen3-30b-a3b.json").read_text())
    file = tmp_path / "config.json"

    def head_dim(**changes):
        file.write_text(json.dumps({**config, **changes}))
        return read_file(file).values[0].plain.get("head_dim")

    assert head_dim() == 128
    assert head_dim(head_dim=None) == 128  # the type's default
    assert head_dim(num_attention_heads=16) is None  # 16 x 128 = 2048 = hidden_size
    model = read_file(FIXTURES / "config-qwen3-30b-a3b.json").values[0].plain
    assert (model["ffn"], model["experts"], model["experts_per_token"]) == (768, 128, 8)


def test_mpt(tmp_path):
    """Sizes of mosaicml/mpt-7b, which states 6.65 billion parameters."""
    config = {"model_type": "mpt", "d_model": 4096, "n_heads": 32, "n_layers": 32, "expansion_ratio": 4}
    file = tmp_path / "config.json"
    file.write_text(json.dumps({**config, "no_bias": True, "vocab_size": 50432}))
    reading = read_file(file)
    assert reading.values[0].plain == "mpt-7b"
    assert reading.facts[0].text == "6,649,286,656"
    file.write_text(json.dumps({**config, "no_bias": False, "vocab_size": 50432}))
    with pytest.raises(UsageError, match="no_bias: false"):
        read_file(file)
