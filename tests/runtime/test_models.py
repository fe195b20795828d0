"""The GPT that the demo trains: its shape, its reproducible weights, and that it learns."""

import math

import pytest
import torch

from geosim.errors import UsageError
from runtime.models import PRESETS, GPTConfig, build, from_config

SMALL = GPTConfig(layers=2, d_model=32, heads=2, sequence=32)


def parameter_count(name):
    return sum(weight.numel() for weight in build(name, 0).parameters())


@pytest.mark.parametrize(
    ("name", "least", "most"),
    [
        ("byte-gpt-tiny", 1e5, 3e5),
        ("byte-gpt-3m", 3.0e6, 3.5e6),
        ("byte-gpt-19m", 1.85e7, 1.95e7),
    ],
)
def test_a_preset_has_the_size_its_name_says(name, least, most):
    assert least <= parameter_count(name) <= most


def test_the_parameter_count_follows_from_the_config():
    shape = PRESETS["byte-gpt-tiny"]
    matrices = 12 * shape.d_model**2 * shape.layers
    embeddings = (256 + shape.sequence) * shape.d_model
    norms = (2 * shape.layers + 1) * shape.d_model
    assert parameter_count("byte-gpt-tiny") == matrices + embeddings + norms


def test_names_carry_the_layer_and_the_tied_head_appears_once():
    names = [name for name, _ in build("byte-gpt-tiny", 0).named_parameters(remove_duplicate=False)]
    assert "blocks.3.attn.qkv.weight" in names
    layers = {name.split(".")[1] for name in names if name.startswith("blocks.")}
    assert layers == {"0", "1", "2", "3"}
    assert [name for name in names if not name.startswith("blocks.")] == [
        "token.weight",
        "position.weight",
        "norm.weight",
    ]


def test_logits_and_loss_have_their_shapes():
    model = from_config(SMALL, 0)
    tokens = torch.randint(256, (3, 20), generator=torch.Generator().manual_seed(0))
    assert model(tokens).shape == (3, 20, 256)
    loss = model.loss(tokens, tokens)
    assert loss.shape == ()
    assert loss.dtype == torch.float32


def test_loss_is_the_mean_over_all_tokens():
    model = from_config(SMALL, 0)
    tokens = torch.randint(256, (2, 9), generator=torch.Generator().manual_seed(1))
    log_probability = model(tokens[:, :-1]).log_softmax(-1)
    by_hand = -sum(
        log_probability[row, place, tokens[row, place + 1]] for row in range(2) for place in range(8)
    )
    torch.testing.assert_close(model.loss(tokens[:, :-1], tokens[:, 1:]), by_hand / 16)


def test_no_position_sees_the_bytes_after_it():
    model = from_config(SMALL, 0)
    tokens = torch.arange(20)[None]
    changed = tokens.clone()
    changed[0, 12] = 200
    before, after = model(tokens), model(changed)
    torch.testing.assert_close(before[:, :12], after[:, :12])
    assert (before[:, 12:] - after[:, 12:]).abs().amax(-1).min() > 0


def test_the_position_of_a_byte_matters():
    logits = from_config(SMALL, 0)(torch.full((1, 8), 65))
    assert (logits[0, 1:] - logits[0, :-1]).abs().amax(-1).min() > 0.01


@pytest.mark.parametrize("name", PRESETS)
def test_a_fresh_model_is_about_as_good_as_chance(name):
    model = build(name, 0)
    tokens = torch.randint(256, (4, 65), generator=torch.Generator().manual_seed(2))
    with torch.no_grad():
        loss = model.loss(tokens[:, :-1], tokens[:, 1:]).item()
    assert loss == pytest.approx(math.log(256), abs=0.4)


def test_weights_are_a_function_of_the_seed_alone():
    first = build("byte-gpt-tiny", 7).state_dict()
    torch.manual_seed(123)
    state = torch.get_rng_state()
    second = build("byte-gpt-tiny", 7).state_dict()
    assert torch.equal(state, torch.get_rng_state())
    other = build("byte-gpt-tiny", 8).state_dict()
    for name, weight in first.items():
        assert torch.equal(weight, second[name])
        assert weight.ndim == 1 or not torch.equal(weight, other[name])


def test_weights_have_the_scale_they_should():
    weights = dict(build("byte-gpt-3m", 0).named_parameters())
    spread = {name: weight.std().item() for name, weight in weights.items() if weight.ndim == 2}
    assert spread["token.weight"] == pytest.approx(256**-0.5 / 2, rel=0.02)
    assert spread["blocks.0.attn.qkv.weight"] == pytest.approx(256**-0.5, rel=0.02)
    assert spread["blocks.0.mlp.down.weight"] == pytest.approx((1024 * 8) ** -0.5, rel=0.02)
    assert all(torch.all(weight == 1) for weight in weights.values() if weight.ndim == 1)


def test_it_learns_in_thirty_steps():
    model = from_config(SMALL, 0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    line = b"for site in sites: exchange(site, window)\n"
    shares = [line.count(byte) / len(line) for byte in set(line)]
    without_context = -sum(share * math.log(share) for share in shares)
    text = torch.tensor(list(line * 8))
    windows = text.unfold(0, 33, 7)
    losses = []
    for _ in range(30):
        loss = model.loss(windows[:, :-1], windows[:, 1:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[0] == pytest.approx(math.log(256), abs=0.4)
    assert losses[-1] < without_context / 2


def test_an_unknown_name_is_told_what_is_near():
    with pytest.raises(UsageError, match=r"byte-gpt-3M.*choose byte-gpt-3m") as caught:
        build("byte-gpt-3M", 0)
    assert "\n" not in str(caught.value)
    with pytest.raises(UsageError, match="byte-gpt-tiny or byte-gpt-3m or byte-gpt-19m"):
        build("llama", 0)


@pytest.mark.parametrize("wrong", [{"layers": 0}, {"heads": 3}, {"sequence": -1}])
def test_an_impossible_shape_is_refused(wrong):
    shape = {"layers": 2, "d_model": 32, "heads": 2, "sequence": 32} | wrong
    with pytest.raises(UsageError, match=str(next(iter(wrong.values())))):
        GPTConfig(**shape)


def test_too_long_a_sequence_is_refused():
    with pytest.raises(UsageError, match="33 bytes are longer than the model's 32"):
        from_config(SMALL, 0)(torch.zeros(1, 33, dtype=torch.int64))
