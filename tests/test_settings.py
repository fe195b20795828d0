"""`--set` items become changes by dotted path."""

import pytest

from geosim.errors import UsageError
from geosim.policy import load_policy
from geosim.settings import split_settings


def test_items_go_to_the_policy_or_to_the_scenario():
    scenario, policy = split_settings(["wan.0.rtt=80 ms", "policy.interval=8", "workload.recompute=true"])
    assert scenario == {"wan.0.rtt": "80 ms", "workload.recompute": True}
    assert policy == {"interval": 8}


def test_values_are_yaml_and_keep_later_equal_signs():
    scenario, policy = split_settings(
        ["about=a=b", "policy.codec.select={kind: topk, ratio: 0.03}", "wan=[]"]
    )
    assert scenario == {"about": "a=b", "wan": []}
    assert policy == {"codec.select": {"kind": "topk", "ratio": 0.03}}


def test_a_later_item_wins():
    assert split_settings(["policy.interval=8", "policy.interval=16"])[1] == {"interval": 16}


@pytest.mark.parametrize(
    "item",
    [
        "interval",
        "=8",
        "policy.=8",
        "policy=8",
        "wan..rtt=1",
        "about={a",
        "about={a: 1, a: 2}",
        "about=2024-13-45",
    ],
)
def test_what_is_no_setting_is_refused_in_one_line(item):
    with pytest.raises(UsageError) as error:
        split_settings([item])
    assert item in str(error.value)
    assert "\n" not in str(error.value)


def test_a_key_of_another_kind_is_named_with_the_kinds_that_have_it() -> None:
    with pytest.raises(UsageError, match="ratio: unknown key; kind 'dense' has it not, 'topk' and"):
        load_policy("ddp", {"codec.select.ratio": 0.1})
