"""A site whose update is not finite: the round is skipped everywhere and counted, and training goes on."""

import pytest
import torch
from geo_cases import flat_parameters, network, train

from runtime.update.local import _finite

SPARSE = {"codec": {"select": {"kind": "topk", "ratio": 0.2}, "quantize": "int8", "residual": "feedback"}}
UPDATES = {
    "accumulate": {"update": "accumulate"},
    "local": {"update": {"kind": "local", "outer": {"kind": "momentum", "lr": 0.7, "momentum": 0.9}}},
}


@pytest.mark.parametrize("overlap", ["blocking", "delayed"])
@pytest.mark.parametrize("update", UPDATES)
def test_the_round_is_skipped_by_all(pool, update, overlap):
    policy = UPDATES[update] | SPARSE | {"interval": 2, "overlap": overlap}
    results = pool.run(train, policy=policy, steps=12, inner="adamw", lr=0.01, faults=(("west", 5),))
    flat = [rank for site in results for rank in site]
    for rank in flat:
        assert rank["skipped"] == 1
        assert torch.isfinite(rank["parameters"]).all()
        assert torch.equal(rank["parameters"], flat[0]["parameters"])
        assert rank["starts"] == flat[0]["starts"]
        assert rank["expected_bytes"] * 6 == rank["payload_bytes"]
        assert all(torch.isfinite(r).all() for r in rank["residuals"])
    late = 1 if overlap == "delayed" else 0
    if update == "accumulate":
        # Window 2 brought no step, so parameters at its end (or one later) are as before.
        assert flat[0]["starts"][2 + late] == flat[0]["starts"][1 + late]


def test_the_healthy_site_takes_back_what_it_sent_and_the_faulty_one_drops_its_window(pool):
    """Nothing is lost but the faulty window: east holds its own again, west nothing."""
    policy = UPDATES["accumulate"] | SPARSE
    skipped = pool.run(train, ranks=1, policy=policy, steps=1, faults=(("west", 0),))
    assert torch.equal(skipped[0][0]["parameters"], flat_parameters(network()))
    east, west = (site[0]["residuals"][0] for site in skipped)
    assert not west.any()
    # East's whole update, half its gradient as it has half the tokens, is in its residual again.
    from geo_cases import backward

    model = network()
    backward(model, 0, 8)
    gradient = torch.cat([p.grad.reshape(-1) for p in model.parameters()])
    assert torch.allclose(east.sort().values, (gradient / 2).sort().values, rtol=1e-6, atol=1e-9)


def test_all_rounds_skipped_leave_the_model_alone(pool):
    policy = UPDATES["accumulate"] | {"interval": 1}
    faults = tuple(("east", step) for step in range(3))
    results = pool.run(train, ranks=1, policy=policy, steps=3, faults=faults)
    assert [site[0]["skipped"] for site in results] == [3, 3]
    assert torch.equal(results[0][0]["parameters"], flat_parameters(network()))


def test_inner_moments_survive_a_fault_in_local_steps(pool):
    policy = UPDATES["local"] | {"interval": 2}
    results = pool.run(train, ranks=1, policy=policy, steps=8, inner="adamw", lr=0.01, faults=(("east", 2),))
    assert [site[0]["skipped"] for site in results] == [1, 1]
    assert torch.isfinite(results[0][0]["parameters"]).all()


GROUPS = {"groups": [{"share": 0.5, "overlap": "blocking"}], "overlap": {"kind": "delayed", "windows": 2}}


@pytest.mark.parametrize("update", UPDATES)
@pytest.mark.parametrize("more", [GROUPS, {"shards": 1}], ids=["groups", "rank-without-shard"])
def test_a_lost_window_counts_once_at_every_rank(pool, update, more):
    policy = UPDATES[update] | {"interval": 1} | more
    results = pool.run(train, policy=policy, steps=8, inner="adamw", lr=0.01, faults=(("west", 3),))
    assert [rank["skipped"] for site in results for rank in site] == [1] * 4


@pytest.mark.parametrize(("value", "dtype"), [(1e19, torch.float32), (3e4, torch.float16)])
def test_a_norm_that_overflows_is_no_fault(value, dtype):
    large = torch.full((200,), value, dtype=dtype)
    assert _finite([large, torch.ones(3, dtype=dtype)])
    large[7] = torch.inf
    assert not _finite([torch.ones(3, dtype=dtype), large])
