"""How commands end: one line that begins with the command's name, and an exit status."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from geosim.console import make_folder, parse_option, run_quietly
from geosim.errors import RunError, UsageError
from geosim.units import TIME


def raising(error: BaseException):
    def command() -> None:
        raise error

    return command


@pytest.mark.parametrize(
    ("error", "status", "line"),
    [
        (UsageError("field: 3\n  is wrong"), 2, "it: field: 3 is wrong"),
        (RunError("a peer left"), 1, "it: a peer left"),
        (KeyboardInterrupt(), 130, "it: stopped"),
    ],
)
def test_what_is_raised_on_purpose_is_one_line(capsys, error, status, line):
    assert run_quietly(raising(error), "it") == status
    assert capsys.readouterr() == ("", line + "\n")


def test_what_nobody_foresaw_is_raised():
    with pytest.raises(ZeroDivisionError):
        run_quietly(lambda: 1 // 0, "it")


def test_sigterm_unwinds_and_its_old_handler_comes_back(capsys):
    closed = []
    before = signal.getsignal(signal.SIGTERM)

    def command() -> None:
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            signal.pause()
        finally:
            closed.append(True)

    assert run_quietly(command, "it") == 143
    assert closed == [True]
    assert capsys.readouterr().err == "it: stopped by SIGTERM\n"
    assert signal.getsignal(signal.SIGTERM) is before


app = typer.Typer(add_completion=False)


@app.command()
def command(number: int = 1) -> None:
    """A command of one option."""
    if number == 7:
        raise typer.Exit(7)


@pytest.mark.parametrize(
    ("arguments", "status"), [([], 0), (["--number", "7"], 7), (["--number", "x"], 2), (["--numbr", "1"], 2)]
)
def test_what_the_parser_refuses_is_one_line_that_names_the_help(capsys, arguments, status):
    assert run_quietly(lambda: app(arguments, prog_name="it", standalone_mode=False), "it") == status
    said = capsys.readouterr().err
    if status == 2:
        assert said.startswith("it: ")
        assert said.endswith(": see it --help\n")
        assert said.count("\n") == 1
    else:
        assert said == ""


def test_a_quantity_names_its_option():
    assert parse_option("--pace", "80 ms", TIME) == 0.08
    with pytest.raises(UsageError, match="--pace: '80' has no unit"):
        parse_option("--pace", "80", TIME)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("-5 ms", "--pace -5 ms: must be above 0"),
        ("0 s", "--pace 0 s: must be above 0"),
        ("inf s", "--pace: 'inf s': must be finite, like '30 ms'"),
        ("nan ms", "--pace: 'nan ms': must be finite, like '30 ms'"),
    ],
)
def test_a_quantity_that_cannot_be_is_told_as_it_was_typed(text, says):
    with pytest.raises(UsageError) as caught:
        parse_option("--pace", text, TIME)
    assert str(caught.value) == says


def test_a_folder_is_made_or_refused_in_one_line(tmp_path):
    make_folder("--out", tmp_path / "a" / "b")
    assert list((tmp_path / "a" / "b").iterdir()) == []
    (tmp_path / "file").write_text("")
    refused = [
        (tmp_path / "file", "a file is in the way"),
        (tmp_path / "file" / "x", "a file is in the way"),
        (Path("/proc/self"), "cannot write there"),
    ]
    for folder, says in refused:
        with pytest.raises(UsageError, match=f"--out {folder}: {says}"):
            make_folder("--out", folder)


def test_notes_that_cannot_be_written_fail_no_command(monkeypatch):
    """Half a line, which Python would write as it ends, and then leave with status 120."""
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
    code = "import sys; from geosim.console import run_quietly as run; "
    code += "sys.exit(run(lambda: sys.stderr.write('a') * 0, 'it'))"
    with open("/dev/full", "w") as full:
        assert subprocess.run([sys.executable, "-c", code], stderr=full, check=False).returncode == 0
