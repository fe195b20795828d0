"""RoCEv2 over distance: its laws, its limits, and what NCCL's settings do through it."""

import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from geosim.cost import build, roce
from geosim.cost.all_reduce import channel_bytes
from geosim.errors import UsageError
from geosim.policy import load_policy
from geosim.scenario import Nccl, WanLink, load_scenario

RDMA = {"nccl.net": "ib"}
MIB = 1 << 20


def link(**fields) -> WanLink:
    return WanLink(**{"between": ("a", "b"), "bandwidth_bytes_per_s": 5e9, "rtt_s": 0.18, **fields})


def flat_seconds(changes: dict, name: str = "hongkong-siliconvalley") -> float:
    """All buckets' all-reduces of one step of plain data parallelism."""
    flat = build(load_scenario(name, changes), load_policy("ddp")).flat
    return float(flat.durations[0][1].sum())


def test_the_round_trip_is_the_measured_fibres():
    for km, rtt_us in ((50, 632), (100, 1131), (200, 2138), (300, 3158), (400, 4145), (500, 5179)):
        assert roce.fibre_rtt(km) == pytest.approx(1e-6 * rtt_us, rel=0.01)
        assert roce.fibre_rtt(km) > 2 * 4.9e-6 * km  # light's own


@given(st.floats(0, 0.5), st.floats(1, 1e6))
def test_go_back_n_is_about_one_over_one_plus_p_w_and_selective_repeat_better(loss, window):
    left = roce.go_back_n(loss, window)
    assert left == pytest.approx(1 / (1 + loss / (1 - loss) * window))
    assert left <= 1 / (1 + loss * window) * (1 + 1e-12)
    assert left <= roce.selective_repeat(loss) * (1 + 1e-12)
    assert roce.go_back_n(loss, 1) == pytest.approx(1 - loss)
    assert roce.go_back_n(0, window) == 1


@given(st.floats(0, 3), st.floats(0, 1))
def test_marks_cost_less_the_later_they_begin_and_nothing_from_one_round_trip_on(mark, more):
    assert 0.75 <= roce.mark_share(mark, 1.0) <= roce.mark_share(mark + more, 1.0) + 1e-12 <= 1 + 1e-12
    assert roce.mark_share(1.0, 1.0) == 1
    assert roce.mark_share(0.0, 1.0) == pytest.approx(0.75)


def test_marks_against_the_sawtooth_walked_round_trip_by_round_trip():
    """A window grows by a thousandth of the path a round trip and halves at 1 + q; round trips stretch."""
    for mark in (0.0, 0.3, 0.5, 0.75, 1.5):
        window, sent, time, step = (1 + mark) / 2, 0.0, 0.0, 1e-3
        while window < 1 + mark:
            sent, time, window = sent + window, time + max(1.0, window), window + step
        assert roce.mark_share(mark, 1.0) == pytest.approx(sent / time, abs=2e-3)


def test_pause_headroom_grows_with_distance_by_rate_times_round_trip():
    rate = 12.5e9
    per_km = roce.pause_headroom(rate, roce.fibre_rtt(201), 4096) - roce.pause_headroom(
        rate, roce.fibre_rtt(200), 4096
    )
    assert per_km == pytest.approx(126e3, rel=0.01)
    assert roce.pause_headroom(rate, 0.0, 4096) == 8192


def test_timeouts_are_infinibands():
    assert roce.timeout_s(14) == pytest.approx(0.0671, rel=1e-3)
    assert roce.timeout_s(22) == pytest.approx(17.18, rel=1e-3)
    assert roce.gives_up_s(20, 7) == pytest.approx(8 * 4.295, rel=1e-3)


@given(st.floats(1e-4, 1), st.floats(0, 0.3), st.floats(1e-12, 0.1))
def test_the_least_timeout_is_the_least(rtt, jitter, chance):
    least = roce.least_timeout(rtt, jitter, chance)
    assert roce.spurious(least, rtt, jitter) <= chance
    assume(least > 1)
    assert roce.spurious(least - 1, rtt, jitter) > chance


def test_how_often_a_round_trip_outlasts_a_timeout_against_draws():
    rng = np.random.default_rng(0)
    trips = 0.18 + rng.normal(0, 0.05, 400_000) + rng.normal(0, 0.05, 400_000)
    late = np.mean(trips > roce.timeout_s(16))
    assert roce.spurious(16, 0.18, 0.05) == pytest.approx(late, rel=0.03)


@settings(max_examples=200)
@given(
    st.floats(1e8, 1e11), st.floats(1e-4, 0.25), st.floats(0, 1e-3), st.integers(1, 32), st.floats(1e5, 1e9),
    st.floats(1, 10), st.sampled_from((0, 106)), st.sampled_from(("go-back-n", "selective-repeat")),
)  # fmt: skip
def test_more_bandwidth_and_less_loss_are_never_slower(
    rate, rtt, loss, channels, buffer, more, traffic, repeat
):
    known = Nccl(net="ib", traffic_class=traffic, retransmission=repeat)
    # The bottleneck's buffer is the same; by default it grows with the link.
    world = link(rtt_s=rtt, loss=loss, queue_bytes=1e7)

    def speed(rate, world):
        return roce.make_path(world, rate, known, channels, buffer).stream_rate(channels)

    now = speed(rate, world)
    assert speed(rate * more, world) >= now * (1 - 1e-9)
    assert speed(rate, world.model_copy(update={"loss": loss / more})) >= now * (1 - 1e-9)
    assert now <= rate
    assert now <= channels * buffer / roce.payload_share(1500) / rtt * (1 + 1e-9)


def test_what_is_in_flight_beyond_path_and_buffer_hurts_unless_the_class_answers_marks():
    world = link(queue_bytes=64.0 * MIB)
    full = 5e9 * 0.18

    def share(flight, traffic):
        known = Nccl(net="ib", traffic_class=traffic)
        return roce.rates(world, 5e9, known, 16, flight / 16).share

    assert share(0.9 * full, 0) == share(0.9 * full, 106) == 1
    assert share(4 * full, 0) < 0.3
    assert share(4 * full, 106) > 0.75
    assert Nccl(traffic_class=106).answers_ecn
    assert not Nccl(traffic_class=104).answers_ecn


def test_a_timeout_shorter_than_the_round_trip_is_refused_with_the_least_that_works():
    with pytest.raises(
        UsageError, match=r"nccl\.timeout: 14 is 67\.1 ms, less than the round trip of 180 ms.*use 16"
    ):
        flat_seconds({**RDMA, "nccl.timeout": 14})
    assert flat_seconds({**RDMA, "nccl.timeout": 16}) > 0


CHANGES = {
    "a ring over more channels": ({}, {"nccl.min_channels": 16}),
    "a larger buffer": ({}, {"nccl.buffer_size": "64 MiB"}),
    "a tree sends less across": ({}, {"nccl.algorithm": "tree"}),
    "LL keeps less in flight": ({"nccl.protocol": "LL"}, {"nccl.protocol": "Simple"}),
    "shorter waits for lost tails": ({"wan.0.loss": 1e-5, "nccl.timeout": 22}, {"nccl.timeout": 17}),
    "jitter within the timeout": ({"wan.0.jitter": "50 ms", "nccl.timeout": 16}, {"nccl.timeout": 20}),
    "losses fall on more queue pairs": (
        {"wan.0.loss": 1e-4, "nccl.buffer_size": "256 MiB"}, {"nccl.queue_pairs": 8},
    ),
    "one packet again and not a window": (
        {"wan.0.loss": 1e-4, "nccl.buffer_size": "256 MiB"}, {"nccl.retransmission": "selective-repeat"},
    ),
    "marks and not overflow": (
        {"nccl.buffer_size": "256 MiB", "nccl.min_channels": 32, "wan.0.queue": "64 MiB"},
        {"nccl.traffic_class": 106},
    ),
    "RoCEv1 is not routed: TCP's windows": (
        {"nccl.gid_index": 0, "nccl.buffer_size": "256 MiB", "nccl.min_channels": 4, "wan.0.window": "4 MiB"},
        {"nccl.gid_index": 3},
    ),
}  # fmt: skip


@pytest.mark.parametrize("reason", CHANGES)
def test_a_setting_helps_for_a_stated_reason(reason):
    before, after = CHANGES[reason]
    assert flat_seconds({**RDMA, **before, **after}) < flat_seconds({**RDMA, **before})


def test_more_sockets_help_where_windows_hold_tcp():
    base = {"nccl.buffer_size": "256 MiB", "wan.0.window": "1 MiB"}
    assert flat_seconds({**base, "nccl.sockets": 8}) < flat_seconds(base)


def test_gpu_direct_matters_where_host_memory_is_in_the_way():
    """What is sent and received share PCIe; over the WAN of 40 Gbit/s that is not the limit."""
    wide = {"sites.1.fabric.inter_node.bandwidth": "400 Gbit/s"}
    own, staged = (
        build(load_scenario("hongkong-siliconvalley", {**wide, **level}), load_policy("local-sgd"))
        .sites[1]
        .collective_s
        for level in ({}, {"nccl.gdr_level": "LOC"})
    )
    assert staged > own
    assert flat_seconds(RDMA) == flat_seconds({**RDMA, "nccl.gdr_level": "LOC"})


@pytest.mark.parametrize(
    "change", [{"nccl.threads": 64}, {"nccl.retry_count": 0}, {"nccl.async_error_handling": False}]
)
def test_what_the_model_leaves_alone(change):
    assert flat_seconds({**RDMA, **change}) == flat_seconds(RDMA)


def test_gloo_knows_nothing_of_nccl():
    base = flat_seconds({}, "laptop")
    assert flat_seconds({**RDMA, "nccl.buffer_size": "64 MiB"}, "laptop") == base


def test_a_trace_changes_what_queue_pairs_reach():
    """At a quarter of the rate a quarter fits: without marks the rest overflows."""
    trace = [{"at": "0 s", "bandwidth": "40 Gbit/s"}, {"at": "100 s", "bandwidth": "10 Gbit/s"}]
    changes = {
        **RDMA, "wan.0.trace": trace, "wan.0.queue": "64 MiB", "nccl.buffer_size": "28 MiB",
        "nccl.min_channels": 32, "wan.0.mtu": "4500 B",
    }  # fmt: skip
    plain, marked = (
        build(
            load_scenario("hongkong-siliconvalley", {**changes, "nccl.traffic_class": traffic}),
            load_policy("ddp"),
        )
        for traffic in (0, 106)
    )
    assert [at for at, _ in plain.flat.durations] == [0.0, 100.0]
    assert plain.flat.durations[1][1].sum() > marked.flat.durations[1][1].sum()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"nccl.bufer_size": "8 MiB"}, "nccl.bufer_size: unknown key; did you mean 'buffer_size'?"),
        ({"nccl.buffer_size": 8388608}, "nccl.buffer_size"),
        ({"nccl.timeout": 40}, "nccl.timeout: Input should be less than or equal to 31 (got 40)"),
        ({"nccl.threads": 300}, "nccl.threads: Input should be 64, 128, 256 or 512 (got 300)"),
        ({"nccl.algorithm": "star"}, "nccl.algorithm: Input should be 'auto', 'ring', 'tree'"),
        ({"nccl.traffic_class": 256}, "nccl.traffic_class: Input should be less than or equal to 255"),
    ],
)
def test_settings_that_cannot_be(change, says):
    with pytest.raises(UsageError) as error:
        load_scenario("hongkong-siliconvalley", change)
    assert says in str(error.value)
    assert "\n" not in str(error.value)


def test_an_algorithm_that_a_site_cannot_run_is_refused_by_name():
    with pytest.raises(
        UsageError, match=r"nccl\.algorithm: 'nvls' .* at site hongkong: use auto, ring or tree"
    ):
        flat_seconds({"nccl.algorithm": "nvls"})


def test_a_protocols_flight_is_nccls():
    assert channel_bytes(Nccl()) == 4 * MIB
    assert channel_bytes(Nccl(protocol="LL")) == 512 * 8 * 16 * 8 / 2
    assert channel_bytes(Nccl(protocol="Simple", buffer_size_bytes=8.0 * MIB)) == 8 * MIB
    assert math.isclose(roce.payload_share(1500), 1024 / 1068)
    assert roce.payload_bytes(4500) == 4096


def test_a_tree_over_four_sites_conserves_bytes_and_needs_its_links():
    scenario = load_scenario("four-regions", {"nccl.algorithm": "tree"})
    problem = build(scenario, load_policy("ddp"))
    gradients = 4.0 * scenario.workload.model.param_table().numel
    out = dict(zip((link.name for link in problem.links), problem.flat.payload_bytes, strict=True))
    # Each tree sends its half up to the root and down again over every edge.
    assert sum(out.values()) >= 2 * (len(scenario.sites) - 1) * gradients * (1 - 1e-9)
    back = {"->".join(reversed(name.split("->"))): size for name, size in out.items()}
    assert out == back
    with pytest.raises(UsageError, match="algorithm 'tree' needs one; add it or choose another algorithm"):
        build(scenario.model_copy(update={"wan": scenario.wan[1:]}), load_policy("ddp"))
