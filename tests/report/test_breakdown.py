"""Where each millisecond of a step goes, site by site: table, figure, and sums that hold."""

import pytest

from geosim.policy import load_policy
from geosim.report import breakdown, tables
from geosim.report.figures import breakdown_figure
from geosim.report.parts import COMPUTE, parts_of
from geosim.scenario import load_scenario
from geosim.screen import rendered
from geosim.sim import simulate

CASES = [
    ("laptop", "local-sgd"),
    ("laptop", "ddp"),
    ("hongkong-siliconvalley", "local-sgd"),
    ("llama-405b-four-campuses", "hierarchical-efsgd"),
    ("four-regions", "streaming-diloco"),
]


def made(scenario, policy, windows=8, **changes):
    world, rule = load_scenario(scenario, changes), load_policy(policy)
    return world, simulate(world, rule, seeds=2, windows=windows).to_dict()


@pytest.mark.parametrize(("scenario", "policy"), CASES)
def test_a_sites_parts_add_up_to_its_step(scenario, policy):
    world, result = made(scenario, policy)
    sites = breakdown.by_site(world, result)
    for site in sites.values():
        step = site["step_time_s"]["mean"]
        assert sum(parts_of(site).values()) == pytest.approx(step, rel=1e-9)
        if site["compute_parts"]:
            assert sum(site["compute_parts"].values()) == pytest.approx(site["parts"]["compute"])
            assert not set(parts_of(site)) & {"compute"}
        # A site's own windows end where the slowest's do, to a part of one window.
        assert step == pytest.approx(result["step_time_s"]["mean"], rel=0.05)
    for part, seconds in result["parts"].items():
        mean = sum(site["parts"][part] for site in sites.values()) / len(sites)
        assert mean == pytest.approx(seconds, rel=1e-9)


def test_without_chance_a_blocking_site_takes_exactly_the_step():
    world, result = made("laptop", "local-sgd")
    for site in breakdown.by_site(world, result).values():
        assert site["step_time_s"]["mean"] == pytest.approx(result["step_time_s"]["mean"], rel=1e-9)


def test_a_slower_site_computes_while_the_other_waits():
    world, result = made("hongkong-siliconvalley", "local-sgd")
    slow, fast = breakdown.by_site(world, result).values()
    assert slow["parts"]["compute"] > fast["parts"]["compute"]
    assert not breakdown.alike({"slow": slow, "fast": fast})


def test_the_table_has_a_column_a_site_where_they_differ():
    world, result = made("hongkong-siliconvalley", "local-sgd")
    shown = rendered(tables.step_table(result, breakdown.by_site(world, result)))
    assert shown.splitlines()[0].split() == ["a", "step", "hongkong", "siliconvalley"]
    assert "compute utilization" in shown
    world, result = made("laptop", "local-sgd")
    shown = rendered(tables.step_table(result, breakdown.by_site(world, result)))
    assert shown.splitlines()[0].split() == ["a", "step", "time", "share"]


def test_of_many_sites_the_ends_are_shown():
    rows = {
        f"s{i}": {
            "step_time_s": {"mean": 10.0},
            "parts": {"compute": 1.0 + i, "wait": 9.0 - i},
            "compute_parts": {},
        }
        for i in range(9)
    }
    result = {"step_time_s": {"mean": 10.0, "p50": 10.0, "p95": 10.0, "p99": 10.0}}
    assert rendered(tables.step_table(result, rows)).splitlines()[0].split() == ["a", "step", "s0", "s8"]


def test_what_compute_is_made_of_is_in_table_and_figure(tmp_path):
    world, result = made("llama-405b-four-campuses", "hierarchical-efsgd")
    sites = breakdown.by_site(world, result)
    shown = rendered(tables.step_table(result, sites))
    for key in ("matmul", "attention", "memory", "messages", "bubble"):
        assert f"  {COMPUTE[key][0]}" in shown
    breakdown_figure(sites, tmp_path / "f.svg")
    text = (tmp_path / "f.svg").read_text()
    assert "<svg" in text
    assert set(breakdown.words_of_compute(world)) == {site.name for site in world.sites}
    assert breakdown.words_of_compute(load_scenario("laptop")) == {}
