"""The screens in README and docs: every `$ geosim ...` that they show is run again and its output put in.

    python -m experiments.screens            rewrites what differs
    python -m experiments.screens --check    only says what differs, and ends with 1 if anything does

A screen may be cut short: `...` stands for any number of lines, and what comes before and after what is shown
may be missing. Commands run in a folder that has the files of `tests/calibrate/fixtures`.
"""

import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher
from pathlib import Path
from typing import Annotated

import typer

from experiments.console import console, run_app
from geosim.errors import RunError

ROOT = Path(__file__).resolve().parents[1]
FIXTURES = ROOT / "tests" / "calibrate" / "fixtures"
CUT = "..."
_COMMAND = re.compile(r"( +)\$ geosim ")
_CHANGES = re.compile(r"[\d.,]+|[█▏▎▍▌▋▊▉]+|\s+|\b[numk]?s\b")
_LIKE = 0.5  # of a line and the one that takes its place; they differ in figures alone, or in a name
_SAME = 0.9


@dataclass(frozen=True)
class Screen:
    """A command and what a file shows of its output.

    Attributes:
        file: where; first, last: its lines there, from 0, without the command's own.
        indent: blanks before each line.
        command: arguments, without `geosim`.
        shown: lines without the indent.
    """

    file: Path
    first: int
    last: int
    indent: str
    command: tuple[str, ...]
    shown: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.file.name}:{self.first}: geosim {shlex.join(self.command)}"


def documents() -> list[Path]:
    """Files with screens."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def screens(file: Path) -> Iterator[Screen]:
    """All screens of a file, from its end to its beginning, so that one can be replaced before the next."""
    lines = file.read_text().splitlines()
    for number in range(len(lines) - 1, -1, -1):
        found = _COMMAND.match(lines[number])
        if found is None:
            continue
        indent, begin = found[1], number
        while lines[begin].endswith("\\"):
            begin += 1
        text = " ".join(line.strip().removesuffix("\\") for line in lines[number : begin + 1])
        first = begin + 1
        while first < len(lines) and not lines[first].strip():
            first += 1
        last = first
        while last < len(lines) and (not lines[last].strip() or lines[last].startswith(indent)):
            if _COMMAND.match(lines[last]):
                break
            last += 1
        while not lines[last - 1].strip():
            last -= 1
        shown = tuple(line.removeprefix(indent) for line in lines[first:last])
        yield Screen(file, first, last, indent, tuple(shlex.split(text)[2:]), shown)


def output(screen: Screen) -> list[str]:
    """What the command prints now.

    Raises:
        RunError: if it fails.
    """
    with tempfile.TemporaryDirectory() as folder:
        for fixture in FIXTURES.iterdir():
            (Path(folder) / fixture.name).symlink_to(fixture)
        done = subprocess.run(
            [sys.executable, "-m", "geosim.cli", *screen.command],
            cwd=folder, env={**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "80"}, capture_output=True,
            text=True, check=False,
        )  # fmt: skip
    if done.returncode:
        raise RunError(f"{screen}: ends with {done.returncode}: {done.stderr.strip()}")
    return done.stdout.rstrip().splitlines()


def refreshed(screen: Screen, now: list[str]) -> list[str]:
    """What is shown, with the lines of `now` that stand where its lines stood.

    Raises:
        RunError: if a line has no counterpart any more.
    """
    whole = CUT not in screen.shown and min(_likeness(screen.shown[i], now[i]) for i in (0, -1)) > _SAME
    if whole:
        return now
    out: list[str] = []
    at = 0
    for part in _parts(screen.shown):
        if part == [CUT]:
            out.append(CUT)
            continue
        starts = range(at, len(now) - len(part) + 1)
        if not starts:
            raise RunError(f"{screen}: prints fewer lines than are shown")
        likeness = {
            start: [_likeness(line, now[start + i]) for i, line in enumerate(part)] for start in starts
        }
        best = max(starts, key=lambda start: sum(likeness[start]))
        if min(likeness[best]) < _LIKE:
            gone = part[likeness[best].index(min(likeness[best]))]
            raise RunError(f"{screen}: prints nothing like '{gone.strip()}' where it stood")
        at = best + len(part)
        out += now[best:at]
    return out


def _parts(lines: tuple[str, ...]) -> Iterator[list[str]]:
    """Lines between cuts, and the cuts."""
    part: list[str] = []
    for line in lines:
        if line.strip() == CUT:
            if part:
                yield part
            yield [CUT]
            part = []
        else:
            part.append(line)
    if part:
        yield part


def _likeness(line: str, other: str) -> float:
    """1 for lines that differ in figures, units of time and bars alone."""
    a, b = (_CHANGES.sub(" ", text).strip() for text in (line, other))
    return SequenceMatcher(None, a, b, autojunk=False).ratio() if a or b else 1.0


def _put(screen: Screen, new: list[str]) -> None:
    lines = screen.file.read_text().splitlines()
    lines[screen.first : screen.last] = [(screen.indent + line).rstrip() for line in new]
    screen.file.write_text("\n".join(lines) + "\n")


app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def main(check: Annotated[bool, typer.Option("--check", help="Change nothing.")] = False) -> None:
    """Run what README and docs show, and put in what it prints now."""
    stale = 0
    for screen in (screen for file in documents() for screen in screens(file)):
        try:
            new = refreshed(screen, output(screen))
        except RunError as error:
            console.print(str(error), markup=False, soft_wrap=True)
            stale += 1
            continue
        if tuple(new) != screen.shown:
            console.print(str(screen), markup=False, soft_wrap=True)
            if check:
                stale += 1
            else:
                _put(screen, new)
    if stale:
        raise RunError(f"{stale} screens are not what their commands print")


if __name__ == "__main__":
    run_app(app, "screens")
