"""accumulate across sites is one optimizer step on the whole batch."""

import pytest
import torch
from geo_cases import backward, flat_parameters, inner_for, network, plan, relative, train

DENSE = {"update": "accumulate", "codec": {"select": "dense", "quantize": "fp32"}}
SPARSE = {
    "update": "accumulate",
    "interval": 2,
    "codec": {"select": {"kind": "topk", "ratio": 0.1}, "quantize": "int8", "residual": "feedback"},
}


def alone(steps, interval, inner="sgd", lr=0.1, tokens="even", clip=None, schedule=False):
    """The same training in one process: every window's samples in one batch."""
    counts = plan(tokens, 2)
    model = network()
    optimizer = inner_for(inner, model, lr)
    for begin in range(0, steps, interval):
        window = range(begin, begin + interval)
        total = sum(sum(counts(step)) for step in window)
        sums = [torch.zeros_like(param) for param in model.parameters()]
        for step in window:
            count = sum(counts(step))
            backward(model, step, count)
            for s, param in zip(sums, model.parameters(), strict=True):
                s += param.grad * (count / total)
        for s, param in zip(sums, model.parameters(), strict=True):
            param.grad = s
        if clip is not None:
            torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
        if schedule:
            for group in optimizer.param_groups:
                group["lr"] = lr / (1 + begin + interval - 1)
        optimizer.step()
    return flat_parameters(model)


def all_equal(results):
    flat = [row for site in results for row in site]
    return all(torch.equal(r["parameters"], flat[0]["parameters"]) for r in flat)


def test_every_step_equals_one_process(pool):
    results = pool.run(train, policy=DENSE, steps=20)
    assert all_equal(results)
    assert relative(results[0][0]["parameters"], alone(20, 1)) < 1e-5


@pytest.mark.parametrize("tokens", ["even", "uneven"])
def test_a_window_equals_one_step_on_all_its_tokens(pool, tokens):
    policy = DENSE | {"interval": 4}
    results = pool.run(train, policy=policy, steps=12, inner="momentum", tokens=tokens)
    assert all_equal(results)
    assert relative(results[0][0]["parameters"], alone(12, 4, "momentum", tokens=tokens)) < 1e-5


def test_dense_fp32_leaves_no_residual(pool):
    policy = DENSE | {"codec": DENSE["codec"] | {"residual": "feedback"}, "interval": 2}
    results = pool.run(train, policy=policy, steps=6, tokens="uneven")
    for site in results:
        for rank in site:
            assert len(rank["residuals"]) == 1
            assert not rank["residuals"][0].any()
    assert relative(results[0][0]["parameters"], alone(6, 2, tokens="uneven")) < 1e-5


@pytest.mark.parametrize(
    "overlap",
    [
        {"overlap": "blocking"},
        {"overlap": {"kind": "delayed", "windows": 1}},
        {"overlap": {"kind": "delayed", "windows": 2}},
        {"groups": [{"share": 0.5, "overlap": "blocking"}], "overlap": "delayed"},
    ],
    ids=["blocking", "delayed1", "delayed2", "groups"],
)
@pytest.mark.parametrize("update", ["accumulate", "local"])
def test_all_sites_agree_at_every_window_start_and_send_what_the_layout_says(pool, overlap, update):
    policy = SPARSE | overlap | {"update": update}
    results = pool.run(train, policy=policy, steps=12, inner="adamw", lr=0.01, tokens="uneven")
    first = results[0][0]
    assert len(first["starts"]) == 6
    assert len(set(first["starts"])) > 1
    for site in results:
        for number, rank in enumerate(site):
            assert rank["starts"] == first["starts"]
            assert rank["chain"] == results[0][number]["chain"]
            assert rank["payload_bytes"] == 6 * rank["expected_bytes"]
    assert all_equal(results)


def test_clipping_acts_on_what_is_applied(pool):
    policy = DENSE | {"interval": 2, "max_grad_norm": 0.05}
    results = pool.run(train, policy=policy, steps=8)
    assert relative(results[0][0]["parameters"], alone(8, 2, clip=0.05)) < 1e-5


def test_the_learning_rate_is_the_boundarys(pool):
    policy = DENSE | {"interval": 3}
    results = pool.run(train, policy=policy, steps=9, schedule=True)
    assert relative(results[0][0]["parameters"], alone(9, 3, schedule=True)) < 1e-5


def test_fewer_shards_than_ranks(pool):
    policy = DENSE | {"shards": 1, "interval": 2}
    results = pool.run(train, policy=policy, steps=6)
    assert all_equal(results)
    assert results[0][1]["payload_bytes"] == 0
    assert relative(results[0][0]["parameters"], alone(6, 2)) < 1e-5


def test_three_sites_of_one_rank_over_streams_and_slices(pool):
    policy = DENSE | {"streams": 3, "chunk": "300 B"}
    results = pool.run(train, sites=3, ranks=1, policy=policy, steps=4, tokens="even")
    assert all_equal(results)
