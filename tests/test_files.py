"""What a full disk or a stop in the middle leaves of a file."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from geosim.files import whole_file


def half_written(path, error):
    with whole_file(path) as part:
        part.write_text("half")
        raise error


def interrupted(path, error):
    with pytest.raises(type(error)):
        half_written(path, error)


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_what_fails_leaves_what_was_there(tmp_path, error):
    path = tmp_path / "policy.yaml"
    interrupted(path, error)
    assert list(tmp_path.iterdir()) == []
    path.write_text("older")
    interrupted(path, error)
    assert [(p.name, p.read_text()) for p in tmp_path.iterdir()] == [("policy.yaml", "older")]


def test_links_and_modes_stay(tmp_path):
    path, link = tmp_path / "trace.json", tmp_path / "latest.json"
    path.write_text("older")
    path.chmod(0o640)
    link.symlink_to(path)
    with whole_file(link) as part:
        assert part.suffix == ".json"
        part.write_text("newer")
    assert link.is_symlink()
    assert (path.read_text(), path.stat().st_mode & 0o777) == ("newer", 0o640)


def test_a_new_file_has_the_usual_mode(tmp_path):
    with whole_file(tmp_path / "a") as part:
        part.write_text("")
    (tmp_path / "b").write_text("")
    assert (tmp_path / "a").stat().st_mode == (tmp_path / "b").stat().st_mode


def test_devices_are_written_to_not_replaced(tmp_path):
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    for path in (Path(os.devnull), fifo):
        with whole_file(path) as part:
            assert part == path


@pytest.mark.parametrize("to_file", [False, True])
def test_standard_output_may_be_a_pipe_or_a_file(tmp_path, to_file):
    """What it leads to is open already: a file in its place would not get what is printed next."""
    script = "from pathlib import Path; from geosim.files import whole_file\n"
    script += "with whole_file(Path('/dev/stdout')) as part: part.write_text('all')"
    with (tmp_path / "out").open("w+") as file:
        target = file if to_file else subprocess.PIPE
        done = subprocess.run([sys.executable, "-c", script], stdout=target, text=True, check=True)
        file.seek(0)
        assert (file.read() if to_file else done.stdout) == "all"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
