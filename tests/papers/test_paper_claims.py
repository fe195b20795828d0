"""Every claim of every source is held against this code, and a claim that turns is noticed."""

import dataclasses
import os
import subprocess
import sys
from pathlib import Path

import pytest

import experiments
import papers.__main__ as command
from papers.field_report_a import reproduce
from papers.screen import show

FOLDERS = command.folders()
FIELD_REPORT = Path(reproduce.__file__).parent


def test_every_claim_is_printed_and_stands_as_marked() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "papers"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, "COLUMNS": "120", "PYTHONIOENCODING": "utf-8"},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert FOLDERS
    for folder in FOLDERS:
        for claim in command.read_claims(folder):
            assert any(line.split()[:1] == [claim.id] for line in done.stdout.splitlines())
            assert claim.text.split()[0] in done.stdout
    assert "unlike marked" not in done.stdout
    # What is committed is what the command prints now.
    committed = Path(experiments.__file__).parent / "results" / "papers.txt"
    assert done.stdout == committed.read_text(encoding="utf-8")


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_a_claim_that_does_not_hold_says_why_and_each_source_has_its_parts(folder: Path) -> None:
    assert {"claims.toml", "reproduce.py", "README.md"} <= {path.name for path in folder.iterdir()}
    for row in command.read_claims(folder):
        assert row.status in ("reproduced", "not reproduced")
        assert row.reason or row.status == "reproduced", row.id


@pytest.mark.parametrize("width", [80, 100, 120, 200])
def test_the_table_fits_the_terminal(width: int) -> None:
    rows = [
        claim.row(folder.name, 3 * claim.value) for folder in FOLDERS for claim in command.read_claims(folder)
    ]
    lines = show(rows, ["X: " + "a reason of many words " * 20], width)
    assert max(map(len, lines)) <= width
    head = next(line for line in lines if line.lstrip().startswith(("claim", "published")))
    for row in rows:
        at = next(i for i, line in enumerate(lines) if line.split()[:1] in ([row.id], [f"{row.id}:"]))
        figures = next(line for line in lines[at:] if line.rstrip().endswith(row.verdict))
        assert figures.index(row.verdict) == head.index("verdict")
        assert row.published in figures
        assert row.ours in figures
    assert [line for line in lines if line.startswith("papers/")] == [f"papers/{f.name}" for f in FOLDERS]


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


def test_an_error_is_relative_unless_nothing_is_published_and_a_kept_bound_has_none() -> None:
    assert claim("at most", 2.0).error(1.0) == ""
    assert claim("at most", 2.0).error(3.0) == "+50.0 %"
    assert claim("about", 500.0).error(475.0) == "-5.0 %"
    assert claim("about", 0.0).error(0.25) == "+0.25 %"
    assert claim("about", -2.0).error(-1.0) == "+50.0 %"


@pytest.mark.parametrize("status", ["reproduced", "not reproduced"])
def test_a_claim_unlike_its_mark_fails_the_command(monkeypatch, capsys, status: str) -> None:
    """Both ways: one that is marked as reproduced and fails, and one that suddenly holds."""
    rows = command.read_claims(FIELD_REPORT)
    monkeypatch.setattr(command, "folders", lambda: [FIELD_REPORT])
    ours = {c.id: c.value for c in rows}
    monkeypatch.setattr(reproduce, "reproduce", lambda: ours)
    marked = [dataclasses.replace(c, status="reproduced", reason="") for c in rows]
    monkeypatch.setattr(command, "read_claims", lambda _: marked)
    assert command.main([]) == 0
    if status == "reproduced":
        about = next(c for c in rows if c.relation == "about")
        ours[about.id] = 3 * about.value
    else:
        marked[0] = dataclasses.replace(marked[0], status="not reproduced")
    capsys.readouterr()
    assert command.main([]) == 1
    out = capsys.readouterr().out
    assert "1 unlike marked" in out
    assert f" now {'not ' if status == 'reproduced' else ''}reproduced\n" in out


@pytest.mark.parametrize("module", ["papers", "papers.streaming_diloco", "papers.roce_distance"])
def test_a_wrong_argument_is_one_line(module: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", module, "--nope"], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "--nope" in done.stderr
    assert not done.stdout
