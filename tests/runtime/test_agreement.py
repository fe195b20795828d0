"""Sites that disagree, or do not come: one line that says who and what, at every rank, in time."""

import time

import pytest
import torch
from geo_cases import inner_for, make_policy, network

from geosim.errors import RunError, UsageError
from geosim.policy import load_policy
from geosim.scenario import load_scenario
from runtime.differences import differences
from runtime.job import Job
from runtime.optimizer import GeoOptimizer
from runtime.rendezvous import Address
from runtime.sites import Sites


def build(sites, *, odd):
    """A GeoOptimizer whose site `west` differs in one thing."""
    differs = sites.name == "west"
    policy = {"interval": 4 if odd == "policy" and differs else 2}
    model = network(seed=2 if odd == "parameters" and differs else 1)
    if odd == "layout" and differs:
        model.append(torch.nn.Linear(4, 4))
    data = "b" if odd == "data" and differs else "a"
    GeoOptimizer(inner_for("sgd", model, 0.1), make_policy(policy), sites, data=data)


@pytest.mark.parametrize(
    ("odd", "words"),
    [
        ("policy", "the policy: interval "),
        ("parameters", "the parameters"),
        ("layout", "the model's tensors"),
        ("data", "the data"),
    ],
)
def test_every_rank_says_what_differs(pool, odd, words):
    for site in pool.errors(build, odd=odd):
        for error in site:
            assert isinstance(error, RunError)
            text = str(error)
            assert words in text
            assert "'east'" in text
            assert "'west'" in text
            assert "\n" not in text


def test_one_rank_of_several_is_not_taken_for_a_site(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(UsageError, match=r"WORLD_SIZE is 2 .*: call torch\.distributed\.init_process_group"):
        Sites.connect(["east", "west"], "east", "127.0.0.1:1", timeout_s=0.1)


def test_a_site_that_never_comes(pool):
    begin = time.monotonic()
    errors = pool.errors(build, absent=("west",), odd=None, timeout_s=1.5)
    assert time.monotonic() - begin < 15
    for error in errors[0]:
        assert isinstance(error, RunError)
        assert "waited 1.5 s for site 'west'" in str(error)


def test_a_host_that_never_comes(pool):
    errors = pool.errors(build, ranks=1, absent=("east",), odd=None, timeout_s=1.0)
    assert "waited 1 s for site 'east'" in str(errors[0][0])


def leave_or_wait(sites):
    """The site that hosts the store goes without a word; the other one waits for it."""
    if sites.name == "west":
        sites.agree({"step": 0}, shards=1)
    time.sleep(0.5)


def test_a_rendezvous_that_closes_is_no_timeout(pool):
    begin = time.monotonic()
    error = pool.errors(leave_or_wait, ranks=1, timeout_s=15.0)[1][0]
    assert time.monotonic() - begin < 8
    assert isinstance(error, RunError)
    assert "the rendezvous closed after " in str(error)
    assert "why site 'east', which hosts it, stopped" in str(error)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"lr": 0.1}, "disagree on --lr: "),
        ({"steps": 8}, "disagree on --steps: "),
        ({"seed": 1}, "disagree on --seed: "),
        ({"workload.batch_per_accelerator": 3}, "disagree on the workload"),
    ],
)
def test_what_a_site_is_told_is_agreed(pool, changes, words):
    for site in pool.errors(compare_jobs, ranks=1, changes=changes):
        assert isinstance(site[0], RunError)
        assert words in str(site[0])


def compare_jobs(sites, *, changes):
    """Agree on a job that differs at `west`."""
    mine = changes if sites.name == "west" else {}
    scenario = {name: value for name, value in mine.items() if "." in name}
    rest = {name: value for name, value in mine.items() if "." not in name}
    job = Job(load_scenario("laptop", scenario), load_policy("ddp"), **({"steps": 4} | rest))
    sites.agree(job.facts(), shards=1)


@pytest.mark.parametrize("text", ["here", ":29600", "here:", "here:port", "here:99999"])
def test_rendezvous_must_be_an_address(text):
    with pytest.raises(UsageError, match="HOST:PORT"):
        Address.parse(text)


def test_a_site_must_be_one_of_the_sites():
    with pytest.raises(UsageError, match="no such site: use one of east, west"):
        Sites(["east", "west"], "north", None)


@pytest.mark.parametrize(
    ("policy", "word"),
    [
        ({"overlap": "eager"}, "overlap"),
        ({"update": "local", "interval": 8, "overlap": {"kind": "streaming", "steps": 2}}, "overlap"),
        ({"update": {"kind": "accumulate", "send": "momentum"}}, "update.send"),
        ({"adapt": "hide-exchange"}, "adapt"),
        ({"shards": 2}, "shards"),
    ],
)
def test_what_only_the_simulator_knows_is_refused(policy, word):
    model = network()
    with pytest.raises(UsageError, match=word) as error:
        GeoOptimizer(inner_for("sgd", model, 0.1), make_policy(policy), Sites(["east"], "east", None))
    assert "\n" not in str(error.value)
    assert word == "shards" or "geosim simulate" in str(error.value)


def test_the_fields_that_differ_are_named_and_names_are_none():
    mine = load_policy("hierarchical-efsgd").to_dict()
    theirs = load_policy("hierarchical-efsgd", {"interval": 8, "codec.select.ratio": 0.02}).to_dict()
    assert differences(mine, {**mine, "name": "other", "about": "?"}) == ""
    said = differences(mine, theirs)
    assert sorted(said.split(", ")) == ["codec.select.ratio 0.01 and 0.02", "interval 16 and 8"]
    assert differences({"a": [1, {"b": 2}]}, {"a": [1, {"b": 3}]}) == "a.1.b 2 and 3"
    many = differences({str(i): i for i in range(9)}, {})
    assert many == "0 0 and unset, 1 1 and unset, 2 2 and unset, and 6 more"
