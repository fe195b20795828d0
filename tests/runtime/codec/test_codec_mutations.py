"""A slice of the campaign of mutated payloads: none crashes a decoder, or is taken for something else."""

import subprocess
import sys
from pathlib import Path

import fuzz
import pytest
import torch


def test_mutated_payloads_are_refused_or_decode_as_the_reference_says(codec_class) -> None:
    if not codec_class.runs_on(torch.device("cpu")):
        pytest.skip("fuzz gives a decoder memory of the host")
    seen = sum((fuzz.Case(number, codec_class).run(80) for number in range(80)), start=fuzz.Counter())
    assert seen.total() > 5000
    assert min(seen.values()) > 1000


def test_no_decoder_touches_memory_beside_its_own() -> None:
    """In a process of its own: what it must not touch ends it."""
    done = subprocess.run(
        [sys.executable, str(Path(fuzz.__file__)), "--count", "4000", "--seed", "5", "--jobs", "1"],
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert "forged and decoded alike" in done.stdout


@pytest.mark.parametrize("at_end", [True, False])
def test_the_guard_sees_a_byte_beside(at_end: bool) -> None:
    guard = fuzz.Guarded(5000)
    view = guard.take(torch.arange(1000, dtype=torch.float32), at_end)
    assert view.tolist() == list(range(1000))
    view += 1
    guard.check()
    beside = guard._begin - 1 if at_end else guard._end
    guard._all[beside] ^= 1
    with pytest.raises(AssertionError, match="beside"):
        guard.check()


def test_the_guard_ends_a_process_that_reads_on() -> None:
    code = (
        "import fuzz, torch, ctypes; guard = fuzz.Guarded(64); view = guard.take(torch.zeros(16), {}); "
        "ctypes.string_at(view.data_ptr() + {}, 1)"
    )
    for at_end, offset, status in ((True, 63, 0), (True, 64, -11), (False, 0, 0), (False, -1, -11)):
        done = subprocess.run(
            [sys.executable, "-c", code.format(at_end, offset)],
            cwd=Path(fuzz.__file__).parent,
            capture_output=True,
            check=False,
        )
        assert done.returncode == status
