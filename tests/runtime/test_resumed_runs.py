"""What a resumed run finds in its folder: whole files, damaged ones, ranks that stand at different steps."""

import shutil
from pathlib import Path

import pytest
from test_launch import scenario

from geosim.errors import UsageError
from geosim.policy import load_policy
from runtime import checkpoint
from runtime.launch import emulate

PLACES = [(site, rank) for site in ("east", "west") for rank in (0, 1)]


def policy():
    """A window is two steps."""
    return load_policy("local-sgd", {"interval": 2})


@pytest.fixture(scope="module")
def options(tmp_path_factory):
    """Of every run here."""
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_text("".join(f"{n} times {n} is {n * n}.\n" for n in range(8000)))
    return {"wan": "none", "data": str(path)}


@pytest.fixture(scope="module")
def saved(options, tmp_path_factory):
    """A folder, filled by a run of eight steps that saved after every second."""
    folder = tmp_path_factory.mktemp("saved")
    emulate(scenario(), policy(), 8, save=str(folder), save_every=2, **options)
    return folder


@pytest.fixture
def folder(saved, tmp_path):
    """A copy of it."""
    return Path(shutil.copytree(saved, tmp_path / "saved"))


def test_the_last_two_stay(saved):
    for place in PLACES:
        assert checkpoint.steps_of(saved, *place) == [6, 8]
    assert len(list(saved.iterdir())) == 8


@pytest.mark.parametrize("place", PLACES)
def test_a_half_written_file_of_any_rank_is_found_before_anything_starts(folder, options, monkeypatch, place):
    source = checkpoint.path_of(folder, *place, 8)
    source.write_bytes(source.read_bytes()[:5000])
    monkeypatch.setattr("runtime.launch.Crew", None)
    with pytest.raises(UsageError) as error:
        emulate(scenario(), policy(), 12, resume=str(folder), **options)
    assert str(error.value).startswith(f"--resume {source}: is cut off")
    assert "remove it, and all ranks go on from an older step" in str(error.value)


def test_a_damaged_file_ends_the_run_before_its_first_step_and_without_it_an_older_step_serves(
    folder, options
):
    source = checkpoint.path_of(folder, "west", 1, 8)
    content = bytearray(source.read_bytes())
    content[len(content) // 2] ^= 1
    source.write_bytes(content)
    steps, notes = [], []
    more = {"resume": str(folder), "progress": lambda step, of, loss: steps.append(step)}
    with pytest.raises(UsageError, match=r"west\.rank-1\.step-8\.pt: is damaged"):
        emulate(scenario(), policy(), 12, **options, **more, note=notes.append)
    assert steps == []
    source.unlink()
    emulate(scenario(), policy(), 8, **options, **more, note=notes.append)
    assert steps == [7, 8]
    assert notes == [
        "--resume: from step 6, the newest that all ranks have: site 'west' rank 1 has none of step 8"
    ]


def test_progress_tells_the_losses_that_the_figures_have(options):
    """Of all ranks: those of a site of more sequences count more."""
    told = []
    uneven = scenario(**{"sites.1.batch_per_accelerator": 8})
    result = emulate(
        uneven, policy(), 4, progress=lambda step, of, loss: told.append((step, loss)), **options
    )
    assert [step for step, _ in told] == [1, 2, 3, 4]
    for (_, mine), (_, theirs) in zip(told, result["loss"], strict=True):
        assert mine == pytest.approx(theirs, rel=1e-12)
