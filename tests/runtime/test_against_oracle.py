"""Runs across sites against the same formulas written out in one process: bit for bit."""

import pytest
import torch
from geo_cases import train
from oracle import oracle

DILOCO = {
    "update": {"kind": "local", "outer": {"kind": "momentum", "lr": 0.7, "momentum": 0.9, "nesterov": True}}
}
MOMENTUM = {
    "update": {"kind": "local", "outer": {"kind": "momentum", "lr": 0.5, "momentum": 0.8, "nesterov": False}}
}
LOCAL_SGD = {"update": {"kind": "local", "outer": {"kind": "sgd", "lr": 1.0}}}
SPARSE = {"codec": {"select": {"kind": "topk", "ratio": 0.1}, "quantize": "int8", "residual": "feedback"}}
DECAYED = {"codec": {"select": "dense", "quantize": "int4", "residual": {"kind": "feedback", "decay": 0.9}}}
RANDOM = {
    "codec": {"select": {"kind": "randomk", "ratio": 0.2}, "quantize": "bf16", "residual": "feedback"},
    "seed": 5,
}
DELAYED = {"overlap": {"kind": "delayed", "windows": 1}}
LATE = {"overlap": {"kind": "delayed", "windows": 2}}

CASES = {
    "local-sgd": LOCAL_SGD,
    "diloco": DILOCO,
    "diloco-delayed": DILOCO | DELAYED,
    "diloco-late-int4-decayed": DILOCO | LATE | DECAYED,
    "momentum-sparse": MOMENTUM | SPARSE,
    "local-sgd-sparse-delayed": LOCAL_SGD | SPARSE | DELAYED,
    "accumulate-sparse": SPARSE,
    "accumulate-sparse-delayed": SPARSE | DELAYED,
    "accumulate-sparse-late": SPARSE | LATE,
    "accumulate-random": RANDOM | DELAYED,
}


@pytest.mark.parametrize("tokens", ["even", "uneven"])
@pytest.mark.parametrize("name", CASES)
def test_two_sites(pool, name, tokens):
    policy = CASES[name] | {"interval": 3}
    options = {"policy": policy, "steps": 15, "inner": "adamw", "lr": 0.01, "tokens": tokens}
    results = pool.run(train, ranks=1, **options)
    expected = oracle(options.pop("policy"), **options)
    for site in results:
        assert torch.equal(site[0]["parameters"], expected)


@pytest.mark.parametrize("name", ["diloco-delayed", "accumulate-sparse-delayed"])
def test_four_sites(pool, name):
    policy = CASES[name] | {"interval": 2, "streams": 2}
    results = pool.run(train, sites=4, ranks=1, policy=policy, steps=8)
    expected = oracle(policy, steps=8, sites=4)
    for site in results:
        assert torch.equal(site[0]["parameters"], expected)
