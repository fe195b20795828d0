"""What a link does to packets, seen by programs inside the namespaces."""

from __future__ import annotations

import math
from statistics import median

import pytest

from geosim.errors import RunError
from runtime.emulate import EmulatedWan, LinkSpec

FAST = LinkSpec(rate_bytes_per_s=125e6, delay_s=0.001, queue_bytes=1 << 24)
UDP_HEADERS = 28


def test_round_trip_is_both_delays(pair, probe):
    with pair(LinkSpec(12.5e6, 0.030), LinkSpec(12.5e6, 0.010)) as wan:
        trips = probe.ping(wan, "a", "b", 25, 0.01)
    assert len(trips) == 25
    # Wake-ups of relay and probe add well under a millisecond; the median forgives a busy moment.
    assert 0.040 <= median(trips) < 0.0415


def test_rates_differ_by_direction(pair, probe):
    forth, back = 5e6, 1.25e6
    with pair(LinkSpec(forth, 0.01, queue_bytes=1 << 23), LinkSpec(back, 0.01, queue_bytes=1 << 23)) as wan:
        for source, to, rate in (("a", "b", forth), ("b", "a", back)):
            came = probe.udp(wan, source, to, 1000, 1472)
            assert len(came) == 1000
            times = [arrived for _, _, arrived in came]
            # The median over all spans of 500 packets (150 ms and more): late wake-ups of the
            # receiver lengthen as many as they shorten.
            span = median(late - early for early, late in zip(times, times[500:], strict=False))
            assert 500 * 1500 / span == pytest.approx(rate, rel=0.03)


@pytest.mark.parametrize("algorithm", ["cubic", "bbr"])
def test_tcp_fills_the_link(pair, probe, conserved, algorithm):
    rate, size = 12.5e6, 16_000_000
    try:
        wan = pair(LinkSpec(rate, 0.010), congestion_control=algorithm)
    except RunError as error:
        pytest.skip(str(error))
    with wan:
        sent, got = probe.tcp(wan, "a", "b", size)
        counters = wan.counters()
    assert sent["algorithm"] == algorithm
    assert got["sha256"] == sent["sha256"]
    (early, first), (late, last) = (
        next(a for a in got["arrivals"] if a[1] > size // 2),
        got["arrivals"][-1],
    )
    goodput = (last - first) / (late - early)
    # A segment carries 1448 of 1500 bytes; recovery and pacing (BBR probes down) cost a little.
    nominal = rate * 1448 / 1500
    assert 0.90 * nominal < goodput < 1.02 * nominal
    conserved(counters["a->b"])
    conserved(counters["b->a"])


def test_loss_is_binomial(pair, probe, conserved):
    count, loss = 8000, 0.03
    spec = LinkSpec(125e6, 0.001, loss=loss, queue_bytes=1 << 26)
    with pair(spec, FAST, seed=7) as wan:
        came = probe.udp(wan, "a", "b", count, 200)
        link = wan.counters()["a->b"]
    lost = count - len(came)
    # Four standard deviations: the seed is fixed, so this either always passes or never.
    assert abs(lost - count * loss) < 4 * math.sqrt(count * loss * (1 - loss))
    assert link["dropped_loss_segments"] == lost
    conserved(link)


def test_queue_drops_exactly_the_excess(pair, probe, conserved):
    packet, queue = 1500, 150_000
    with pair(LinkSpec(125_000, 0.002, queue_bytes=queue), FAST) as wan:
        came = probe.udp(wan, "a", "b", 400, packet - UDP_HEADERS, silence=0.3)
        link = wan.counters()["a->b"]
    # 400 packets in some milliseconds; the link drains one in 12 ms, the queue holds 100.
    burst_s = 0.02
    assert 100 <= len(came) <= 100 + 2 + burst_s * 125_000 / packet
    assert [number for number, _, _ in came][:100] == list(range(100))
    assert link["dropped_queue_segments"] == 400 - len(came)
    assert queue - packet < link["max_backlog_bytes"] <= queue
    conserved(link)


def test_full_queue_delays_by_its_length(pair, probe):
    rate, queue = 1.25e6, 125_000
    with pair(LinkSpec(rate, 0.010, queue_bytes=queue), FAST) as wan:
        came = probe.udp(wan, "a", "b", 200, 1472)
    slowest = max(arrived - sent for _, sent, arrived in came)
    # One late wake-up may add some milliseconds to the largest of 84; a wrong queue would be 50 off.
    assert slowest == pytest.approx(0.010 + queue / rate, abs=0.015)


def test_jitter_keeps_order_and_bounds(pair, probe):
    delay, jitter = 0.020, 0.005
    with pair(LinkSpec(12.5e6, delay, jitter_s=jitter), FAST, seed=3) as wan:
        came = probe.udp(wan, "a", "b", 600, 100, interval=0.002)
    numbers = [number for number, _, _ in came]
    delays = sorted(arrived - sent for _, sent, arrived in came)
    assert numbers == list(range(600))
    assert delays[0] >= delay - jitter
    assert delays[int(0.97 * len(delays))] < delay + jitter + 0.001
    # 60 knots of a uniform path: its standard error is jitter / sqrt(3 x 60), 0.4 ms.
    assert sum(delays) / len(delays) == pytest.approx(delay, abs=0.0015)
    assert delays[-30] - delays[30] > jitter  # it does vary


def test_down_and_up_again(pair, probe, conserved):
    with pair(FAST) as wan:
        wan.set_link("a", "b", up=False)
        assert probe.ping(wan, "a", "b", 1, 0) == []
        assert wan.counters()["a->b"]["dropped_down_segments"] == 1
        wan.set_link("a", "b", up=True)
        assert len(probe.ping(wan, "a", "b", 3, 0)) == 3
        conserved(wan.counters()["a->b"])


def test_links_change_while_running(pair, probe):
    with pair(FAST) as wan:
        assert median(probe.ping(wan, "a", "b", 5, 0)) < 0.004
        wan.set_link("b", "a", delay_s=0.025)
        assert 0.026 <= median(probe.ping(wan, "a", "b", 5, 0)) < 0.029
        wan.set_link("b", "a", loss=1.0)
        assert probe.ping(wan, "a", "b", 1, 0) == []


def test_rate_change_reaches_what_waits(pair, probe):
    with pair(LinkSpec(15_000, 0.001, queue_bytes=1 << 24), FAST) as wan:
        receiver = probe.start_ready(wan, "b", "udp_receive", wan.address("b"), 5201, 0.5)
        probe.report(probe.start(wan, "a", "udp_send", wan.address("b"), 5201, 300, 1472, 0))
        wan.set_link("a", "b", rate_bytes_per_s=1.5e6)  # at the old rate it would take 30 s
        came = probe.report(receiver)
    assert len(came) == 300
    assert came[-1][2] - came[0][2] < 5


def test_bandwidth_trace_repeats(pair, probe):
    high, low = 2.5e6, 0.5e6
    spec = LinkSpec(1e6, 0.001, queue_bytes=1 << 24, trace=((0.0, high), (0.2, low)), trace_period_s=0.4)
    with pair(spec, FAST) as wan:
        came = probe.udp(wan, "a", "b", 1200, 1472)
    times = [arrived for _, _, arrived in came]
    span = times[-1] - times[0]
    assert len(came) == 1200
    # 1.8 MB are 1.2 s at the mean rate: three whole periods, whatever the phase.
    assert 1199 * 1500 / span == pytest.approx((high + low) / 2, rel=0.08)
    bins = [0] * (int(span / 0.05) + 1)
    for time in times:
        bins[int((time - times[0]) / 0.05)] += 1500
    full = sorted(count / 0.05 for count in bins[:-1])
    assert full[2] == pytest.approx(low, rel=0.15)
    assert full[-3] == pytest.approx(high, rel=0.15)


def test_trace_with_an_outage_holds_packets(pair, probe):
    with pair(FAST) as wan:
        receiver = probe.start_ready(wan, "b", "udp_receive", wan.address("b"), 5201, 1.5)
        wan.set_link("a", "b", trace=((0.0, 0.0), (0.8, 1e6)))
        sender = probe.start(wan, "a", "udp_send", wan.address("b"), 5201, 3, 100, 0)
        probe.report(sender)
        came = probe.report(receiver)
    assert len(came) == 3
    assert came[0][2] - came[0][1] > 0.3


def test_three_sites_route_by_pair(probe):
    sites = ["a", "b", "c"]
    delays = {frozenset("ab"): 0.005, frozenset("bc"): 0.010, frozenset("ac"): 0.020}
    links = {
        (x, y): LinkSpec(12.5e6, delays[frozenset((x, y))])
        for x in sites for y in sites if x != y and (x, y) != ("c", "a")
    }  # fmt: skip
    with EmulatedWan(sites, links) as wan:
        for x, y in (("a", "b"), ("b", "c"), ("c", "b")):
            trip = median(probe.ping(wan, x, y, 7, 0))
            assert trip == pytest.approx(2 * delays[frozenset((x, y))], abs=0.002)
        assert probe.ping(wan, "a", "c", 1, 0) == []  # there, and no way back
        counters = wan.counters()
    assert counters["a->c"]["delivered_segments"] == 1
    assert counters["unrouted"]["segments"] == 1


def test_counters_are_the_kernels(pair, probe):
    size = 3_000_000
    with pair(FAST) as wan:
        before = probe.kernel(wan, "a")
        probe.tcp(wan, "a", "b", size)
        counters = wan.counters()
        near, far = probe.kernel(wan, "a"), probe.kernel(wan, "b")
    link = counters["a->b"]
    assert near["tx_dropped"] == 0
    packets = near["tx_packets"] - before["tx_packets"]
    # The kernel counts a superframe's 52 header bytes once, a wire carries them with every segment.
    assert near["tx_bytes"] - before["tx_bytes"] == (
        link["offered_bytes"] - 52 * (link["offered_segments"] - packets)
    )
    assert link["offered_segments"] > packets  # there were superframes
    assert link["payload_bytes"] == size
    assert far["tx_bytes"] == counters["b->a"]["offered_bytes"]


@pytest.mark.parametrize("algorithm", [None, "reno"])
def test_tcp_survives_loss_and_a_short_queue(pair, probe, conserved, algorithm):
    spec = LinkSpec(12.5e6, 0.002, loss=0.01, queue_bytes=60_000, jitter_s=0.001)
    with pair(spec, seed=11, congestion_control=algorithm) as wan:
        sent, got = probe.tcp(wan, "a", "b", 4_000_000)
        link = wan.counters()["a->b"]
    assert got["bytes"] == 4_000_000
    assert got["sha256"] == sent["sha256"]
    assert link["dropped_loss_segments"] > 10
    assert link["payload_bytes"] >= 4_000_000
    conserved(link)
