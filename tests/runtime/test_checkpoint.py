"""A resumed run is the same run, bit for bit, also with rounds in flight."""

from pathlib import Path

import pytest
import torch
from geo_cases import average, backward, flat_parameters, inner_for, make_policy, network, plan, share_of

from geosim.errors import UsageError
from runtime import checkpoint
from runtime.optimizer import GeoOptimizer

SPARSE = {"codec": {"select": {"kind": "topk", "ratio": 0.2}, "quantize": "int8", "residual": "feedback"}}
DILOCO = {"update": {"kind": "local", "outer": {"kind": "momentum", "lr": 0.7, "momentum": 0.9}}}
CASES = {
    "accumulate-blocking": {"interval": 2},
    "accumulate-late": {"interval": 2, "overlap": {"kind": "delayed", "windows": 2}} | SPARSE,
    "local-delayed": {"interval": 3, "overlap": "delayed"} | DILOCO | SPARSE,
    "local-late-groups": {
        "interval": 2, "groups": [{"share": 0.5, "overlap": "blocking"}],
        "overlap": {"kind": "delayed", "windows": 2},
    } | DILOCO,
}  # fmt: skip


def run(sites, *, policy, begin, end, folder, save_at=(), resume=None, fault=None):
    """Steps begin..end, saving at some, from a checkpoint if there is one."""
    counts = plan("uneven", sites.count)
    model = network()
    optimizer = GeoOptimizer(
        inner_for("adamw", model, 0.01), make_policy(policy), sites, tokens=counts, timeout_s=15
    )
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda n: 1 / (1 + n))
    parts = {"model": model, "optimizer": optimizer, "scheduler": scheduler}
    if resume is not None:
        assert checkpoint.load(Path(folder) / str(resume), sites.name, sites.rank, **parts) == begin
    for step in range(begin, end):
        start, count = share_of(sites, step, counts)
        backward(model, step, count, start)
        average(model, sites)
        if fault == (sites.name, step):
            next(model.parameters()).grad.view(-1)[0] = torch.inf
        optimizer.step()
        scheduler.step()
        if step + 1 in save_at:
            checkpoint.save(Path(folder) / str(step + 1), sites.name, sites.rank, step=step + 1, **parts)
    optimizer.finish()
    out = flat_parameters(model), optimizer.engine.chain, optimizer.skipped_rounds, scheduler.get_last_lr()
    optimizer.close()
    return out


@pytest.mark.parametrize("name", CASES)
def test_resume_is_bit_identical(pool, tmp_path, name):
    policy, folder = CASES[name], str(tmp_path)
    # Step 7 lies inside a window, step 6 at the end of one; the fault at step 5 is skipped after the resume.
    fault = ("west", 5)
    whole = pool.run(run, policy=policy, begin=0, end=12, folder=folder, save_at=(6, 7), fault=fault)
    assert whole[0][0][2] > 0
    for begin in (6, 7):
        again = pool.run(run, policy=policy, begin=begin, end=12, folder=folder, resume=begin)
        for before, after in zip(whole, again, strict=True):
            for x, y in zip(before, after, strict=True):
                assert torch.equal(x[0], y[0])
                assert x[1:] == y[1:]


def test_files_that_do_not_fit_are_refused(pool, tmp_path):
    folder = str(tmp_path)
    policy = CASES["accumulate-blocking"]
    pool.run(run, policy=policy, begin=0, end=4, folder=folder, save_at=(2, 4))
    other = pool.errors(run, policy=policy | {"interval": 4}, begin=2, end=4, folder=folder, resume=2)
    missing = pool.errors(run, policy=policy, begin=6, end=8, folder=folder, resume=6)
    for errors, words in ((other, "model and policy"), (missing, "cannot read")):
        for site in errors:
            for error in site:
                assert isinstance(error, UsageError)
                assert words in str(error)
                assert "\n" not in str(error)


def test_a_file_that_is_none_is_refused(tmp_path):
    target = checkpoint.path_of(tmp_path, "east", 0)
    target.write_bytes(b"nonsense")
    model = network()
    optimizer = inner_for("sgd", model, 0.1)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda n: 1.0)
    with pytest.raises(UsageError, match="no checkpoint"):
        checkpoint.load(tmp_path, "east", 0, model=model, optimizer=optimizer, scheduler=scheduler)
