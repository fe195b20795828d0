"""SyncPolicy: YAML in and out without loss, what cannot be combined, and what the sites must agree on."""

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from geosim.errors import UsageError
from geosim.policy import (
    E3M0,
    Accumulate,
    Blocking,
    Cast,
    Codec,
    Delayed,
    Dense,
    Direct,
    Eager,
    Feedback,
    Fixed,
    FlatRing,
    Group,
    HideExchange,
    Hub,
    Integer,
    Local,
    NoResidual,
    OuterMomentum,
    OuterSGD,
    RandomK,
    Ring,
    Sign,
    Streaming,
    SyncPolicy,
    TopK,
    Tree,
    load_policy,
    policy_from_dict,
    preset_names,
)

ratios = st.floats(0, 1, exclude_min=True)
scopes = st.sampled_from(["fragment", "piece"]) | st.integers(16, 1 << 20)
momenta = st.floats(0, 1, exclude_max=True)
sizes = st.floats(1, 1e12)
rounding = st.sampled_from(["nearest", "stochastic"])
group_sizes = st.integers(8, 1 << 20) | st.just("section")
selections = (
    st.just(Dense())
    | st.builds(TopK, ratio=ratios, scope=scopes)
    | st.builds(RandomK, ratio=ratios, scope=scopes)
)
quantizations = (
    st.builds(Cast, kind=st.sampled_from(["fp32", "bf16", "fp16"]))
    | st.builds(Integer, kind=st.sampled_from(["int8", "int4", "int2"]), group=group_sizes, rounding=rounding)
    | st.builds(E3M0, group=group_sizes, rounding=rounding)
    | st.builds(Sign, group=group_sizes)
)
outer_steps = st.builds(OuterSGD, lr=st.floats(1e-6, 10)) | st.builds(
    OuterMomentum, lr=st.floats(1e-6, 10), momentum=momenta, nesterov=st.booleans()
)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)


@st.composite
def policies(draw):
    """A valid policy, over the whole vocabulary."""
    if draw(st.integers(0, 9)) == 0:
        cast = draw(st.builds(Cast, kind=st.sampled_from(["fp32", "bf16", "fp16"])))
        return SyncPolicy(name=draw(texts), codec=Codec(quantize=cast), topology=FlatRing())
    select = draw(selections)
    feedback = st.builds(Feedback, decay=st.floats(0, 1, exclude_min=True))
    needs_feedback = isinstance(select, RandomK) and select.ratio < 1
    residual = draw(feedback if needs_feedback else feedback | st.just(NoResidual()))
    update = draw(
        st.builds(Accumulate, send=st.sampled_from(["gradient", "momentum"]), momentum=momenta)
        | st.builds(Local, outer=outer_steps)
    )
    interval = draw(st.integers(1, 1000))
    windows = st.integers(1, 8)
    overlap = draw(
        st.just(Blocking()) | st.builds(Delayed, windows=windows) | st.builds(Eager, windows=windows)
    )
    groups = ()
    least = 1
    if isinstance(update, Local) and draw(st.booleans()):
        alpha = 0.0 if isinstance(residual, Feedback) else draw(st.floats(0, 1))
        steps = draw(st.integers(0, interval - 1))
        overlap = Streaming(fragments=draw(st.integers(1, 12)), steps=steps, alpha=alpha)
        least = steps + 1
    elif not isinstance(overlap, Eager):
        shares = draw(st.lists(st.floats(0, 0.33), max_size=3))
        mixed = st.just(Blocking()) | st.builds(Delayed, windows=windows)
        groups = tuple(Group(share=s, overlap=draw(mixed)) for s in shares)
    adapt = draw(
        st.just(Fixed())
        | st.builds(
            HideExchange, least=st.just(least), most=st.integers(least, 5000), margin=st.floats(1, 10)
        )
    )
    return SyncPolicy(
        name=draw(texts),
        about=draw(texts),
        update=update,
        interval=interval,
        codec=Codec(
            select=select,
            quantize=draw(quantizations),
            residual=residual,
            small_below_bytes=draw(st.just(0.0) | sizes),
            small_dtype=draw(st.sampled_from(["fp32", "bf16", "fp16"])),
        ),
        overlap=overlap,
        groups=groups,
        topology=draw(
            st.sampled_from([Direct(), Ring(), Tree(), Hub()]) | st.builds(Hub, site=st.none() | texts)
        ),
        order=draw(st.sampled_from(["largest-first", "model"])),
        streams=draw(st.integers(1, 256)),
        chunk_bytes=draw(st.none() | sizes),
        shards=draw(st.none() | st.integers(1, 65536)),
        max_grad_norm=None if isinstance(update, Local) else draw(st.none() | st.floats(1e-6, 1e6)),
        adapt=adapt,
        seed=draw(st.integers(0, 2**32 - 1)),
    )


@settings(max_examples=60, deadline=None)
@given(policies())
@example(SyncPolicy(name="next\x85line", about="\u2028\ufeff 北京 "))
def test_yaml_gives_back_the_same_policy(policy):
    again = policy_from_dict(yaml.safe_load(policy.to_yaml()))
    assert again == policy
    assert hash(again) == hash(policy)
    assert again.fingerprint() == policy.fingerprint()
    assert again.to_yaml() == policy.to_yaml()


@settings(max_examples=40, deadline=None)
@given(policies(), texts, texts)
def test_the_fingerprint_ignores_name_and_about(policy, name, about):
    renamed = policy.model_copy(update={"name": name, "about": about})
    assert renamed.fingerprint() == policy.fingerprint()


BASE = SyncPolicy(update=Local(), interval=100)
CHANGES = {
    "update": [
        Accumulate(),
        Accumulate(send="momentum"),
        Local(outer=OuterSGD()),
        Local(outer=OuterMomentum(lr=0.5)),
    ],
    "interval": [101],
    "codec": [
        Codec(select=TopK()),
        Codec(select=TopK(ratio=0.02)),
        Codec(select=TopK(scope="fragment")),
        Codec(select=TopK(scope=4096)),
        Codec(quantize=Cast(kind="bf16")),
        Codec(quantize=Integer()),
        Codec(quantize=Integer(group=128)),
        Codec(quantize=Integer(rounding="stochastic")),
        Codec(residual=Feedback()),
        Codec(residual=Feedback(decay=0.9)),
        Codec(small_below_bytes=1024.0),
        Codec(small_dtype="fp16"),
    ],
    "overlap": [
        Delayed(),
        Delayed(windows=2),
        Eager(),
        Streaming(),
        Streaming(alpha=0.5),
        Streaming(steps=6),
    ],
    "groups": [(Group(share=0.5),), (Group(share=0.5, overlap=Delayed()),)],
    "topology": [Ring(), Tree(), Hub(), Hub(site="a")],
    "order": ["model"],
    "streams": [2],
    "chunk_bytes": [8e6],
    "shards": [4],
    "max_grad_norm": [],  # with update 'local' there is none; see below
    "adapt": [HideExchange(least=7), HideExchange(least=7, margin=2.0)],
    "seed": [1],
}


def test_the_fingerprint_sees_every_other_field():
    assert set(CHANGES) == set(SyncPolicy.model_fields) - {"name", "about"}
    prints = [BASE.fingerprint(), SyncPolicy().fingerprint(), SyncPolicy(max_grad_norm=1.0).fingerprint()]
    for field, values in CHANGES.items():
        prints += [SyncPolicy(**{**dict(BASE), field: value}).fingerprint() for value in values]
    assert len(set(prints)) == len(prints)


def test_bare_words_stand_for_a_kind():
    short = policy_from_dict(
        {"update": "accumulate", "codec": {"select": "topk", "quantize": "int8"}, "overlap": "eager"}
    )
    assert short.codec.select == TopK()
    assert short.codec.quantize == Integer()
    assert short.overlap == Eager()


REFUSED = [
    ({"interval": 0}, "interval: Input should be greater than or equal to 1 (got 0)"),
    ({"interval": 2.5}, "interval: "),
    (
        {"codec": {"select": {"kind": "topk", "ratio": 1.5}}},
        "codec.select.ratio: must be above 0 and at most 1 (0.01 keeps 1 %) (got 1.5)",
    ),
    (
        {"codec": {"select": {"kind": "topk", "ratio": 0}}},
        "codec.select.ratio: must be above 0 and at most 1",
    ),
    (
        {"codec": {"select": {"kind": "topk", "scope": 8}}},
        "codec.select.scope: must be 'fragment', 'piece' or a block size",
    ),
    ({"codec": {"select": {"kind": "topk", "scope": "tensor"}}}, "codec.select.scope: "),
    (
        {"codec": {"quantize": {"kind": "fp16", "group": 64}}},
        "codec.quantize.group: unknown key; kind 'fp16' has it not",
    ),
    ({"codec": {"quantize": "int3"}}, "codec.quantize: unknown kind 'int3': use one of "),
    ({"codec": {"residual": {"kind": "feedback", "decay": 0}}}, "codec.residual.decay: "),
    (
        {"codec": {"select": {"kind": "randomk"}}},
        "codec.residual: random-k without a residual loses what it does not draw: use 'feedback'",
    ),
    ({"codec": {"small_below": "10"}}, "codec.small_below: '10' has no unit"),
    ({"codec": {"small_below": "-1 B"}}, "codec.small_below: must be 0 or more (got '-1 B')"),
    ({"overlap": {"kind": "delayed", "windows": 0}}, "overlap.windows: "),
    (
        {"overlap": "streaming", "interval": 100},
        "overlap: 'streaming' mixes parameters and needs update 'local'",
    ),
    (
        {"update": "local", "overlap": {"kind": "streaming", "steps": 5}, "interval": 5},
        "overlap.steps: 5 must be below the interval (5)",
    ),
    (
        {
            "update": "local",
            "interval": 9,
            "codec": {"residual": "feedback"},
            "overlap": {"kind": "streaming", "alpha": 0.1},
        },
        "overlap.alpha: above 0 with a residual counts unsent mass twice",
    ),
    (
        {"update": "local", "overlap": "streaming", "interval": 9, "groups": [{"share": 0.5}]},
        "groups: 'streaming' makes its own fragments: leave groups out",
    ),
    (
        {
            "update": "local",
            "overlap": "streaming",
            "interval": 9,
            "adapt": {"kind": "hide-exchange", "least": 5},
        },
        "adapt.least: 5 must be above overlap.steps (5)",
    ),
    (
        {"overlap": "eager", "groups": [{"share": 0.5}]},
        "groups: only 'blocking' and 'delayed' can be set per group",
    ),
    ({"groups": [{"share": 0.5, "overlap": "eager"}]}, "groups.0.overlap: unknown kind 'eager'"),
    ({"groups": [{"share": 0.7}, {"share": 0.4}]}, "groups: the shares add up to more than 1"),
    ({"update": "local", "max_grad_norm": 1.0}, "max_grad_norm: clips an aggregated gradient"),
    ({"max_grad_norm": 0}, "max_grad_norm: must be above 0 (got 0)"),
    ({"adapt": {"kind": "hide-exchange", "least": 8, "most": 4}}, "adapt.most: 4 is below least (8)"),
    ({"chunk": "0 B"}, "chunk: must be above 0 (got '0 B')"),
    ({"streams": 0}, "streams: "),
    ({"shards": 0}, "shards: "),
    ({"seed": -1}, "seed: "),
    ({"order": "smallest-first"}, "order: Input should be 'largest-first' or 'model'"),
    ({"update": {"kind": "local", "outer": {"kind": "momentum", "momentum": 1}}}, "update.outer.momentum: "),
    (
        {"update": {"kind": "local", "outer": {"kind": "sgd", "lr": 0}}},
        "update.outer.lr: must be above 0 (got 0)",
    ),
    (
        {"topology": "flat-ring", "interval": 2},
        "interval: topology 'flat-ring' is plain data parallelism and needs 1",
    ),
    ({"topology": "flat-ring", "update": "local"}, "update: topology 'flat-ring'"),
    ({"topology": "flat-ring", "codec": {"select": "topk"}}, "codec.select: topology 'flat-ring'"),
    ({"topology": "flat-ring", "codec": {"quantize": "int8"}}, "codec.quantize: topology 'flat-ring'"),
    ({"topology": "flat-ring", "codec": {"residual": "feedback"}}, "codec.residual: topology 'flat-ring'"),
    ({"topology": "flat-ring", "overlap": "delayed"}, "overlap: topology 'flat-ring'"),
    ({"topology": "flat-ring", "groups": [{"share": 1}]}, "overlap: topology 'flat-ring'"),
    ({"topology": "flat-ring", "adapt": "hide-exchange"}, "adapt: topology 'flat-ring'"),
    ({"topology": "flat-ring", "codec": {"small_below": "1 kB"}}, "codec.small_below: has no effect"),
    ({"topology": "flat-ring", "codec": {"small_dtype": "bf16"}}, "codec.small_dtype: has no effect"),
    ({"topology": "flat-ring", "order": "model"}, "order: has no effect with topology 'flat-ring'"),
    ({"topology": "flat-ring", "streams": 4}, "streams: has no effect"),
    ({"topology": "flat-ring", "chunk": "1 MiB"}, "chunk: has no effect"),
    ({"topology": "flat-ring", "shards": 2}, "shards: has no effect"),
    ({"topology": "flat-ring", "seed": 1}, "seed: has no effect"),
]


@pytest.mark.parametrize(("data", "message"), REFUSED, ids=[str(i) for i in range(len(REFUSED))])
def test_what_cannot_be_is_refused_in_one_line(data, message):
    with pytest.raises(UsageError) as caught:
        policy_from_dict(data, "policy mine")
    assert str(caught.value).startswith(f"policy mine: {message}")
    assert "\n" not in str(caught.value)
    assert caught.value.exit_status == 2


def test_what_only_looks_wrong_is_allowed():
    # Ten tenths are one, whatever their sum in floating point.
    shares = (0.1, 0.7, 0.2)
    policy_from_dict({"groups": [{"share": s} for s in shares]})
    policy_from_dict({"groups": [{"share": 1 / 3}] * 3})
    # Clipping is plain data parallelism's too.
    policy_from_dict({"topology": "flat-ring", "max_grad_norm": 1.0})
    policy_from_dict({"codec": {"select": {"kind": "randomk", "ratio": 1}}})
    policy_from_dict({"update": "local", "overlap": {"kind": "streaming", "steps": 0}, "interval": 1})


def test_is_flat():
    assert [name for name in preset_names() if load_policy(name).is_flat] == ["ddp", "ddp-fp16"]
