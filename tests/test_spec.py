"""What a user writes in YAML: strict about keys and units, and errors of one line that say what to do."""

import copy
import difflib
import math
from typing import Annotated, Literal

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import AfterValidator, Field

from geosim.documents import nearest, read_yaml
from geosim.errors import UsageError
from geosim.policy import SyncPolicy, load_policy, preset_names
from geosim.scenario import Scenario, load_scenario, scenario_names
from geosim.settings import apply_settings, set_path
from geosim.spec import (
    ByKind,
    Bytes,
    BytesPerSecond,
    FlopsPerSecond,
    Seconds,
    Spec,
    from_dict,
    keys_of_kind,
    not_negative,
    positive,
    within,
)
from geosim.units import BANDWIDTH, TIME


class Slow(Spec):
    kind: Literal["slow"] = "slow"
    wait_s: Seconds = 1.0


class Fast(Spec):
    kind: Literal["fast", "faster"] = "fast"
    speed: float = 2.0


Gait = Annotated[Slow | Fast, Field(discriminator="kind"), ByKind]


class Thing(Spec):
    name: str
    delay_s: Annotated[Seconds, AfterValidator(positive)] = 0.5
    rate_bytes_per_s: BytesPerSecond | None = None
    buffer_bytes: Bytes = 8.0
    peak_flops: FlopsPerSecond = 1e9
    loud: bool = False
    gait: Gait = Slow()
    gaits: tuple[Gait, ...] = ()


def refusal(make, *args, **kwargs):
    with pytest.raises(UsageError) as caught:
        make(*args, **kwargs)
    message = str(caught.value)
    assert "\n" not in message
    assert caught.value.exit_status == 2
    return message


def test_text_uses_the_bare_name_and_a_unit_and_python_the_full_name():
    text = from_dict(Thing, {"name": "a", "delay": "30 ms", "rate": "8 Mbit/s"}, "thing")
    assert text == Thing(name="a", delay_s=0.03, rate_bytes_per_s=1e6)
    assert text.to_dict()["delay"] == "30 ms"
    assert Thing.quantities().keys() == {"delay", "rate", "buffer", "peak"}


def test_an_absent_quantity_stays_absent():
    assert from_dict(Thing, {"name": "a", "rate": None}, "thing").rate_bytes_per_s is None
    assert Thing(name="a").to_dict()["rate"] is None


@pytest.mark.parametrize("value", ["30 ms", None])
def test_a_quantity_given_under_both_names_is_refused(value):
    message = refusal(from_dict, Thing, {"name": "a", "rate": value, "rate_bytes_per_s": 3.0}, "thing")
    assert message == "thing: rate: given twice, as 'rate' and as 'rate_bytes_per_s'"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"name": "a", "delay": 3}, "thing: delay: 3 is not a time: write it with a unit, like '30 ms'"),
        ({"name": "a", "delay": "0 s"}, "thing: delay: must be above 0 (got '0 s')"),
        ({"name": "a", "dely": "3 s"}, "thing: dely: unknown key; did you mean 'delay'?"),
        ({"nam": "a"}, "thing: nam: unknown key; did you mean 'name'? (and 1 more)"),
        ({}, "thing: name: this field is required"),
        (
            {1: "a"},
            "thing: 1: unknown key; known keys: "
            "buffer, delay, gait, gaits, loud, name, peak, rate (and 1 more)",
        ),
        ({"name": "a", "delay_s": float("nan")}, "thing: delay_s: Input should be a finite number (got nan)"),
        (
            {"name": "a", "gait": "trot"},
            "thing: gait: unknown kind 'trot': use one of 'slow', 'fast', 'faster'",
        ),
        ({"name": "a", "gait": {"speed": 3}}, "thing: gait: needs a 'kind'"),
        (
            {"name": "a", "gait": {"kind": "slow", "speed": 3}},
            "thing: gait.speed: unknown key; kind 'slow' has it not, 'fast' and 'faster' may: set kind too",
        ),
        (
            {"name": "a", "gait": {"kind": "faster", "wait": "1 s"}},
            "thing: gait.wait: unknown key; kind 'faster' has it not, 'slow' may: set kind too",
        ),
        (
            {"name": "a", "gaits": ["slow", {"kind": "slow", "wait": "1"}]},
            "thing: gaits.1.wait: '1' has no unit: write it with a unit, like '30 ms'",
        ),
        ([], "thing: expected a mapping of fields, got list"),
        (None, "thing: expected a mapping of fields, got NoneType"),
    ],
)
def test_what_is_wrong_is_said_in_the_words_of_the_file(data, message):
    assert refusal(from_dict, Thing, data, "thing") == message


@pytest.mark.parametrize("field", ["name", "gait"])
def test_yes_and_no_are_no_numbers_and_no_names(field):
    data = yaml.safe_load(f"{{name: a, {field}: off}}")
    assert refusal(from_dict, Thing, data, "thing").startswith(
        f"thing: {field}: got false (as YAML also reads"
    )
    assert from_dict(Thing, yaml.safe_load("{name: a, loud: yes}"), "thing").loud


def test_specs_are_immutable_hashable_and_compare_by_value():
    one, same, other = Thing(name="a"), Thing(name="a"), Thing(name="a", loud=True)
    assert one == same
    assert hash(one) == hash(same)
    assert one != other
    with pytest.raises(ValueError, match="frozen"):
        one.loud = True


@settings(deadline=None)
@given(
    st.builds(
        Thing,
        name=st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
        delay_s=st.floats(0, exclude_min=True, allow_infinity=False),
        rate_bytes_per_s=st.none() | st.floats(allow_nan=False, allow_infinity=False),
        gait=st.builds(Slow, wait_s=st.floats(allow_nan=False, allow_infinity=False)),
    )
)
def test_yaml_gives_back_the_same_spec(thing):
    assert from_dict(Thing, yaml.safe_load(thing.to_yaml()), "thing") == thing


@pytest.mark.parametrize("bad", [0.0, -1.0, float("inf"), float("-inf"), float("nan")])
def test_positive(bad):
    assert positive(0.1) == 0.1
    assert refusal(positive, bad) == f"must be {'' if math.isfinite(bad) else 'finite and '}above 0"


@pytest.mark.parametrize("bad", [-1e-9, float("inf"), float("-inf"), float("nan")])
def test_not_negative(bad):
    assert not_negative(0.0) == 0.0
    assert refusal(not_negative, bad) == f"must be {'' if math.isfinite(bad) else 'finite and '}0 or more"


def test_within_takes_its_bounds_and_says_them():
    rate = within("1 kbit/s", "1 Gbit/s", BANDWIDTH)
    assert [rate(v) for v in (125.0, 125e6)] == [125.0, 125e6]
    assert within("0 s", "1 h", TIME)(0.0) == 0.0
    for bad in (124.9, 126e6):
        assert refusal(rate, bad) == "must lie between 1 kbit/s and 1 Gbit/s"
    assert refusal(rate, -1.0) == "must be above 0"
    assert refusal(rate, float("inf")) == "must be finite and above 0"
    assert refusal(within("0 s", "1 h", TIME), -1.0) == "must be 0 or more"


# Unknown keys, at every depth of everything that is built in.


def written_out(name):
    """A scenario or policy with every field and every catalog entry written out."""
    if name in preset_names():
        return SyncPolicy, load_policy(name).to_dict()
    data = load_scenario(name).to_dict()
    scenario = load_scenario(name)
    data["workload"]["model"] = scenario.workload.model.to_dict()
    for site, row in zip(scenario.sites, data["sites"], strict=True):
        row["accelerator"] = site.accelerator.to_dict()
    return Scenario, data


def mappings(data, path=()):
    """Every mapping below `data`, with its path."""
    if isinstance(data, dict):
        yield path, data
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, value in items:
        yield from mappings(value, (*path, key))


@pytest.mark.parametrize("name", [*scenario_names(), *preset_names()])
def test_an_unknown_key_at_any_depth_names_the_nearest_known_one(name):
    cls, data = written_out(name)
    assert from_dict(cls, data, name).to_dict() == from_dict(cls, cls(**data).to_dict(), name).to_dict()
    for path, mapping in list(mappings(data)):
        for key in list(mapping):
            wrong = f"{key}q"
            mapping[wrong] = 1
            message = refusal(from_dict, cls, data, name)
            del mapping[wrong]
            near = difflib.get_close_matches(wrong, list(mapping), n=1)
            where = ".".join(str(part) for part in (*path, wrong))
            assert message == f"{name}: {where}: unknown key; did you mean '{near[0]}'?"


@pytest.mark.parametrize(
    ("word", "known", "near"),
    [
        ("bandwidth_back", ["bandwidth", "back_bandwidth", "rtt"], "back_bandwidth"),
        ("sgd-local", ["local-sgd", "diloco"], "local-sgd"),
        ("accelerator_per_nodes", ["accelerator", "nodes", "accelerators_per_node"], "accelerators_per_node"),
        ("RTT", ["rtt", "jitter"], "rtt"),
        ("zzz", ["rtt", "jitter"], None),
        ("rtt", [], None),
    ],
)
def test_the_known_word_that_is_nearest(word, known, near):
    assert nearest(word, known) == near


def test_a_number_may_be_a_percentage_and_a_word_or_a_quantity_may_not():
    assert from_dict(Thing, {"name": "5 %", "gait": {"kind": "fast", "speed": "5 %"}}, "thing") == Thing(
        name="5 %", gait=Fast(speed=0.05)
    )
    assert "is no unit of time" in refusal(from_dict, Thing, {"name": "a", "delay": "5 %"}, "thing")
    assert "valid number" in refusal(
        from_dict, Thing, {"name": "a", "gait": {"kind": "fast", "speed": "x %"}}, "t"
    )


def test_the_keys_of_a_kind():
    assert keys_of_kind(Thing, ["gait"], "slow") == {"kind", "wait", "wait_s"}
    assert keys_of_kind(Thing, ["gaits", "0"], "faster") == {"kind", "speed"}
    assert keys_of_kind(Thing, ["gait"], "trot") == keys_of_kind(Thing, ["name"], "slow") == set()


# --set


@settings(deadline=None)
@given(st.lists(st.sampled_from("abc"), min_size=1, max_size=4), st.integers())
def test_setting_a_path_reads_back(parts, value):
    data = {}
    set_path(data, ".".join(parts), value)
    for part in parts:
        data = data[part]
    assert data == value


def test_setting_a_path_changes_nothing_else():
    data = {"a": {"b": [1, {"c": 2}], "d": 3}}
    before = copy.deepcopy(data)
    set_path(data, "a.b.1.c", 5)
    assert data["a"]["b"][1]["c"] == 5
    data["a"]["b"][1]["c"] = 2
    assert data == before


def test_setting_a_path_leaves_what_shares_the_value_alone():
    shared = {"x": [{"y": 1}]}
    data = {"a": shared, "b": shared}
    set_path(data, "a.x.0.y", 2)
    assert data == {"a": {"x": [{"y": 2}]}, "b": {"x": [{"y": 1}]}}


@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize(
    ("data", "changes", "after"),
    [
        # Another kind drops what it does not know, and keeps what both know.
        ({"gait": {"kind": "slow", "wait": "1 s"}}, {"gait.kind": "fast"}, {"gait": {"kind": "fast"}}),
        ({"gait": {"kind": "slow", "wait_s": 1}}, {"gait.kind": "fast"}, {"gait": {"kind": "fast"}}),
        (
            {"gait": {"kind": "fast", "speed": 3}},
            {"gait.kind": "faster"},
            {"gait": {"kind": "faster", "speed": 3}},
        ),
        (
            {"gait": {"kind": "slow", "wait": "1 s"}},
            {"gait.kind": "slow"},
            {"gait": {"kind": "slow", "wait": "1 s"}},
        ),
        (
            {"gaits": [{"kind": "slow", "wait": "1 s"}]},
            {"gaits.0.kind": "fast"},
            {"gaits": [{"kind": "fast"}]},
        ),
        ({"gait": "slow"}, {"gait.kind": "fast"}, {"gait": {"kind": "fast"}}),
        ({}, {"gait.kind": "fast", "gait.speed": 3}, {"gait": {"kind": "fast", "speed": 3}}),
        # What no kind knows, and what the changes themselves set, is left to be refused.
        ({"gait": {"kind": "slow", "wiat": 1}}, {"gait.kind": "fast"}, {"gait": {"kind": "fast", "wiat": 1}}),
        ({"gait": {"kind": "slow", "wait": 1}}, {"gait.kind": "trot"}, {"gait": {"kind": "trot", "wait": 1}}),
        (
            {"gait": {"kind": "slow", "wait": 1}},
            {"gait.kind": "fast", "gait.wait": 2},
            {"gait": {"kind": "fast", "wait": 2}},
        ),
        (
            {},
            {"gait": {"kind": "slow", "wait": 2}, "gait.kind": "fast"},
            {"gait": {"kind": "fast", "wait": 2}},
        ),
        # The whole comes before its parts.
        ({}, {"gait": "fast", "gait.speed": 3}, {"gait": {"kind": "fast", "speed": 3}}),
    ],
)
def test_settings_mean_the_same_in_any_order_and_a_kind_brings_its_own_fields(
    data, changes, after, backwards
):
    before = copy.deepcopy(changes)
    given = dict(reversed(changes.items())) if backwards else changes
    assert apply_settings(Thing, copy.deepcopy(data), given) == after
    assert changes == before


def test_a_bare_word_is_written_out_where_the_path_goes_on_below_it():
    data = {"codec": {"select": "topk"}, "many": ["slow", "fast"]}
    set_path(data, "codec.select.ratio", 0.1)
    set_path(data, "many.1.speed", 3)
    assert data == {
        "codec": {"select": {"kind": "topk", "ratio": 0.1}},
        "many": ["slow", {"kind": "fast", "speed": 3}],
    }


def test_what_is_null_is_filled_in():
    data = {"a": None}
    set_path(data, "a.b", 1)
    assert data == {"a": {"b": 1}}


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("b.2", "--set b.2: '2' is no item of a list of 2; count from 0"),
        ("b.-1", "--set b.-1: '-1' is no item of a list of 2; count from 0"),
        ("b.x.y", "--set b.x.y: 'x' is no item of a list of 2; count from 0"),
        ("b.²", "--set b.²: '²' is no item of a list of 2; count from 0"),
        ("a.b", "--set a.b: 'a' has no fields below it"),
        ("b.0.c", "--set b.0.c: 'b.0' has no fields below it"),
    ],
)
def test_a_path_that_leads_nowhere(path, message):
    assert refusal(set_path, {"a": 1, "b": [1, 2]}, path, 3) == message


# Files


@pytest.mark.parametrize(
    ("content", "advice"),
    [
        (b"", "is empty: expected a mapping of fields"),
        (b"- 1\n", "expected a mapping of fields"),
        (b"a: [1\n", "line 2: not YAML: expected"),
        (b"a: 1\nb: {c: 1, c: 2}\n", "line 2: 'c' is given twice"),
        (b"a: !!python/object:os.system {}\n", "line 1: not YAML: could not determine a constructor"),
        (b"a: 1\n[1, 2]: 3\n", "line 2: not YAML: found unhashable key"),
        (b"a: 1\nb: \x00\n", "line 2: not YAML: special characters are not allowed"),
        (b"a: 1\n\tb: 1\n", "line 2: not YAML: "),
        (b"a: *b\n", "line 1: not YAML: found undefined alias 'b'"),
        (b"a: 1\nb: 2024-13-45\n", "line 2: not YAML: '2024-13-45' is no value"),
        (b"a: !!int x\n", "line 1: not YAML: 'x' is no value"),
        (b"a: " + b"9" * 5000 + b"\n", "line 1: not YAML: "),
        (b"a: " + b"[" * 5000, "line 1: not YAML: nested too deeply"),
        (b"\xff\xfe\x00", "not a text file in UTF-8"),
    ],
)
def test_a_file_that_is_no_mapping(tmp_path, content, advice):
    path = tmp_path / "file.yaml"
    path.write_bytes(content)
    message = refusal(read_yaml, path)
    assert message.startswith(f"{path}: {advice}")
    assert "<unicode string>" not in message


def test_a_missing_file_and_a_folder(tmp_path):
    assert (
        refusal(read_yaml, tmp_path / "no.yaml")
        == f"{tmp_path}/no.yaml: cannot read: No such file or directory"
    )
    assert "cannot read" in refusal(read_yaml, tmp_path)


def test_yaml_anchors_and_merges_work(tmp_path):
    path = tmp_path / "file.yaml"
    path.write_text("a: &x {p: 1, q: 2}\nb: {<<: *x, q: 3}\n")
    assert read_yaml(path) == {"a": {"p": 1, "q": 2}, "b": {"p": 1, "q": 3}}
