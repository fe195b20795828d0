"""Runs `interpreted.py` in two processes in which triton interprets its kernels on the CPU."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

_LONG = "test_bytes_residuals_and_sums_are_those_of_the_reference"  # beside all others


def test_the_interpreted_kernels_agree_with_the_reference() -> None:
    pytest.importorskip("triton")
    here = Path(__file__).parent
    # The interpreter's numpy warns where IEEE arithmetic overflows, as some inputs make it do.
    options = ["-p", "no:cacheprovider", "-W", "ignore::RuntimeWarning"]
    halves = [
        subprocess.Popen(
            [sys.executable, "-m", "pytest", *options, "-k", chosen, str(here / "interpreted.py")],
            env=os.environ | {"TRITON_INTERPRET": "1"},
            cwd=here,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for chosen in (_LONG, f"not {_LONG}")
    ]
    for said, half in [(half.communicate()[0], half) for half in halves]:
        assert half.returncode == 0, said[-4000:]
        assert "passed" in said
