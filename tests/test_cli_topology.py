"""`geosim topology` as a user meets it."""

import pytest
import yaml
from test_cli import geosim, geosim_json

from geosim.policy import policy_from_dict

SEA = (
    "trunks=[{name: sea, links: [[oregon, frankfurt], [virginia, frankfurt], [oregon, tokyo], "
    "[virginia, tokyo]], bandwidth: 100 Mbit/s}]"
)
FAST = ("four-regions", "--seeds", "1", "--windows", "3", "--set", "workload.step_jitter=0")


def test_the_screen_has_the_ranking_the_map_and_the_links(tmp_path):
    file = tmp_path / "policy.yaml"
    text = geosim("topology", *FAST, "--set", SEA, "--out", str(file)).stdout
    assert "best: tree " in text
    assert "more throughput than" in text
    assert "of direct's" in text
    assert "4 hubs (all), 6 rings (all), 12 trees (all)" in " ".join(text.split())
    made = policy_from_dict(yaml.safe_load(file.read_text()))
    assert made.topology.kind == "tree"
    assert len(made.topology.links) == 3


def test_json_ranks_and_says_what_links_carry():
    data = geosim_json("topology", *FAST)
    assert data["best"]["topology"]["kind"] == "direct"
    assert data["tried"] == {"direct": 1, "hub": 4, "ring": 6, "tree": 12}
    steps = [row["step_time_s"] for row in data["ranking"]]
    assert steps == sorted(steps)
    assert all(row["speedup"] <= 1 + 1e-6 for row in data["ranking"])
    assert sum(link["payloads"] for link in data["links"]) == 12


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("four-regions", "--policy", "ddp"), "flat-ring"),
        (("four-region",), "four-regions"),
        (
            ("four-regions", "--set", "trunks=[{name: a, links: [[x, y]], bandwidth: 1 Gbit/s}]"),
            "joins x and y",
        ),
        (("four-regions", "--out", "/no/such/file.yaml"), "/no/such"),
    ],
)
def test_a_mistake_is_one_line(arguments, words):
    done = geosim("topology", *arguments, status=2)
    assert words in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_what_waiting_costs_is_shown_where_sites_differ():
    uneven = geosim("simulate", "laptop", "--policy", "local-sgd", "--set", "sites.1.step_time=400 ms").stdout
    assert "slower sites" in uneven
    assert "150 ms" in uneven
    assert "slower sites" not in geosim("simulate", "laptop", "--policy", "local-sgd").stdout
