"""Runs `interpreted.py` in a process in which triton interprets its kernels on the CPU."""

import os
import subprocess
import sys
from pathlib import Path

import pytest


def test_the_interpreted_kernels_agree_with_the_reference() -> None:
    pytest.importorskip("triton")
    here = Path(__file__).parent
    # The interpreter's numpy warns where IEEE arithmetic overflows, as some inputs make it do.
    options = ["-p", "no:cacheprovider", "-W", "ignore::RuntimeWarning"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, str(here / "interpreted.py")],
        env=os.environ | {"TRITON_INTERPRET": "1"},
        cwd=here,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert "passed" in done.stdout
