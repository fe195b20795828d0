"""A link in virtual time: exact departures, laws that hold for any traffic, and seeds."""

from __future__ import annotations

import math
import random

import pytest

from runtime.emulate.links import Link
from runtime.emulate.packets import VNET_BYTES
from runtime.emulate.rates import RateClock
from runtime.emulate.spec import LinkSpec


def datagram(size: int) -> bytes:
    """A UDP packet of `size` IP bytes, as far as a link looks at it."""
    return bytes(VNET_BYTES) + (b"\x45" + bytes(8) + b"\x11").ljust(size, b"\0")


def collect(link: Link, until: float) -> list[tuple[float, int]]:
    """Deliver everything that is due: (time, wire bytes)."""
    log = []
    link.advance(until)
    while link.wire and link.wire[0][0] <= until:
        due, piece = link.wire.popleft()
        link.delivered(piece)
        log.append((due, piece[0]))
    return log


def test_packets_leave_one_after_the_other_then_travel():
    link = Link(LinkSpec(1000.0, 5.0), "0", 0.0)
    for at, size in ((0.0, 500), (0.1, 250), (10.0, 100)):
        link.offer(datagram(size), at)
    assert collect(link, 100.0) == [(5.5, 500), (5.75, 250), (15.1, 100)]
    assert link.next_due() == math.inf
    assert link.empty()


def test_queue_holds_its_bytes_and_no_more():
    link = Link(LinkSpec(1000.0, 0.0, queue_bytes=1000), "0", 0.0)
    for _ in range(5):
        link.offer(datagram(400), 0.0)
    link.offer(datagram(400), 0.3)  # 500 wait: fits
    link.offer(datagram(400), 0.3)
    assert [round(due, 9) for due, _ in collect(link, 9.0)] == [0.4, 0.8, 1.2]
    counters = link.counters()
    assert counters["dropped_queue_segments"] == 4
    assert counters["max_backlog_bytes"] == 900


def test_an_idle_link_takes_a_packet_beyond_its_queue():
    link = Link(LinkSpec(1000.0, 0.0, queue_bytes=0), "0", 0.0)
    link.offer(datagram(400), 0.0)
    link.offer(datagram(400), 0.1)
    assert collect(link, 9.0) == [(0.4, 400)]


def test_new_rate_applies_to_what_is_unsent():
    link = Link(LinkSpec(100.0, 0.0), "0", 0.0)
    link.offer(datagram(100), 0.0)
    link.offer(datagram(100), 0.0)
    link.change({"rate_bytes_per_s": 1000.0}, 0.5)
    assert collect(link, 9.0) == [(pytest.approx(0.55), 100), (pytest.approx(0.65), 100)]


def test_shorter_delay_never_overtakes():
    link = Link(LinkSpec(1e9, 1.0), "0", 0.0)
    link.offer(datagram(100), 0.0)
    link.change({"delay_s": 0.1}, 0.1)
    link.offer(datagram(100), 0.1)
    assert [round(due, 3) for due, _ in collect(link, 9.0)] == [1.0, 1.0]


def test_rates_are_integrated_over_a_trace():
    trace = ((1.0, 10.0), (2.0, 0.0), (3.0, 20.0))
    held = RateClock(LinkSpec(5.0, 0.0, trace=trace), 0.0)
    # 5 bytes by 1 s, 10 more by 2 s, none by 3 s, then 20 a second.
    assert held.finish(0.0, 5.0) == 1.0
    assert held.finish(0.0, 15.0) == 2.0
    assert held.finish(0.0, 25.0) == 3.5
    repeats = RateClock(LinkSpec(5.0, 0.0, trace=trace, trace_period_s=4.0), 100.0)
    assert repeats.finish(100.0, 35.0 * 3 + 15.0) == pytest.approx(114.0)
    ends = RateClock(LinkSpec(5.0, 0.0, trace=((1.0, 0.0),)), 0.0)
    assert ends.finish(0.5, 10.0) == math.inf


@pytest.mark.parametrize("seed", range(30))
def test_laws_hold_for_any_traffic(seed, conserved):
    draw = random.Random(seed)
    spec = LinkSpec(
        draw.choice([1e4, 1e6]),
        draw.choice([0.0, 0.03]),
        jitter_s=draw.choice([0.0, 0.01, 0.05]),
        loss=draw.choice([0.0, 0.2]),
        queue_bytes=draw.choice([None, 3000]),
        trace=draw.choice([(), ((0.0, 1e5), (0.2, 0.0), (0.3, 1e6))]),
    )
    link = Link(spec, str(seed), 0.0)
    now, log = 0.0, []
    for _ in range(400):
        now += draw.expovariate(200.0)
        link.offer(datagram(draw.randrange(40, 1500)), now)
        log += collect(link, now)
        if draw.random() < 0.02:
            link.change(
                draw.choice([{"up": False}, {"up": True}, {"rate_bytes_per_s": 5e5}, {"delay_s": 0.01}]),
                now,
            )
        conserved(link.counters())
    log += collect(link, now + 1e6)
    dues = [due for due, _ in log]
    assert dues == sorted(dues)
    counters = link.counters()
    conserved(counters)
    assert counters["in_flight_segments"] == 0
    assert counters["delivered_bytes"] == sum(size for _, size in log)


def test_a_seed_repeats_and_another_does_not():
    def run(seed: str) -> list[tuple[float, int]]:
        link = Link(LinkSpec(1e6, 0.01, jitter_s=0.005, loss=0.1), seed, 0.0)
        for number in range(300):
            link.offer(datagram(1000), number * 0.002)
        return collect(link, 10.0)

    assert run("1") == run("1")
    assert run("1") != run("2")


def test_one_bandwidth_delay_product_is_the_least_generous_default():
    assert LinkSpec(1e8, 0.05).queue_limit_bytes == 1e7
    assert LinkSpec(1e6, 0.01).queue_limit_bytes == 256 * 1024
