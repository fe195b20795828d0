"""How experiments talk: results on stdout, progress on stderr, errors in one line."""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from geosim.console import parse_option, run_quietly
from geosim.errors import UsageError
from geosim.files import whole_file
from geosim.units import TIME

# Into a file or a pipe tables go unbroken, whatever the terminal is.
console = Console(highlight=False, width=None if sys.stdout.isatty() else 120)
_stderr = Console(stderr=True, highlight=False)


@contextmanager
def progress_of(title: str) -> Iterator[Callable[[int, int, float], None]]:
    """A progress line while the block runs; call what it yields with (step, steps, loss)."""
    if not _stderr.is_terminal:
        yield _plain(title)
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(30),
        TextColumn("{task.fields[note]}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=_stderr) as progress:
        task = progress.add_task(title, total=None, note="")

        def update(step: int, steps: int, loss: float) -> None:
            progress.update(task, completed=step, total=steps, note=f"step {step}/{steps} loss {loss:.2f}")

        yield update
        progress.update(task, total=1, completed=1)


def _plain(title: str) -> Callable[[int, int, float], None]:
    """Without a terminal: a line at the start and a few on the way."""
    print(title, file=sys.stderr, flush=True)

    def update(step: int, steps: int, loss: float) -> None:
        if step % max(1, steps // 4) == 0:
            print(f"  step {step}/{steps} loss {loss:.2f}", file=sys.stderr, flush=True)

    return update


def run_app(app: typer.Typer, name: str) -> None:
    """Run a typer app; a mistake of the user's is one line and its exit status."""
    program = f"python -m experiments.{name}"
    sys.exit(run_quietly(lambda: app(prog_name=program, standalone_mode=False), name))


def pace_seconds(text: str) -> float | None:
    """What `--pace` says; 'none' is None.

    Raises:
        UsageError: if it is no time, or not above zero.
    """
    if text == "none":
        return None
    seconds = parse_option("--pace", text, TIME)
    if seconds <= 0:
        raise UsageError(f"--pace {text}: must be above 0, or 'none'")
    return seconds


def write_json(file: Path, data: Any) -> None:
    """Write a file as a whole or not at all, so that Ctrl-C leaves no half of one."""
    with whole_file(file) as part:
        part.write_text(json.dumps(data, indent=1) + "\n")
