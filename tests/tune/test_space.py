"""The space around a base, and the order of aggressiveness."""

from operator import attrgetter

import pytest

from geosim.errors import UsageError
from geosim.policy import (
    E3M0,
    Blocking,
    Cast,
    Codec,
    Delayed,
    Dense,
    Eager,
    Feedback,
    Integer,
    NoResidual,
    RandomK,
    Sign,
    SyncPolicy,
    TopK,
    load_policy,
)
from geosim.tune.held import HELD as HELD_FIELDS
from geosim.tune.held import held_fields
from geosim.tune.order import delay, halvings, rank
from geosim.tune.space import Axes, candidates, default_base, neighbours, space_around


def test_default_space_has_every_combination_once():
    space = space_around(default_base())
    table = candidates(default_base(), space)
    assert len(table) == 7 * 6 * 4 * 2 * 4 == len(set(table.values()))
    assert {p.interval for p in table.values()} == {1, 2, 4, 8, 16, 32, 64}


def test_what_loses_something_has_a_residual_and_nothing_else_has():
    for place, policy in candidates(default_base(), space_around(default_base())).items():
        lossy = place.select != Dense() or place.quantize != Cast(kind="fp32")
        assert isinstance(policy.codec.residual, Feedback if lossy else NoResidual)


def test_local_steps_may_take_longer_intervals_and_a_bound_may_be_given():
    assert max(space_around(load_policy("local-sgd")).interval) == 512
    assert max(space_around(load_policy("local-sgd"), 1024).interval) == 1024
    assert max(space_around(default_base(), 10).interval) == 8


def test_a_base_keeps_what_is_not_an_axis():
    base = load_policy("sparse-loco", {"max_grad_norm": None, "topology": "ring", "chunk": "1 MiB"})
    for place, policy in candidates(base, space_around(base, 4)).items():
        assert (policy.update, policy.topology, policy.chunk_bytes) == (
            base.update,
            base.topology,
            base.chunk_bytes,
        )
        if isinstance(policy.codec.select, TopK):
            assert policy.codec.select.scope == 4096
            assert policy.codec.residual == base.codec.residual
        assert policy.interval == place.interval


@pytest.mark.parametrize("name", ["eager-diloco", "streaming-diloco"])
def test_eager_and_streaming_overlap_is_kept(name):
    base = load_policy(name)
    space = space_around(base)
    assert space.overlap == (base.overlap,)
    assert {p.overlap for p in candidates(base, space).values()} == {base.overlap}


def test_streaming_that_mixes_parameters_stays_dense_and_above_its_delay():
    base = load_policy("streaming-diloco")
    policies = candidates(base, space_around(base)).values()
    assert {p.codec.select for p in policies} == {Dense()}
    assert min(p.interval for p in policies) == 8


@pytest.mark.parametrize(
    ("name", "changes"),
    [("ddp", {}), ("local-sgd", {"groups": [{"share": 0.5}]}), ("local-sgd", {"adapt": "hide-exchange"})],
)
def test_a_base_that_leaves_no_choice_is_refused(name, changes):
    with pytest.raises(UsageError, match=f"base policy {name}: "):
        space_around(load_policy(name, changes))


def test_a_bound_that_leaves_no_interval_is_refused():
    with pytest.raises(UsageError, match="--max-interval 4"):
        space_around(load_policy("streaming-diloco"), 4)


def test_neighbours_differ_on_one_axis_and_step_towards_synchronous():
    space = space_around(default_base())
    int8, bf16 = Integer(kind="int8"), Cast(kind="bf16")
    near = neighbours(space, Axes(8, TopK(ratio=0.03), int8, Delayed(), 1))
    assert near == {
        "interval": Axes(4, TopK(ratio=0.03), int8, Delayed(), 1),
        "select": Axes(8, TopK(ratio=0.1), int8, Delayed(), 1),
        "quantize": Axes(8, TopK(ratio=0.03), bf16, Delayed(), 1),
        "overlap": Axes(8, TopK(ratio=0.03), int8, Blocking(), 1),
    }


HELD = [
    ({"name": "mine"}, "name", "mine"),
    ({"about": "mine"}, "about", "mine"),
    ({"interval": 8}, "interval", 8),
    ({"interval": 100}, "interval", 100),
    ({"streams": 3}, "streams", 3),
    ({"overlap.kind": "blocking"}, "overlap", Blocking()),
    ({"overlap": {"kind": "eager", "windows": 2}}, "overlap", Eager(windows=2)),
    ({"codec.quantize.kind": "e3m0"}, "codec.quantize", E3M0(group=64)),
    ({"codec.quantize": "sign"}, "codec.quantize", Sign()),
    (
        {"codec.quantize.kind": "int8", "codec.quantize.group": 32},
        "codec.quantize",
        Integer(kind="int8", group=32),
    ),
    ({"codec.select.kind": "dense"}, "codec.select", Dense()),
    ({"codec.select.ratio": 0.05}, "codec.select", TopK(ratio=0.05)),
    ({"codec.select.kind": "randomk"}, "codec.select", RandomK(ratio=0.01)),
    ({"codec.residual.kind": "none"}, "codec.residual", NoResidual()),
    ({"codec.residual": {"kind": "feedback", "decay": 0.9}}, "codec.residual", Feedback(decay=0.9)),
]


@pytest.mark.parametrize(("changes", "field", "value"), HELD, ids=str)
def test_what_is_held_has_one_value_and_the_rest_is_searched(changes, field, value):
    base = load_policy("hierarchical-efsgd", changes)
    assert held_fields(changes) == (field,)
    free = candidates(base, space_around(base))
    table = candidates(base, space_around(base, held=[field]))

    def at(policy, path):
        return attrgetter(path)(policy)

    assert {at(p, field) for p in table.values()} == {value}
    for other in set(HELD_FIELDS) - {field, "codec.residual"}:
        assert {at(p, other) for p in table.values()} == {at(p, other) for p in free.values()}


def test_settings_that_hold_nothing_and_settings_inside_of_mappings():
    manner = {"codec.quantize.group": 32, "codec.quantize.rounding": "stochastic", "codec.select.scope": 4096}
    assert held_fields({**manner, "update": "local", "chunk": "1 MiB"}) == ()
    assert held_fields({"streams": 2, "codec": {"select": "dense"}}) == ("codec.select", "streams")
    base = load_policy("hierarchical-efsgd", manner)
    policies = candidates(base, space_around(base)).values()
    scaled = {p.codec.quantize for p in policies if isinstance(p.codec.quantize, Integer)}
    assert scaled == {Integer(kind=k, group=32, rounding="stochastic") for k in ("int8", "int4")}


def test_a_bound_below_the_interval_that_is_held_is_refused():
    base = load_policy("hierarchical-efsgd", {"interval": 8})
    with pytest.raises(UsageError, match=r"--max-interval 4: policy\.interval=8 is above it: leave one"):
        space_around(base, 4, ["interval"])
    assert space_around(base, 8, ["interval"]).interval == (8,)


def test_halvings_count_from_dense_every_step():
    assert [halvings(x, 1000.0) for x in (2000.0, 1000.0, 999.0, 500.0, 501.0, 499.0, 250.0, 240.0)] == [
        0,
        0,
        0,
        1,
        1,
        1,
        2,
        3,
    ]


def test_order_of_aggressiveness():
    dense = 1e6
    plain = SyncPolicy()
    half = plain.model_copy(update={"codec": Codec(quantize=Cast(kind="bf16"))})
    later = plain.model_copy(update={"interval": 2})
    delayed = plain.model_copy(update={"overlap": Delayed()})
    streams = plain.model_copy(update={"streams": 4})
    ranked = [
        rank(plain, dense, dense),
        rank(streams, dense, dense),
        rank(delayed, dense, dense),
        rank(half, dense / 2, dense),
        rank(later, dense, dense),
    ]
    assert ranked == sorted(ranked)
    assert len(set(ranked)) == len(ranked)
    assert delay(delayed) == 1
    assert delay(plain) == 0
