"""A resumed run is the same run, bit for bit, also with rounds in flight."""

import resource
import struct
import time
import zipfile
from pathlib import Path

import pytest
import torch
from geo_cases import average, backward, flat_parameters, inner_for, make_policy, network, plan, share_of

from geosim.errors import RunError, UsageError
from runtime import checkpoint
from runtime.optimizer import GeoOptimizer
from runtime.saved import common_step
from runtime.sites import Sites

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
        assert checkpoint.load(Path(folder) / str(resume), sites, **parts) == begin
    for step in range(begin, end):
        start, count = share_of(sites, step, counts)
        backward(model, step, count, start)
        average(model, sites)
        if fault == (sites.name, step):
            next(model.parameters()).grad.view(-1)[0] = torch.inf
        optimizer.step()
        scheduler.step()
        if step + 1 in save_at:
            checkpoint.save(Path(folder) / str(step + 1), sites, step=step + 1, **parts)
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


@pytest.mark.parametrize("topology", ["ring", {"kind": "hub", "site": "west"}])
def test_resume_is_bit_identical_with_payloads_passed_on(pool, tmp_path, topology):
    """Two rounds in flight at the save, one of which is skipped after the resume."""
    policy, folder = CASES["accumulate-late"] | {"topology": topology}, str(tmp_path)
    where = {"sites": 3, "ranks": 1, "policy": policy, "folder": folder}
    whole = pool.run(run, **where, begin=0, end=8, save_at=(5,), fault=("west", 3))
    assert whole[0][0][2] == 1
    again = pool.run(run, **where, begin=5, end=8, resume=5)
    for before, after in zip(whole, again, strict=True):
        assert torch.equal(before[0][0], after[0][0])
        assert before[0][1:] == after[0][1:]


def test_files_that_do_not_fit_are_refused(pool, tmp_path):
    folder = str(tmp_path)
    policy = CASES["accumulate-blocking"]
    pool.run(run, policy=policy, begin=0, end=4, folder=folder, save_at=(2, 4))
    other = pool.errors(run, policy=policy | {"interval": 4}, begin=2, end=4, folder=folder, resume=2)
    missing = pool.errors(run, policy=policy, begin=6, end=8, folder=folder, resume=6)
    for errors, words in ((other, "model and policy"), (missing, "no step that all ranks have saved")):
        for site in errors:
            for error in site:
                assert isinstance(error, UsageError)
                assert words in str(error)
                assert "\n" not in str(error)


def parts_of(sites, policy=None, lr=0.1):
    """Model, optimizer and scheduler; with a policy, a GeoOptimizer."""
    model = network()
    optimizer = inner_for("sgd", model, lr)
    if policy is not None:
        optimizer = GeoOptimizer(optimizer, make_policy(policy), sites, timeout_s=15)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda n: 1.0)
    return {"model": model, "optimizer": optimizer, "scheduler": scheduler}


def test_what_stops_the_writing_is_named_and_nothing_half_written_stays(tmp_path):
    """A disk that takes no more, here by the size that the kernel lets a file have."""
    sites = Sites(["a"], "a", None)
    parts = parts_of(sites)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1024, before[1]))
    try:
        with pytest.raises(UsageError, match=r"a\.rank-0\.step-1\.pt: cannot write: File too large"):
            checkpoint.save(tmp_path, sites, step=1, **parts)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert not list(tmp_path.iterdir())


def test_a_file_that_is_none_is_refused(tmp_path):
    sites = Sites(["east"], "east", None)
    for content, words in (
        (b"nonsense", "is cut off, or no checkpoint at all: remove it"),
        (b"", "is empty: remove it, and all ranks go on from an older step"),
    ):
        source = checkpoint.path_of(tmp_path, "east", 0, 3)
        source.write_bytes(content)
        with pytest.raises(UsageError, match=words) as error:
            checkpoint.load(tmp_path, sites, **parts_of(sites))
        assert str(error.value).startswith(f"{source}: ")
        with pytest.raises(UsageError, match=words):
            checkpoint.read(source, mapped=True)


def test_a_file_that_has_changed_since_is_refused(tmp_path):
    """Each of its tensors, whatever is done with it later; torch itself looks at no checksum."""
    sites = Sites(["east"], "east", None)
    source = checkpoint.save(tmp_path, sites, step=3, **parts_of(sites, {"interval": 1}))
    whole = source.read_bytes()
    with zipfile.ZipFile(source) as parts:
        data = [part for part in parts.infolist() if "/data/" in part.filename and part.file_size]
    assert data
    for part in data:
        at = part.header_offset + 30 + sum(struct.unpack_from("<HH", whole, part.header_offset + 26))
        source.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with pytest.raises(UsageError, match="is damaged") as error:
            checkpoint.load(tmp_path, sites, **parts_of(sites, {"interval": 1}))
        assert "remove it, and all ranks go on from an older step" in str(error.value)
        assert "\n" not in str(error.value)


def test_a_file_that_is_cut_off_is_refused(tmp_path):
    sites = Sites(["east"], "east", None)
    source = checkpoint.save(tmp_path, sites, step=3, **parts_of(sites))
    source.write_bytes(source.read_bytes()[:-100])
    for mapped in (False, True):
        with pytest.raises(UsageError, match=r"step-3\.pt: is cut off"):
            checkpoint.read(source, mapped=mapped)


def test_a_save_takes_away_what_a_killed_one_had_begun(tmp_path):
    sites = Sites(["east"], "east", None)
    own, others = tmp_path / "east.rank-0.step-2.partial", tmp_path / "east.rank-1.step-2.partial"
    own.touch()
    others.touch()
    checkpoint.save(tmp_path, sites, step=3, **parts_of(sites))
    assert not own.exists()
    assert others.exists()


def test_who_lacks_the_step_is_named_first():
    held = {("east", rank): [20, 40] for rank in range(5)} | {("west", 0): []}
    with pytest.raises(UsageError, match="all ranks have saved: site 'west' rank 0 has none; site 'east'"):
        common_step(Path("saved"), held)


def test_a_file_of_an_older_version_is_refused(tmp_path):
    sites = Sites(["east"], "east", None)
    for content in ({"format": 1, "step": 3}, {"format": checkpoint.FORMAT, "step": 3}, [3]):
        torch.save(content, checkpoint.path_of(tmp_path, "east", 0, 3))
        with pytest.raises(UsageError, match="no checkpoint of this version: start anew") as error:
            checkpoint.load(tmp_path, sites, **parts_of(sites))
        assert "\n" not in str(error.value)


def test_what_was_saved_of_the_run_may_be_refused_before_anything_changes(tmp_path):
    sites = Sites(["east"], "east", None)
    checkpoint.save(tmp_path, sites, step=3, run={"batch": 8}, **parts_of(sites, lr=0.1))
    parts, seen = parts_of(sites, lr=0.7), []

    def accept(run):
        seen.append(run)
        raise UsageError("another batch")

    with pytest.raises(UsageError, match="another batch"):
        checkpoint.load(tmp_path, sites, accept=accept, **parts)
    assert seen == [{"batch": 8}]
    assert parts["optimizer"].param_groups[0]["lr"] == 0.7


def test_a_state_of_another_optimizer_is_one_line(tmp_path):
    """A GeoOptimizer's, given to a plain optimizer."""
    sites = Sites(["east"], "east", None)
    checkpoint.save(tmp_path, sites, step=3, **parts_of(sites, {"interval": 1}))
    with pytest.raises(UsageError, match="another optimizer"):
        checkpoint.load(tmp_path, sites, **parts_of(sites))


def meet(sites, folder, what):
    """Wait for all ranks of all sites: plain optimizers do not, and the store's host must not leave early."""
    (Path(folder) / f"{what}.{sites.name}.{sites.rank}.met").touch()
    limit = time.monotonic() + 20
    while len(list(Path(folder).glob(f"{what}.*.met"))) < len(sites.names) * sites.ranks:
        assert time.monotonic() < limit, f"not all came to {what}"
        time.sleep(0.01)


def save_often(sites, *, folder, steps, dies=None, flat=False):
    """Save after every step; `dies`: (site, rank, step) that is gone before its file of that step stands."""
    parts = parts_of(sites, None if flat else {"interval": 1})
    meet(sites, folder, "begin")
    for step in range(1, steps + 1):
        backward(parts["model"], step, 8, 8 * sites.index)
        average(parts["model"], sites)
        parts["optimizer"].step()
        if dies == (sites.name, sites.rank, step):
            break
        checkpoint.save(Path(folder), sites, step=step, **parts)
    if not flat:
        parts["optimizer"].close()
    meet(sites, folder, "end")


def take_up(sites, *, folder, flat=False):
    """The step that a resume goes on from."""
    parts = parts_of(sites, None if flat else {"interval": 1})
    meet(sites, folder, "load")
    step = checkpoint.load(Path(folder), sites, **parts)
    if not flat:
        parts["optimizer"].close()
    meet(sites, folder, "loaded")
    return step


@pytest.mark.parametrize("flat", [False, True])
@pytest.mark.parametrize("late", [("west", 1, 5), ("east", 0, 5)])
def test_a_run_killed_between_two_saves_resumes_from_the_last_whole_one(pool, tmp_path, late, flat):
    pool.run(save_often, folder=str(tmp_path), steps=5, dies=late, flat=flat)
    assert checkpoint.steps_of(tmp_path, "west", 0)[-1] == 5
    assert checkpoint.steps_of(tmp_path, late[0], late[1])[-1] == 4
    assert pool.run(take_up, folder=str(tmp_path), flat=flat) == [[4, 4], [4, 4]]


def test_old_files_go(pool, tmp_path):
    pool.run(save_often, folder=str(tmp_path), steps=6)
    for site in ("east", "west"):
        for rank in (0, 1):
            held = checkpoint.steps_of(tmp_path, site, rank)
            assert held[-2:] == [5, 6]
            assert len(held) <= 4  # a rank may be a step or two ahead of the slowest
    assert not list(tmp_path.glob("*.partial"))


def test_no_common_step_is_said_at_every_rank(pool, tmp_path):
    for i, (site, rank) in enumerate((s, r) for s in ("east", "west") for r in (0, 1)):
        checkpoint.path_of(tmp_path, site, rank, 10 + i).write_bytes(b"")
    for site in pool.errors(take_up, folder=str(tmp_path)):
        for error in site:
            assert isinstance(error, UsageError)
            assert "no step that all ranks have saved: site 'east' rank 0 has 10; " in str(error)
            assert "\n" not in str(error)


def mixed(sites, *, folder):
    """Load what a user's own loop has mixed up: one rank's state is another step's."""
    parts = parts_of(sites, {"interval": 1})
    states = []
    for step in range(2):
        backward(parts["model"], step, 8, 8 * sites.index)
        average(parts["model"], sites)
        parts["optimizer"].step()
        states.append(parts["optimizer"].state_dict())
    parts["optimizer"].load_state_dict(states[0 if sites.rank == 1 else 1])


def test_ranks_of_one_site_at_different_steps_are_refused(pool, tmp_path):
    """Rank 1 of both sites stands at step 1, rank 0 of both at step 2."""
    for site in pool.errors(mixed, folder=str(tmp_path)):
        for error in site:
            assert isinstance(error, RunError)
            assert "of site" in str(error)
            assert "disagree on the step they stand at" in str(error)
