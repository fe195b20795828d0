"""What README and docs show of `geosim`: each command runs and prints such lines; figures may differ."""

from pathlib import Path

import pytest

from experiments.screens import Screen, documents, output, refreshed, screens
from geosim.errors import RunError

SHOWN = [screen for file in documents() for screen in screens(file)]


def screen(*shown: str) -> Screen:
    return Screen(Path("some.md"), 0, len(shown), "    ", ("simulate", "laptop"), shown)


@pytest.mark.parametrize("shown", SHOWN, ids=lambda s: f"{s.file.name}-{s.first}")
def test_a_command_that_is_shown_runs_and_prints_such_lines(shown):
    assert refreshed(shown, output(shown))


def test_figures_are_put_in_and_cuts_stay():
    now = ["laptop under ddp", "", "a  1 s  ██", "b  2.5 ms", "c  7 s", "sum  9 s"]
    assert refreshed(screen("a  3 s  █", "...", "sum  8 s"), now) == ["a  1 s  ██", "...", "sum  9 s"]
    assert refreshed(screen("laptop under ddp", "sum  1 s"), now) == now
    assert refreshed(screen("c  100 us"), now) == ["c  7 s"]


def test_a_line_that_is_printed_no_more_is_named():
    with pytest.raises(RunError, match="nothing like 'throughput  1 tokens/s'"):
        refreshed(screen("a  3 s", "throughput  1 tokens/s"), ["a  1 s", "b  2 s"])
    with pytest.raises(RunError, match="fewer lines"):
        refreshed(screen("a  3 s", "...", "a  3 s", "b  2 s"), ["a  1 s", "b  2 s"])


def test_a_command_that_fails_says_so():
    with pytest.raises(RunError, match="ends with 2: geosim: policy 'none' is neither"):
        output(Screen(Path("some.md"), 0, 0, "    ", ("simulate", "laptop", "--policy", "none"), ()))
