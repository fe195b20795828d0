"""The space around a base, and the order of aggressiveness."""

import pytest

from geosim.errors import UsageError
from geosim.policy import (
    Blocking,
    Cast,
    Codec,
    Delayed,
    Dense,
    Feedback,
    NoResidual,
    SyncPolicy,
    TopK,
    load_policy,
)
from geosim.tune.order import delay, halvings, rank
from geosim.tune.space import Axes, candidates, default_base, neighbours, space_around


def test_default_space_has_every_combination_once():
    space = space_around(default_base())
    table = candidates(default_base(), space)
    assert len(table) == 7 * 6 * 4 * 2 * 4 == len(set(table.values()))
    assert {p.interval for p in table.values()} == {1, 2, 4, 8, 16, 32, 64}


def test_what_loses_something_has_a_residual_and_nothing_else_has():
    for place, policy in candidates(default_base(), space_around(default_base())).items():
        lossy = place.ratio < 1 or place.form != "fp32"
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


@pytest.mark.parametrize(("name", "changes"), [("ddp", {}), ("local-sgd", {"groups": [{"share": 0.5}]})])
def test_a_base_that_leaves_no_choice_is_refused(name, changes):
    with pytest.raises(UsageError, match="--base"):
        space_around(load_policy(name, changes))


def test_a_bound_that_leaves_no_interval_is_refused():
    with pytest.raises(UsageError, match="--max-interval 4"):
        space_around(load_policy("streaming-diloco"), 4)


def test_neighbours_differ_on_one_axis_and_step_towards_synchronous():
    space = space_around(default_base())
    near = neighbours(space, Axes(8, 0.03, "int8", Delayed(), 1))
    assert near == {
        "interval": Axes(4, 0.03, "int8", Delayed(), 1),
        "ratio": Axes(8, 0.1, "int8", Delayed(), 1),
        "form": Axes(8, 0.03, "bf16", Delayed(), 1),
        "overlap": Axes(8, 0.03, "int8", Blocking(), 1),
    }


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
