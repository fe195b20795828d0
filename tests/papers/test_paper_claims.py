"""Every claim of every source is held against this code, and a claim that turns is noticed."""

import dataclasses
import subprocess
import sys
from pathlib import Path

import pytest

import papers.__main__ as command
from papers.field_report_a import reproduce

FOLDERS = sorted(path.parent for path in Path(command.__file__).parent.glob("*/claims.toml"))


def test_every_claim_is_printed_and_stands_as_marked() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "papers"], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert FOLDERS
    for folder in FOLDERS:
        for claim in command.read_claims(folder):
            assert any(line.split()[:1] == [claim.id] for line in done.stdout.splitlines())
            assert claim.text.split()[0] in done.stdout
    assert "unlike marked" not in done.stdout


def claim(relation: str, value: float, tolerance: float = 0.0) -> command.Claim:
    return command.Claim("X", "made up", value, "%", relation, tolerance, "reproduced", "")


@pytest.mark.parametrize(
    ("made", "yes", "no"),
    [
        (claim("at least", 95.0), [95.0, 99.0], [94.9]),
        (claim("at most", 0.1), [0.1, 0.0], [0.11]),
        (claim("about", 0.5, 0.5), [0.25, 0.75], [0.24, 0.76]),
        (claim("about", 500), [500], [501]),
    ],
)
def test_when_a_claim_holds(made: command.Claim, yes: list[float], no: list[float]) -> None:
    assert all(made.holds(ours) for ours in yes)
    assert not any(made.holds(ours) for ours in no)


@pytest.mark.parametrize("status", ["reproduced", "not reproduced"])
def test_a_claim_unlike_its_mark_fails_the_command(monkeypatch, capsys, tmp_path, status: str) -> None:
    """Both ways: one that is marked as reproduced and fails, and one that suddenly holds."""
    source = Path(command.__file__).parent / "field_report_a"
    rows = command.read_claims(source)
    (tmp_path / source.name).mkdir()
    (tmp_path / source.name / "claims.toml").touch()
    monkeypatch.setattr(command, "_FOLDER", tmp_path)
    ours = {c.id: c.value for c in rows}
    monkeypatch.setattr(reproduce, "reproduce", lambda: ours)
    marked = [dataclasses.replace(c, status="reproduced") for c in rows]
    monkeypatch.setattr(command, "read_claims", lambda _: marked)
    assert command.main() == 0
    if status == "reproduced":
        about = next(c for c in rows if c.relation == "about")
        ours[about.id] = 3 * about.value
    else:
        marked[0] = dataclasses.replace(marked[0], status="not reproduced")
    capsys.readouterr()
    assert command.main() == 1
    assert "unlike marked" in capsys.readouterr().out
