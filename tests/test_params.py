"""The shape of a model."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from geosim.errors import UsageError
from geosim.params import DTYPE_BYTES, ParamSpec, ParamTable, table

BLOCK = (
    ParamSpec("embed", (10, 4)),
    ParamSpec("h.{layer}.a", (4, 4), layer=0, repeat=3),
    ParamSpec("h.{layer}.b", (4,), layer=0, repeat=3),
    ParamSpec("norm", (4,)),
)


def test_repeats_are_written_out_layer_by_layer_in_model_order():
    names = [(t.name, t.layer) for t in ParamTable(BLOCK).tensors()]
    assert names == [
        ("embed", None),
        ("h.0.a", 0), ("h.0.b", 0), ("h.1.a", 1), ("h.1.b", 1), ("h.2.a", 2), ("h.2.b", 2),
        ("norm", None),
    ]  # fmt: skip


def test_a_block_that_is_there_once_gets_its_number_too():
    one = ParamTable((ParamSpec("h.{layer}.a", (4, 4), layer=0), ParamSpec("norm", (4,))))
    assert [t.name for t in one.tensors()] == ["h.0.a", "norm"]


def test_two_runs_of_blocks_follow_each_other():
    two = ParamTable(
        (ParamSpec("x.{layer}", (2,), layer=0, repeat=2), ParamSpec("y.{layer}", (3,), layer=2, repeat=2))
    )
    assert [(t.name, t.layer) for t in two.tensors()] == [("x.0", 0), ("x.1", 1), ("y.2", 2), ("y.3", 3)]
    assert two.layers == 4


@settings(deadline=None)
@given(st.lists(st.tuples(st.lists(st.integers(0, 9), max_size=3), st.integers(1, 5)), max_size=6))
def test_writing_out_keeps_the_number_of_elements(rows):
    specs = tuple(
        ParamSpec(f"t{i}.{{layer}}", tuple(shape), layer=0, repeat=repeat)
        for i, (shape, repeat) in enumerate(rows)
    )
    whole = ParamTable(specs)
    out = whole.tensors()
    assert sum(t.numel for t in out) == whole.numel
    assert len(out) == sum(s.repeat for s in specs)
    assert len({t.name for t in out}) == len(out)
    assert all(t.repeat == 1 for t in out)
    assert ParamTable(out).tensors() == out
    assert ParamTable(out).fingerprint() == whole.fingerprint()


def test_layers_and_sizes():
    whole = ParamTable(BLOCK)
    assert whole.layers == 3
    assert whole.numel == 40 + 3 * 20 + 4
    assert ParamTable(()).layers == ParamTable(()).numel == 0
    assert ParamSpec("scalar", ()).numel == 1


@pytest.mark.parametrize(
    "other",
    [
        ParamSpec("norm2", (4,)),
        ParamSpec("norm", (2, 2)),
        ParamSpec("norm", (4,), dtype="bf16"),
        ParamSpec("norm", (4,), layer=3),
    ],
)
def test_the_fingerprint_sees_name_shape_dtype_and_layer(other):
    assert ParamTable((*BLOCK[:-1], other)).fingerprint() != ParamTable(BLOCK).fingerprint()


def test_the_fingerprint_sees_the_order():
    assert ParamTable(BLOCK[::-1]).fingerprint() != ParamTable(BLOCK).fingerprint()


def test_a_table_from_named_parameters_reads_the_layer_off_the_name():
    rows = [
        ("token.weight", (5, 2)),
        ("blocks.3.attn.qkv.weight", (6, 2)),
        ("h.0.mlp.2.w", (2,)),
        ("layer7.w", (1,)),
    ]
    made = table(rows, dtype="bf16")
    assert [t.layer for t in made.tensors()] == [None, 3, 0, None]
    assert [t.name for t in made.tensors()] == [name for name, _ in rows]
    assert {t.dtype for t in made.tensors()} == {"bf16"}
    assert made.layers == 4


@pytest.mark.parametrize(
    ("fields", "advice"),
    [
        ({"dtype": "float32"}, ", ".join(DTYPE_BYTES)),
        ({"repeat": 0}, "repeat must be 1 or more"),
        ({"shape": (2, -1)}, "dimensions 0 or more"),
        ({"repeat": 2}, "first layer"),
        ({"repeat": 2, "layer": 0}, "'{layer}' in its name"),
    ],
)
def test_a_tensor_that_cannot_be_says_so(fields, advice):
    with pytest.raises(UsageError, match="weight: ") as caught:
        ParamSpec(**{"name": "weight", "shape": (2, 2), **fields})
    assert advice in str(caught.value)
