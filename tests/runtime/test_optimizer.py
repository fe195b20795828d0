"""GeoOptimizer as an Optimizer: shared groups, accumulator, hooks, what it refuses."""

import pytest
import torch
from geo_cases import FEATURES, backward, flat_parameters, inner_for, make_policy, network

from geosim.errors import UsageError
from runtime.optimizer import GeoOptimizer
from runtime.sites import Sites

ALONE = Sites(["east"], "east", None)


def make(policy, model, inner="sgd", lr=0.1, **options):
    """A GeoOptimizer at the only site."""
    return GeoOptimizer(inner_for(inner, model, lr), make_policy(policy), ALONE, **options)


def test_it_is_an_optimizer_and_shares_its_groups():
    model = network()
    geo = make({"interval": 1}, model, "adamw")
    assert isinstance(geo, torch.optim.Optimizer)
    assert geo.param_groups is geo.inner.param_groups
    backward(model, 0, 8)
    geo.step()
    assert geo.state is geo.inner.state
    assert len(geo.state) == len(list(model.parameters()))
    geo.close()


def test_zero_grad_clears_gradients_and_not_the_window():
    model = network()
    geo = make({"interval": 2}, model)
    for step in range(2):
        backward(model, step, 8)
        geo.step()
        geo.zero_grad()
        assert all(param.grad is None for param in model.parameters())
    other = network()
    grads = []
    for step in range(2):
        backward(other, step, 8)
        grads.append([p.grad.clone() for p in other.parameters()])
    with torch.no_grad():
        for param, a, b in zip(other.parameters(), *grads, strict=True):
            param -= 0.1 * (a + b) / 2
    assert torch.allclose(flat_parameters(model), flat_parameters(other), atol=1e-7)
    geo.close()


def test_parameters_rest_inside_a_window_and_gradients_stay_the_users():
    model = network()
    start = flat_parameters(model)
    geo = make({"interval": 3}, model)
    for step in range(2):
        backward(model, step, 8)
        geo.step()
        assert torch.equal(flat_parameters(model), start)
    backward(model, 2, 8)
    mine = [param.grad for param in model.parameters()]
    values = [grad.clone() for grad in mine]
    geo.step()
    assert not torch.equal(flat_parameters(model), start)
    for param, grad, value in zip(model.parameters(), mine, values, strict=True):
        assert param.grad is grad
        assert torch.equal(grad, value)
    geo.close()


def test_closure_and_step_hooks():
    model = network()
    geo = make({"interval": 1}, model)
    called = []
    geo.register_step_post_hook(lambda *_: called.append("after"))

    def closure():
        model.zero_grad()
        loss = model(torch.ones(2, FEATURES)).square().mean()
        loss.backward()
        return loss

    assert geo.step(closure).item() > 0
    assert called == ["after"]
    geo.close()


def test_only_tensors_with_a_result_step():
    """Groups: the late fragment's step count stays behind by its delay."""
    model = network()
    policy = {
        "interval": 1,
        "groups": [{"share": 0.5, "overlap": "blocking"}],
        "overlap": {"kind": "delayed", "windows": 2},
    }
    geo = make(policy, model, "adamw")
    for step in range(5):
        backward(model, step, 8)
        geo.step()
    params = list(model.parameters())
    now, late = (
        {int(geo.state[params[i]]["step"]) for i in fragment.tensors} for fragment in geo.layout.fragments
    )
    assert (now, late) == ({5}, {3})
    geo.finish()
    assert {int(geo.state[p]["step"]) for p in params} == {5}
    geo.close()


def test_bf16_parameters_keep_fp32_sums():
    model = network().bfloat16()
    geo = make({"interval": 2, "codec": {"residual": "feedback", "quantize": "int8"}}, model)
    for _ in range(2):
        for param in model.parameters():
            param.grad = torch.full_like(param, 0.01)
        geo.step()
    assert all(r.dtype == torch.float32 for r in geo.engine._residuals)
    assert all(p.dtype == torch.bfloat16 for p in model.parameters())
    geo.close()


def test_what_it_refuses():
    model = network()
    geo = make({"interval": 2}, model)
    with pytest.raises(UsageError, match="add_param_group"):
        geo.add_param_group({"params": [torch.nn.Parameter(torch.zeros(3))]})
    backward(model, 0, 8)
    geo.step()
    with pytest.raises(UsageError, match="use 2"):
        geo.finish()
    geo.step()
    geo.finish()
    with pytest.raises(UsageError, match="finished"):
        geo.step()
    with pytest.raises(UsageError, match="no state of a GeoOptimizer"):
        geo.load_state_dict({"state": {}, "param_groups": []})
    geo.close()
    closed = make({"interval": 2}, network())
    closed.close()
    with pytest.raises(UsageError, match="closed: build a new GeoOptimizer"):
        closed.step()
    with pytest.raises(UsageError, match="call finish before close"):
        closed.finish()
    with pytest.raises(UsageError, match="flat-ring"):
        make({"topology": "flat-ring"}, network())
    with pytest.raises(UsageError, match="dtypes"):
        make({}, torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2).double()))
    with pytest.raises(UsageError, match="tokens"):
        make({}, network(), tokens=lambda step: (1, 2)).step()
