"""Describing and choosing load none of the heavy libraries."""

import subprocess
import sys

import pytest


@pytest.mark.parametrize("module", ["geosim", "geosim.policy", "geosim.scenario"])
def test_importing_loads_neither_torch_nor_jax_nor_simpy_nor_scipy(module):
    heavy = ("torch", "jax", "simpy", "scipy", "matplotlib")
    code = f"import sys, {module}; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == "[]"


def test_reading_every_scenario_and_policy_loads_none_of_them_either():
    code = (
        "import sys; from geosim.policy import *; from geosim.scenario import *;"
        "[make_layout(load_scenario(s).workload.model.param_table(), load_policy(p), 4)"
        " for s in ('laptop', 'beijing-ningxia') for p in preset_names()];"
        "print([m for m in ('torch', 'jax', 'simpy', 'scipy') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == "[]"
