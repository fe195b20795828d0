"""What exists: laws of links, sites and workloads, YAML round trips, and what is refused."""

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from geosim.errors import UsageError
from geosim.scenario import (
    Fabric,
    Hop,
    Model,
    Scenario,
    Site,
    TracePoint,
    WanLink,
    Workload,
    accelerators,
    load_scenario,
    models,
    scenario_names,
)
from geosim.spec import from_dict

rates = st.floats(125.0, 1e13)
times = st.floats(0.0, 10.0)
hops = st.builds(Hop, bandwidth_bytes_per_s=rates, latency_s=times)
own_model = st.builds(
    Model,
    name=st.just("mine"),
    layers=st.integers(1, 100),
    d_model=st.sampled_from([64, 96, 4096]),
    heads=st.sampled_from([1, 8, 32]),
    kv_heads=st.none() | st.just(1),
    head_dim=st.none() | st.sampled_from([64, 128]),
    ffn=st.integers(1, 10_000),
    gated=st.booleans(),
    vocabulary=st.integers(1, 300_000),
    tied=st.booleans(),
    positions=st.integers(0, 4096),
    biases=st.booleans(),
)
workloads = st.builds(
    Workload,
    model=st.sampled_from(list(models().values())) | own_model,
    sequence=st.integers(1, 1 << 20),
    batch_per_accelerator=st.integers(1, 512),
    precision=st.sampled_from(["fp32", "tf32", "bf16", "fp16", "fp8"]),
    gradient_dtype=st.sampled_from(["fp32", "bf16", "fp16"]),
    mfu=st.floats(0, 1, exclude_min=True),
    step_time_s=st.none() | st.floats(1e-6, 1e6),
    step_jitter=st.floats(0, 1),
    recompute=st.booleans(),
)


@st.composite
def scenarios(draw):
    names = draw(
        st.lists(st.from_regex(r"[a-z][a-z0-9_.-]{0,8}", fullmatch=True), min_size=1, max_size=4, unique=True)
    )
    sites = [
        Site(
            name=name,
            accelerator=draw(st.sampled_from(list(accelerators().values()))),
            nodes=draw(st.integers(1, 64)),
            accelerators_per_node=draw(st.integers(1, 16)),
            fabric=Fabric(intra_node=draw(hops), inter_node=draw(hops)),
            uplink_bytes_per_s=draw(st.none() | rates),
            downlink_bytes_per_s=draw(st.none() | rates),
        )
        for name in names
    ]
    pairs = [(a, b) for i, a in enumerate(names) for b in names[i + 1 :]]
    wan = []
    for pair in draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs else []:
        starts = sorted(draw(st.sets(st.floats(1e-3, 1e6), max_size=2)))
        wan.append(
            WanLink(
                between=draw(st.sampled_from([pair, pair[::-1]])),
                bandwidth_bytes_per_s=draw(rates),
                back_bandwidth_bytes_per_s=draw(st.none() | rates),
                rtt_s=draw(times),
                jitter_s=draw(times),
                loss=draw(st.floats(0, 1, exclude_max=True)),
                queue_bytes=draw(st.none() | rates),
                trace=tuple(TracePoint(at_s=t, bandwidth_bytes_per_s=draw(rates)) for t in [0.0, *starts])
                if draw(st.booleans())
                else (),
                congestion_control=draw(st.sampled_from(["cubic", "reno", "bbr"])),
                window_bytes=draw(rates),
                mtu_bytes=draw(st.floats(576, 65535)),
            )
        )
    text = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
    return Scenario(
        name=draw(text), about=draw(text), sites=tuple(sites), wan=tuple(wan), workload=draw(workloads)
    )


@settings(max_examples=40, deadline=None)
@given(scenarios())
def test_yaml_gives_back_the_same_scenario(scenario):
    again = from_dict(Scenario, yaml.safe_load(scenario.to_yaml()), "scenario")
    assert again == scenario
    assert again.to_dict() == scenario.to_dict()


@settings(max_examples=40, deadline=None)
@given(scenarios())
def test_links_are_found_from_either_end(scenario):
    names = [site.name for site in scenario.sites]
    found = set()
    for a in names:
        for b in names:
            link = scenario.link(a, b)
            assert link == scenario.link(b, a)
            if link is not None:
                assert {a, b} == set(link.between)
                found.add(link)
    assert found == set(scenario.wan)
    assert scenario.link("nowhere", names[0]) is None


@settings(max_examples=40, deadline=None)
@given(scenarios())
def test_ranks_add_up(scenario):
    assert scenario.ranks == sum(site.nodes * site.accelerators_per_node for site in scenario.sites)


def test_a_link_may_be_faster_one_way():
    link = WanLink(between=("a", "b"), bandwidth_bytes_per_s=3e6, back_bandwidth_bytes_per_s=1e6, rtt_s=0.1)
    assert (link.bandwidth("a"), link.bandwidth("b")) == (3e6, 1e6)
    assert link.name == "a-b"
    even = WanLink(between=("a", "b"), bandwidth_bytes_per_s=3e6, rtt_s=0.1)
    assert even.bandwidth("a") == even.bandwidth("b") == 3e6


@settings(deadline=None)
@given(own_model)
def test_a_models_parameters_by_an_independent_count(model):
    width = model.d_model // model.heads if model.head_dim is None else model.head_dim
    d, q, kv = model.d_model, model.heads * width, (model.kv_heads or model.heads) * width
    matrices = 2 * d * q + 2 * d * kv + (3 if model.gated else 2) * d * model.ffn
    biases = q + d + 2 * kv + (2 if model.gated else 1) * model.ffn + d + 2 * d
    layer = matrices + 2 * d + (biases if model.biases else 0)
    outside = (model.vocabulary * (1 if model.tied else 2) + model.positions) * d
    outside += d * (2 if model.biases else 1)
    table = model.param_table()
    assert table.numel == model.layers * layer + outside
    assert table.layers == model.layers
    assert not any("{" in t.name for t in table.tensors())


def test_a_catalog_entry_goes_by_its_name_and_a_changed_one_is_written_out():
    plain = load_scenario("laptop").to_dict()
    assert plain["workload"]["model"] == "byte-gpt-3m"
    assert plain["sites"][0]["accelerator"] == "cpu-core"
    changed = load_scenario("laptop", {"workload.model.layers": 8, "sites.1.accelerator.memory": "2 GB"})
    assert changed.workload.model.layers == 8
    assert changed.sites[0].accelerator == accelerators()["cpu-core"]
    assert changed.sites[1].accelerator.memory_bytes == 2e9
    data = changed.to_dict()
    assert data["workload"]["model"]["layers"] == 8
    assert data["sites"][1]["accelerator"]["memory"] == "2 GB"
    assert from_dict(Scenario, data, "scenario") == changed


def test_fields_are_set_by_their_path():
    changes = {
        "wan.0.rtt": "80 ms",
        "workload.model": "byte-gpt-tiny",
        "sites.1.name": "sea",
        "wan.0.between": ["east", "sea"],
    }
    scenario = load_scenario("laptop", changes)
    assert scenario.wan[0].rtt_s == 0.08
    assert scenario.workload.model == models()["byte-gpt-tiny"]
    assert scenario.link("sea", "east") is scenario.wan[0]


@pytest.mark.parametrize("text", ["0.1 %", "0.1%", " 1e-1 % ", "0.001", 0.001])
def test_a_share_may_be_given_in_per_cent(text):
    assert load_scenario("laptop", {"wan.0.loss": text}).wan[0].loss == 0.001


def test_places_that_share_a_yaml_anchor_are_changed_one_at_a_time():
    before = load_scenario("beijing-ningxia")
    after = load_scenario("beijing-ningxia", {"sites.0.fabric.intra_node.latency": "9 us"})
    assert after.sites[0].fabric.intra_node.latency_s == 9e-6
    assert after.sites[1] == before.sites[1]


def test_a_file_is_read_like_a_built_in(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(load_scenario("laptop").to_yaml())
    assert load_scenario(str(path)) == load_scenario("laptop")


BAD = [
    ({"sites.0.fabric": None}, "sites.0.fabric: must be a mapping of fields"),
    ({"wan": 3}, "wan: must be a list"),
    ({"name": None}, "name: Input should be a valid string (got null)"),
    (
        {"workload.model.layers": 10_000_000},
        "workload.model.layers: Input should be less than or equal to 10000 (got 10000000)",
    ),
    ({"wan.0.rtt": 40}, "wan.0.rtt: 40 is not a time: write it with a unit, like '30 ms'"),
    ({"wan.0.rtt": "40"}, "wan.0.rtt: '40' has no unit: write it with a unit, like '30 ms'"),
    ({"wan.0.rtt": "-40 ms"}, "wan.0.rtt: must be 0 or more (got '-40 ms')"),
    ({"wan.0.bandwidth": "-1 Gbit/s"}, "wan.0.bandwidth: must be above 0 (got '-1 Gbit/s')"),
    ({"wan.0.bandwidth": "0 Gbit/s"}, "wan.0.bandwidth: must be above 0 (got '0 Gbit/s')"),
    (
        {"wan.0.bandwidth": "1 Gb/s"},
        "wan.0.bandwidth: '1 Gb/s': 'Gb/s' is ambiguous or unknown: write Gbit/s or GB/s",
    ),
    ({"wan.0.back_bandwidth": "-1 bit/s"}, "wan.0.back_bandwidth: must be above 0 (got '-1 bit/s')"),
    (
        {"wan.0.bandwidth": "1e-30 bit/s"},
        "wan.0.bandwidth: must lie between 1 kbit/s and 1 Ebit/s (got '1e-30 bit/s')",
    ),
    ({"wan.0.rtt": "1e9 s"}, "wan.0.rtt: must lie between 0 s and 1 h (got '1e9 s')"),
    ({"wan.0.rtt": "inf s"}, "wan.0.rtt: 'inf s': must be finite, like '30 ms'"),
    ({"wan.0.queue": "1e-3 B"}, "wan.0.queue: must lie between 1 B and 1 EB (got '1e-3 B')"),
    ({"workload.step_time": "1e9 h"}, "workload.step_time: must lie between 1 ns and 1000 h (got '1e9 h')"),
    (
        {"sites.0.accelerator.fp32": "1 FLOP/s"},
        "sites.0.accelerator.fp32: must lie between 1 kFLOP/s and 1000 EFLOP/s (got '1 FLOP/s')",
    ),
    (
        {"wan.0.bandwidth_back": "1 Mbit/s"},
        "wan.0.bandwidth_back: unknown key; did you mean 'back_bandwidth'?",
    ),
    ({"wan.0.loss": "150 %"}, "wan.0.loss: Input should be less than 1 (got '150 %')"),
    ({"wan.0.loss": "nan"}, "wan.0.loss: Input should be a finite number (got 'nan')"),
    ({"wan.0.loss": 1}, "wan.0.loss: Input should be less than 1 (got 1)"),
    ({"wan.0.mtu": "100 B"}, "wan.0.mtu: Input should be greater than or equal to 576 (got '100 B')"),
    ({"wan.0.bandwith": "1 bit/s"}, "wan.0.bandwith: unknown key; did you mean 'bandwidth'?"),
    ({"wan.0.between": ["east", "mars"]}, "wan.0.between: no site is called 'mars': sites are east, west"),
    ({"wan.0.between": ["east"]}, "wan.0.between: too few items"),
    (
        {"wan.0.between": ["east", "east"]},
        "wan.0.between: a link joins two different sites, not east with itself",
    ),
    (
        {
            "wan": [
                {"between": ends, "bandwidth": "1 MB/s", "rtt": "1 s"}
                for ends in (["east", "west"], ["west", "east"])
            ]
        },
        "wan.1.between: west-east is there twice",
    ),
    (
        {"wan.0.trace": [{"at": "1 s", "bandwidth": "1 MB/s"}]},
        "wan.0.trace: times must start at '0 s' and rise",
    ),
    (
        {"wan.0.trace": [{"at": f"{t} s", "bandwidth": "1 MB/s"} for t in (0, 2, 2)]},
        "wan.0.trace: times must start at '0 s' and rise",
    ),
    ({"sites.0.name": "west"}, "sites: two sites have the same name"),
    ({"sites.0.nodes": 0}, "sites.0.nodes: Input should be greater than or equal to 1 (got 0)"),
    (
        {"sites.0.nodes": 2},
        "sites.0.fabric.inter_node: site east has 2 nodes and needs what joins them",
    ),
    (
        {"sites.0.fabric.intra_node.bandwidth": "-1 B/s"},
        "sites.0.fabric.intra_node.bandwidth: must be above 0 (got '-1 B/s')",
    ),
    ({"sites.0.accelerator.fp32": "0 FLOP/s"}, "sites.0.accelerator.fp32: must be above 0 (got '0 FLOP/s')"),
    ({"sites.0.uplink": "0 B/s"}, "sites.0.uplink: must be above 0 (got '0 B/s')"),
    (
        {"workload.model.heads": 3},
        "workload.model.heads: 3 does not divide d_model (256): give head_dim too, if heads have a width of "
        "their own",
    ),
    ({"workload.model.kv_heads": 3}, "workload.model.kv_heads: 3 does not divide heads (4)"),
    ({"workload.step_time": "0 s"}, "workload.step_time: must be above 0 (got '0 s')"),
    ({"workload.mfu": 1.5}, "workload.mfu: Input should be less than or equal to 1 (got 1.5)"),
    (
        {"workload.precision": "fp4"},
        "workload.precision: Input should be 'fp32', 'tf32', 'bf16', 'fp16' or 'fp8' (got 'fp4')",
    ),
]


@pytest.mark.parametrize(
    ("changes", "message"), BAD, ids=[next(iter(c)) + str(i) for i, (c, _) in enumerate(BAD)]
)
def test_what_cannot_be_is_refused_in_one_line(changes, message):
    with pytest.raises(UsageError) as caught:
        load_scenario("laptop", changes)
    assert str(caught.value) == f"scenario laptop: {message}"
    assert caught.value.exit_status == 2


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({"sites.0.accelerator": "A100"}, ["sites.0.accelerator: unknown accelerator 'A100'", "A100-80"]),
        ({"workload.model": "gpt5"}, ["workload.model: unknown model 'gpt5'", "gpt2-124m"]),
        (
            {"workload.model.layers": 2, "workload.model.layer": 2},
            ["layer: unknown key; did you mean 'layers'?"],
        ),
        ({"sites.0.name": "a b"}, ["sites.0.name", "'a b'"]),
        ({"wan.1.rtt": "1 s"}, ["--set wan.1.rtt", "a list of 1"]),
    ],
)
def test_names_that_are_unknown_list_what_there_is(changes, parts):
    with pytest.raises(UsageError) as caught:
        load_scenario("laptop", changes)
    assert all(part in str(caught.value) for part in parts)
    assert "\n" not in str(caught.value)


def test_a_model_that_is_unknown_where_a_path_goes_on_below_it(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(load_scenario("laptop").to_yaml().replace("model: byte-gpt-3m", "model: gpt5"))
    with pytest.raises(UsageError, match=r"unknown model 'gpt5': .*use one of"):
        load_scenario(str(path), {"workload.model.layers": 2})


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("lptop", "scenario 'lptop' is neither built in nor a file: did you mean 'laptop'?"),
        ("", "scenario '' is neither"),
        ("zzz", f"scenario 'zzz' is neither built in nor a file: built in: {', '.join(scenario_names())}"),
        ("models", "scenario 'models' is neither built in nor a file"),
        ("no/such.yaml", "no/such.yaml: cannot read: No such file or directory"),
    ],
)
def test_a_scenario_that_is_not_there(name, message):
    with pytest.raises(UsageError) as caught:
        load_scenario(name)
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


def test_a_scenario_needs_a_site():
    with pytest.raises(UsageError, match="sites: "):
        load_scenario("laptop", {"sites": []})
