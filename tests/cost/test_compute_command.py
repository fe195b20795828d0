"""`geosim plan` as a user meets it, and what a simulation loads."""

import json
import subprocess
import sys

import pytest

from geosim.cli import main
from geosim.scenario import Parallel, load_scenario


def run(capsys: pytest.CaptureFixture[str], *arguments: str, status: int = 0) -> str:
    with pytest.raises(SystemExit) as left:
        main(list(arguments))
    said = capsys.readouterr()
    assert left.value.code == status, said.err
    return said.err if status else said.out


def test_a_plan_lists_choices_that_a_scenario_takes_back(capsys: pytest.CaptureFixture[str]) -> None:
    made = json.loads(run(capsys, "plan", "llama-405b-four-campuses", "--count", "3", "--json"))
    (one,) = made["plans"]
    assert one["sites"] == "north, east, south, west"
    assert len(one["best"]) == 3
    for choice in one["best"]:
        assert Parallel(**choice["parallel"])
        assert 0.3 < choice["mfu"] < 0.6
        assert choice["memory_bytes"] <= 141e9
        assert load_scenario("llama-405b-four-campuses", {"workload.parallel": choice["parallel"]})


def test_a_plan_s_screen_shows_what_decides(capsys: pytest.CaptureFixture[str]) -> None:
    prices = ("--set", "prices.accelerator_hour=2.5", "--set", "prices.egress_per_terabyte=20")
    said = run(capsys, "plan", "llama-70b-two-campuses", "--count", "2", "--policy", "diloco", *prices)
    for word in ("MFU", "bubble", "memory", "USD", "tensor", "north, south"):
        assert word in said


def test_a_plan_holds_what_is_set(capsys: pytest.CaptureFixture[str]) -> None:
    """As `tune` does with a policy's fields: a plan for tensor 4 is no answer to who has set 8."""
    name = "llama-70b-two-campuses"
    free = json.loads(run(capsys, "plan", name, "--json"))["plans"][0]
    held = ("--set", "workload.parallel.tensor=8", "--set", "workload.parallel.recompute=full")
    made = json.loads(run(capsys, "plan", name, "--count", "1000", "--json", *held))["plans"][0]
    assert made["considered"] < free["considered"]
    assert {c["parallel"]["tensor"] for c in made["best"]} == {8}
    assert {c["parallel"]["recompute"] for c in made["best"]} == {"full"}
    for what, use in (("tensor=7", "use 1, 2, 4, 8, 16, 32, 64"), ("recompute=selective", "use none, full")):
        said = run(capsys, "plan", name, "--set", f"workload.parallel.{what}", status=2)
        field, value = what.split("=")
        assert said == f"geosim: workload.parallel.{field}: {value} is no choice here: {use}\n"


def test_plan_refuses_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    said = run(capsys, "plan", "llama-70b-two-campuses", "--set", "policy.interval=4", status=2)
    assert said.count("\n") == 1
    assert "needs --policy" in said
    said = run(capsys, "plan", "llama-70b-two-campuses", "--set", "workload.model=llama-3.1-405b",
               "--set", "sites.0.nodes=1", status=2)  # fmt: skip
    assert said.count("\n") == 1
    assert "fits 8 H100" in said


def test_a_simulation_with_a_stated_parallelism_loads_neither_scipy_nor_torch() -> None:
    code = (
        "import sys; from geosim.scenario import load_scenario; from geosim.policy import load_policy;"
        "from geosim.sim import simulate;"
        "simulate(load_scenario('llama-70b-two-campuses'), load_policy('diloco'), seeds=1, windows=2);"
        "print([m for m in ('torch', 'jax', 'scipy', 'matplotlib') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == "[]"
