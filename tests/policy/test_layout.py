"""The layout: every element travels exactly once, and bytes have one source."""

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from geosim.errors import UsageError
from geosim.params import ParamSpec, ParamTable
from geosim.policy import (
    Blocking,
    Codec,
    Delayed,
    Feedback,
    Group,
    Integer,
    Local,
    RandomK,
    Streaming,
    SyncPolicy,
    TopK,
    load_policy,
    make_layout,
    preset_names,
)
from geosim.policy.codec import HEADER_BYTES
from geosim.scenario import models

shapes = st.lists(st.integers(1, 70), max_size=2).map(tuple)


@st.composite
def tables(draw):
    layers = draw(st.integers(1, 6))
    inside = draw(st.lists(shapes, min_size=1, max_size=4))
    outside = draw(st.lists(shapes, max_size=3))
    rows = [ParamSpec(f"h.{{layer}}.w{i}", s, layer=0, repeat=layers) for i, s in enumerate(inside)]
    rows += [ParamSpec(f"out{i}", s) for i, s in enumerate(outside)]
    return ParamTable(tuple(rows))


codecs = st.builds(
    Codec,
    select=st.builds(TopK, ratio=st.floats(0.001, 1), scope=st.sampled_from(["piece", "fragment", 16, 100]))
    | st.builds(RandomK, ratio=st.floats(0.001, 1), scope=st.sampled_from(["piece", "fragment", 64])),
    quantize=st.sampled_from(
        [Integer(), Integer(kind="int4", group=8), Integer(kind="int8", group="section")]
    ),
    residual=st.just(Feedback()),
    small_below_bytes=st.sampled_from([0.0, 100.0, 1000.0]),
    small_dtype=st.sampled_from(["fp32", "fp16"]),
)
groupings = st.lists(
    st.builds(Group, share=st.floats(0, 0.33), overlap=st.sampled_from([Blocking(), Delayed()])), max_size=3
).map(tuple)


@st.composite
def layouts(draw):
    table = draw(tables())
    common = {"codec": draw(codecs), "order": draw(st.sampled_from(["largest-first", "model"]))}
    if draw(st.booleans()):
        overlap = Streaming(fragments=draw(st.integers(1, table.layers)), steps=0)
        policy = SyncPolicy(update=Local(), interval=50, overlap=overlap, **common)
    else:
        policy = SyncPolicy(groups=draw(groupings), **common)
    return table, make_layout(table, policy, draw(st.integers(1, 9)))


@settings(deadline=None)
@given(layouts())
def test_pieces_tile_every_tensor_exactly_once(made):
    table, layout = made
    assert layout.tensors == table.tensors()
    block = layout.policy.codec.block
    seen = {i: [] for i in range(len(layout.tensors))}
    for fragment in layout.fragments:
        for shard in range(layout.shards):
            for piece in layout.pieces(fragment.index, shard):
                assert piece.shard == shard
                assert piece.tensor in fragment.tensors
                assert piece.numel == piece.stop - piece.start > 0
                seen[piece.tensor].append((piece.start, piece.stop))
    for i, tensor in enumerate(layout.tensors):
        at = 0
        for start, stop in sorted(seen[i]):
            assert start == at
            assert start % block == 0
            assert stop % block == 0 or stop == tensor.numel
            at = stop
        assert at == tensor.numel


@settings(deadline=None)
@given(layouts())
def test_every_tensor_is_in_one_fragment(made):
    _, layout = made
    assert sorted(i for f in layout.fragments for i in f.tensors) == list(range(len(layout.tensors)))
    assert [f.index for f in layout.fragments] == list(range(len(layout.fragments)))
    assert sum(layout.fragment_numel(f.index) for f in layout.fragments) == sum(
        t.numel for t in layout.tensors
    )


@settings(deadline=None)
@given(layouts())
def test_a_fragments_bytes_are_those_of_its_payloads(made):
    _, layout = made
    for f in range(len(layout.fragments)):
        payloads = [layout.payload_bytes(f, s) for s in range(layout.shards)]
        assert layout.fragment_bytes(f) == sum(payloads)
        assert min(payloads) >= HEADER_BYTES


@settings(deadline=None)
@given(layouts())
def test_shards_own_equal_parts_of_each_tensor_to_one_block(made):
    _, layout = made
    block = layout.policy.codec.block
    for f in range(len(layout.fragments)):
        for shard in range(layout.shards):
            for piece in layout.pieces(f, shard):
                assert piece.numel < layout.tensors[piece.tensor].numel / layout.shards + block + 1


@settings(deadline=None)
@given(layouts())
def test_small_is_a_property_of_the_whole_tensor(made):
    _, layout = made
    for f in range(len(layout.fragments)):
        for shard in range(layout.shards):
            for piece in layout.pieces(f, shard):
                assert piece.small == (
                    layout.tensors[piece.tensor].numel * 4 < layout.policy.codec.small_below_bytes
                )


@settings(deadline=None)
@given(layouts())
def test_tensors_travel_largest_first_or_in_model_order(made):
    _, layout = made
    for fragment in layout.fragments:
        key = (
            (lambda i: (-layout.tensors[i].numel, i))
            if layout.policy.order == "largest-first"
            else (lambda i: i)
        )
        assert list(fragment.tensors) == sorted(fragment.tensors, key=key)


def streaming(fragments, interval=100):
    return SyncPolicy(update=Local(), interval=interval, overlap=Streaming(fragments=fragments))


@settings(deadline=None)
@given(tables(), st.data())
def test_streaming_fragments_are_strided_layers(table, data):
    count = data.draw(st.integers(1, table.layers))
    layout = make_layout(table, streaming(count), 2)
    assert len(layout.fragments) == count
    for fragment in layout.fragments:
        assert fragment.overlap == Streaming(fragments=count)
        layers = {layout.tensors[i].layer for i in fragment.tensors} - {None}
        assert layers == set(range(fragment.index, table.layers, count))


def test_what_is_outside_the_layers_goes_to_the_smallest_fragment():
    rows = [
        ParamSpec("embed", (100,)),
        *[ParamSpec(f"h.{i}", (10,), layer=i) for i in range(5)],
        ParamSpec("norm", (1,)),
    ]
    layout = make_layout(ParamTable(tuple(rows)), streaming(2), 1)
    names = [{layout.tensors[i].name for i in f.tensors} for f in layout.fragments]
    # Layers 0, 2, 4 make 30, layers 1, 3 make 20: the embedding goes to the second, the norm to the first.
    assert names == [{"h.0", "h.2", "h.4", "norm"}, {"h.1", "h.3", "embed"}]


def test_more_fragments_than_layers_are_refused():
    with pytest.raises(
        UsageError, match=r"overlap\.fragments: 5 is more than the model's 4 layers: use 4 or fewer"
    ):
        make_layout(models()["byte-gpt-3m"].param_table(), streaming(5), 2)
    flat = ParamTable((ParamSpec("w", (3,)),))
    assert len(make_layout(flat, streaming(1), 1).fragments) == 1
    with pytest.raises(UsageError, match="use 1 or fewer"):
        make_layout(flat, streaming(2), 1)


def test_groups_take_the_largest_tensors_until_their_share_is_reached():
    sizes = [5, 40, 10, 25, 20]
    table = ParamTable(tuple(ParamSpec(f"t{i}", (n,)) for i, n in enumerate(sizes)))
    policy = SyncPolicy(
        groups=(Group(share=0.5), Group(share=0.2, overlap=Delayed(windows=2))),
        overlap=Delayed(),
        order="model",
    )
    layout = make_layout(table, policy, 1)
    assert [f.tensors for f in layout.fragments] == [(1, 3), (4,), (0, 2)]
    assert [f.overlap for f in layout.fragments] == [Blocking(), Delayed(windows=2), Delayed()]


@settings(deadline=None)
@given(tables(), groupings)
def test_group_shares_are_met_by_the_largest_tensors_and_not_overdone(table, groups):
    layout = make_layout(table, SyncPolicy(groups=groups, order="largest-first"), 1)
    sizes = [t.numel for t in layout.tensors]
    by_size = sorted(range(len(sizes)), key=lambda i: (-sizes[i], i))
    assert [i for f in layout.fragments for i in f.tensors] == by_size
    asked = [g.share for g in groups if g.share > 0]
    done = 0
    for fragment, bound in zip(
        layout.fragments, (sum(asked[: i + 1]) for i in range(len(asked))), strict=False
    ):
        done += layout.fragment_numel(fragment.index)
        if bound * sum(sizes) > done:  # an earlier group took more than its share, or rounding
            assert bound * sum(sizes) - done < 1e-6 * sum(sizes) or fragment is layout.fragments[-1]


def test_shards_without_a_block_send_a_header():
    codec = Codec(select=TopK(scope=64, ratio=0.1), residual=Feedback())
    table = ParamTable((ParamSpec("w", (130,)),))  # three blocks, the last of 2
    layout = make_layout(table, SyncPolicy(codec=codec), 5)
    pieces = [layout.pieces(0, s) for s in range(5)]
    assert sorted((p.start, p.stop) for ps in pieces for p in ps) == [(0, 64), (64, 128), (128, 130)]
    empty = [s for s in range(5) if not pieces[s]]
    assert len(empty) == 2
    assert all(layout.payload_bytes(0, s) == HEADER_BYTES for s in empty)


def test_leftovers_spread_over_the_shards():
    table = ParamTable(tuple(ParamSpec(f"b{i}", (1,)) for i in range(8)))
    layout = make_layout(table, SyncPolicy(), 4)
    assert [len(layout.pieces(0, s)) for s in range(4)] == [2, 2, 2, 2]


def test_tied_weights_travel_once():
    tied, free = (models()["gpt2-124m"].model_copy(update={"tied": t}) for t in (True, False))
    bytes_of = [make_layout(m.param_table(), SyncPolicy(), 1).fragment_bytes(0) for m in (tied, free)]
    assert bytes_of[0] == HEADER_BYTES + 4 * 124_439_808
    assert bytes_of[1] - bytes_of[0] == 4 * 50257 * 768


def test_the_policys_shards_win():
    table = models()["byte-gpt-tiny"].param_table()
    assert make_layout(table, SyncPolicy(), 3).shards == 3
    assert make_layout(table, SyncPolicy(shards=2), 3).shards == 2


def test_the_fingerprint_sees_tensors_shards_and_policy_but_not_names_of_policies():
    table = models()["byte-gpt-tiny"].param_table()
    other = models()["byte-gpt-tiny"].param_table("bf16")
    base = make_layout(table, SyncPolicy(), 2).fingerprint()
    assert make_layout(table, SyncPolicy(name="other"), 2).fingerprint() == base
    different = [
        make_layout(table, SyncPolicy(), 3),
        make_layout(other, SyncPolicy(), 2),
        make_layout(table, SyncPolicy(interval=2), 2),
        make_layout(ParamTable(table.params[1:]), SyncPolicy(), 2),
    ]
    assert len({base, *(layout.fingerprint() for layout in different)}) == 5


@pytest.mark.parametrize("name", preset_names())
def test_the_largest_model_is_laid_out_over_many_shards(name):
    table, policy = models()["llama-3.1-405b"].param_table(), load_policy(name)
    layout = make_layout(table, policy, 512)
    total = sum(layout.fragment_bytes(f) for f in range(len(layout.fragments)))
    headers = HEADER_BYTES * 512 * len(layout.fragments)
    assert headers < total < table.numel * policy.codec.quantize.bits / 8 * 1.13 + headers
    if name == "hierarchical-efsgd":
        assert layout.fragment_bytes(0) == sum(layout.payload_bytes(0, s) for s in range(512))
        # Claim A2 counts the interval too: 1 % in 8 bits every 16 steps against 32 bits every step.
        assert total / policy.interval < 0.02 * 4 * table.numel


def test_a_layout_is_frozen():
    layout = make_layout(models()["byte-gpt-tiny"].param_table(), SyncPolicy(), 2)
    with pytest.raises(dataclasses.FrozenInstanceError):
        layout.shards = 3
