"""The policies that are built in: what the papers and reports behind them say."""

import os
from operator import attrgetter

import pytest
import yaml

from geosim.errors import UsageError
from geosim.policy import (
    E3M0,
    Accumulate,
    Blocking,
    Cast,
    Delayed,
    Dense,
    Eager,
    Feedback,
    Integer,
    Local,
    NoResidual,
    OuterSGD,
    RandomK,
    Streaming,
    TopK,
    load_policy,
    policy_from_dict,
    preset_names,
)


def test_the_presets_that_are_promised():
    promised = {
        "ddp", "ddp-fp16", "hierarchical-efsgd", "layerwise-8bit", "local-sgd", "diloco", "eager-diloco",
        "streaming-diloco", "streaming-diloco-e3m0", "sparse-loco",
    }  # fmt: skip
    assert promised <= set(preset_names())


@pytest.mark.parametrize("name", preset_names())
def test_a_preset_is_named_like_its_file_explained_and_survives_yaml(name):
    policy = load_policy(name)
    assert policy.name == name
    assert len(policy.about) > 20
    assert policy_from_dict(yaml.safe_load(policy.to_yaml())) == policy


def test_no_two_presets_mean_the_same():
    prints = [load_policy(name).fingerprint() for name in preset_names()]
    assert len(set(prints)) == len(prints)


def test_hierarchical_efsgd_is_report_a():
    policy = load_policy("hierarchical-efsgd")
    assert isinstance(policy.update, Accumulate)
    assert policy.interval == 16
    assert policy.codec.select == TopK(ratio=0.01, scope="piece")
    assert isinstance(policy.codec.quantize, Integer)
    assert policy.codec.quantize.kind == "int8"
    assert policy.codec.residual == Feedback(decay=1.0)
    assert policy.overlap == Delayed(windows=1)


def test_layerwise_8bit_is_report_b():
    policy = load_policy("layerwise-8bit")
    assert policy.codec.select == Dense()
    assert policy.codec.quantize.bits == 8
    assert policy.codec.small_dtype == "fp16"
    assert policy.codec.small_below_bytes > 0
    assert policy.order == "largest-first"
    assert policy.chunk_bytes == 8 * 1024**2


@pytest.mark.parametrize("name", ["diloco", "eager-diloco", "streaming-diloco"])
def test_the_diloco_family_takes_an_outer_nesterov_step(name):
    outer = load_policy(name).update.outer
    assert (outer.momentum, outer.nesterov) == (0.9, True)


def test_what_tells_the_local_presets_apart():
    assert load_policy("local-sgd").update == Local(outer=OuterSGD(lr=1.0))
    assert load_policy("eager-diloco").overlap == Eager(windows=1)
    assert load_policy("diloco").interval == load_policy("eager-diloco").interval == 500
    assert isinstance(load_policy("streaming-diloco").overlap, Streaming)
    assert load_policy("streaming-diloco").codec.quantize == Cast(kind="bf16")
    assert isinstance(load_policy("streaming-diloco-e3m0").codec.quantize, E3M0)
    assert isinstance(load_policy("streaming-diloco-e3m0").codec.residual, NoResidual)
    sparse = load_policy("sparse-loco").codec
    assert sparse.select.scope * sparse.select.ratio == 64
    assert (sparse.quantize.bits, sparse.residual.decay) == (2, 0.95)


def test_ddp_sends_everything_every_step():
    assert load_policy("ddp").codec.quantize == Cast(kind="fp32")
    assert load_policy("ddp-fp16").codec.quantize == Cast(kind="fp16")


def test_fields_are_set_by_their_path_also_below_a_bare_word():
    policy = load_policy(
        "layerwise-8bit", {"interval": 8, "codec.select": "topk", "codec.select.ratio": 0.05}
    )
    assert policy.interval == 8
    assert policy.codec.select == TopK(ratio=0.05)
    assert load_policy("diloco", {"overlap.kind": "delayed", "overlap.windows": 2}).overlap == Delayed(
        windows=2
    )


@pytest.mark.parametrize(
    ("name", "changes", "path", "value"),
    [
        ("hierarchical-efsgd", {"codec.select.kind": "dense"}, "codec.select", Dense()),
        ("hierarchical-efsgd", {"codec.quantize.kind": "bf16"}, "codec.quantize", Cast(kind="bf16")),
        ("hierarchical-efsgd", {"codec.quantize.kind": "e3m0"}, "codec.quantize", E3M0(group=64)),
        ("hierarchical-efsgd", {"overlap.kind": "blocking"}, "overlap", Blocking()),
        ("hierarchical-efsgd", {"update.kind": "local"}, "update", Local()),
        ("sparse-loco", {"codec.residual.kind": "none"}, "codec.residual", NoResidual()),
        ("streaming-diloco", {"overlap.kind": "eager"}, "overlap", Eager()),
        ("diloco", {"update.kind": "accumulate"}, "update", Accumulate()),
        ("diloco", {"update.outer.kind": "sgd"}, "update.outer", OuterSGD(lr=0.7)),
        (
            "sparse-loco",
            {"codec.select.kind": "randomk"},
            "codec.select",
            RandomK(ratio=0.015625, scope=4096),
        ),
    ],
)
def test_another_kind_drops_what_only_the_old_one_knew(name, changes, path, value):
    assert attrgetter(path)(load_policy(name, changes)) == value


@pytest.mark.parametrize("backwards", [False, True])
def test_a_field_that_is_set_beside_a_kind_that_lacks_it_is_refused(backwards):
    changes = [("codec.select.kind", "dense"), ("codec.select.ratio", 0.5)]
    with pytest.raises(UsageError, match=r"codec\.select\.ratio: unknown key; kind 'dense' has it not"):
        load_policy("hierarchical-efsgd", dict(reversed(changes) if backwards else changes))


def test_a_file_is_read_like_a_preset(tmp_path):
    path = tmp_path / "policy.yaml"
    path.write_text(load_policy("sparse-loco").to_yaml())
    assert load_policy(str(path)) == load_policy("sparse-loco")


def test_a_pipe_is_read_like_a_file():
    reader, writer = os.pipe()
    with open(writer, "w") as file:
        file.write(load_policy("diloco").to_yaml())
    with open(reader):
        assert load_policy(f"/dev/fd/{reader}") == load_policy("diloco")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("dilco", "policy 'dilco' is neither built in nor a file: did you mean 'diloco'?"),
        ("", "policy '' is neither built in nor a file"),
        ("zzz", f"policy 'zzz' is neither built in nor a file: built in: {', '.join(preset_names())}"),
        ("a" * 5000, "policy 'aaaa"),
        ("/", "policy '/' is neither built in nor a file"),
        ("no/such.yaml", "no/such.yaml: cannot read: No such file or directory"),
    ],
)
def test_a_policy_that_is_not_there(name, message):
    with pytest.raises(UsageError) as caught:
        load_policy(name)
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"interval": 0}, "policy ddp: interval: "),
        ({"intervall": 1}, "policy ddp: intervall: unknown key; did you mean 'interval'?"),
        ({"codec.select.ratio": 2}, "policy ddp: codec.select.ratio: unknown key; kind 'dense' has it not"),
        ({"groups.0.share": 1}, "policy ddp: groups: must be a list"),
    ],
)
def test_a_change_that_is_wrong(changes, message):
    with pytest.raises(UsageError) as caught:
        load_policy("ddp", changes)
    assert str(caught.value).startswith(message)
