"""config.json: parameters are those that the publishers state, to the last one."""

import json
from pathlib import Path

import pytest

from geosim.calibrate import read_file
from geosim.errors import UsageError
from geosim.scenario import load_scenario

FIXTURES = Path(__file__).parent / "fixtures"
# Trainable parameters of the released weights (sums of their tensors, as Hugging Face shows them).
PUBLISHED = {
    "llama-3.1-8b": 8_030_261_248,
    "llama-3.1-70b": 70_553_706_496,
    "llama-3.1-405b": 405_853_388_800,
    "llama-3.2-1b": 1_235_814_400,
    "mistral-7b": 7_241_732_096,
    "mixtral-8x7b": 46_702_792_704,
    "qwen2.5-7b": 7_615_616_512,
    "qwen3-8b": 8_190_735_360,
    "gpt2": 124_439_808,
    "gpt-neox-20b": 20_554_567_680,
    "opt-1.3b": 1_315_758_080,
    "bloom-176b": 176_247_271_424,
    "gemma-2b": 2_506_172_416,
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


def test_active_parameters_of_experts():
    """Mixtral states 12.9 billion active parameters (arXiv 2401.04088)."""
    facts = {f.name: f.text for f in read_file(FIXTURES / "config-mixtral-8x7b.json").facts}
    assert int(facts["active parameters"].replace(",", "")) == pytest.approx(12.9e9, rel=0.005)


@pytest.mark.parametrize(
    ("name", "changes", "says"),
    [
        ("deepseek-v3", {}, "model_type: deepseek_v3 cannot be expressed: keys and values"),
        ("qwen3-0.6b", {}, "head_dim: 128 x 16 heads is not hidden_size 1024"),
        ("gpt2", {"model_type": "gpt7"}, "model_type: 'gpt7' is unknown: known are bloom, gemma, gpt2"),
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


def test_qwen3_moe_wider_heads_are_refused_and_equal_ones_read(tmp_path):
    config = {
        "model_type": "qwen3_moe", "hidden_size": 2048, "num_hidden_layers": 4, "num_attention_heads": 16,
        "head_dim": 128,
        "num_key_value_heads": 4, "intermediate_size": 6144, "moe_intermediate_size": 768, "num_experts": 8,
        "num_experts_per_tok": 2, "vocab_size": 1000, "tie_word_embeddings": False,
    }  # fmt: skip
    file = tmp_path / "config.json"
    file.write_text(json.dumps(config))
    model = read_file(file).values[0].plain
    assert (model["ffn"], model["experts"], model["experts_per_token"]) == (768, 8, 2)
    file.write_text(json.dumps({**config, "num_attention_heads": 32}))
    with pytest.raises(UsageError, match="head_dim: 128 x 32"):
        read_file(file)


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
