"""Sites that go on before their payloads have left, by hand; traffic that is two-way while it overlaps."""

import pytest
import simpy
from sim_worlds import links_of, plain, policy, through

from geosim.cost.transport import make_path
from geosim.scenario import WanLink
from geosim.sim import Tracer
from geosim.sim.engine import Engine
from geosim.sim.exchange import Exchange, Wan
from geosim.sim.flow import Ramp
from geosim.sim.network import Network

STREAMED = policy(update="local", interval=2, overlap={"kind": "streaming", "fragments": 2, "steps": 1})


def test_the_exact_events_of_a_slow_and_a_fast_site():
    """A step of 1 and of 2 s, a payload of 1 s, 0.5 s of flight: the slow site is through before its payload.

    That lets it begin its next step early, and the fast one late: in the second round both come at once, and
    the third is like the first.
    """
    tracer = Tracer()
    Engine(plain(policy(interval=1), (1.0, 1.0), rtt=1.0, steps=(1.0, 2.0)), 0, 1, tracer).run()
    log = sorted(
        (round(start, 9), round(end, 9), row, name.removeprefix("transfer "))
        for row, track, name, start, end in tracer.spans
        if track in ("flows", "exchange") and end > start and end <= 9.6
    )
    rounds = [f"fragment 0 round {k}" for k in range(3)]
    assert log == sorted(
        [
            (1.0, 2.0, "link s0->s1", rounds[0]),
            (2.0, 3.0, "link s1->s0", rounds[0]),
            (2.0, 2.5, "s1", rounds[0]),  # all has come, and the kernel has its payload
            (1.0, 3.5, "s0", rounds[0]),
            (4.5, 5.5, "link s0->s1", rounds[1]),
            (4.5, 5.5, "link s1->s0", rounds[1]),
            (4.5, 6.0, "s0", rounds[1]),
            (4.5, 6.0, "s1", rounds[1]),
            (7.0, 8.0, "link s0->s1", rounds[2]),
            (8.0, 9.0, "link s1->s0", rounds[2]),
            (8.0, 8.5, "s1", rounds[2]),
            (7.0, 9.5, "s0", rounds[2]),
        ]
    )


def test_a_site_waits_for_what_the_send_buffer_does_not_hold():
    """A quarter of a payload fits: three quarters of 4 s are acknowledged a round trip of 0.2 s later."""
    wan = Wan(simpy.Environment(), plain(policy(), (1.0, 4.0), buffer=0.25), 0, None)
    assert through(wan, [Exchange(wan, 0, "a")]) == {("a", 0): 4.2, ("a", 1): 3.3}
    whole = Wan(simpy.Environment(), plain(policy(), (1.0, 4.0), buffer=1.0), 0, None)
    assert through(whole, [Exchange(whole, 0, "a")]) == {("a", 0): 4.2, ("a", 1): 1.2}


def test_the_next_exchange_leaves_behind_what_has_not_left_yet():
    tracer = Tracer()
    wan = Wan(simpy.Environment(), plain(STREAMED, (1.0, 4.0)), 0, tracer)
    ends = through(wan, [Exchange(wan, f, name) for f, name in enumerate("ab")])
    # Notices cross until 0.1. The second site is through after 1.2 s and asks to send again at once.
    assert links_of(tracer) == [
        (0.1, 1.1, "s0->s1", "a"),
        (0.1, 4.1, "s1->s0", "a"),
        (4.1, 8.1, "s1->s0", "b"),
        (4.2, 5.2, "s0->s1", "b"),
    ]
    assert ends == {("a", 0): 4.2, ("a", 1): 1.2, ("b", 0): 8.2, ("b", 1): 5.3}
    sent = [f.payload_bytes * wan.links[0].wire_per_payload for f in wan.problem.fragments]
    assert wan.carried() == pytest.approx([sum(sent)] * 2, rel=1e-9)


def test_payloads_that_follow_each_other_share_one_send_buffer():
    """A hub sends each leaf three payloads of 1 s; one and a half fit."""
    problem = plain(policy(topology="hub"), (1.0, 0.1, 0.1, 0.1), sites=4, buffer=1.5)
    tracer = Tracer()
    wan = Wan(simpy.Environment(), problem, 0, tracer)
    ends = through(wan, [Exchange(wan, 0, "a")])
    assert [row[:2] for row in links_of(tracer) if row[2] == "s0->s1"] == [(0.1, 1.1), (1.1, 2.1), (2.1, 3.1)]
    # All but the last one and a half have left after 1.6 s.
    assert ends == {("a", 0): 1.8, ("a", 1): 3.2, ("a", 2): 3.2, ("a", 3): 3.2}


def opposed_ends(transfers):
    """When transfers (at, link, size) leave two links, each the other's way back: 10 a second, opposed 5."""
    env = simpy.Environment()
    network = Network(env, [10.0, 10.0], [1, 0])
    ends = []

    def transfer(k, at, link, size):
        yield env.timeout(at)
        yield network.send((link,), size, Ramp(stream=10.0, opposed=5.0))
        ends.append((k, env.now))

    for k, one in enumerate(transfers):
        env.process(transfer(k, *one))
    env.run()
    assert network.carried == pytest.approx(
        [sum(size for _, link, size in transfers if link == i) for i in (0, 1)]
    )
    return [end for _, end in sorted(ends)]


@pytest.mark.parametrize(
    ("transfers", "ends"),
    [
        # 40 alone, 50 against the other, 10 alone.
        ([(0, 0, 100.0), (4, 1, 50.0)], [15, 14]),
        ([(0, 0, 100.0), (0, 1, 100.0)], [20, 20]),
        ([(0, 0, 100.0), (10, 1, 100.0)], [10, 20]),
        # The way back is in use twice.
        ([(0, 0, 100.0), (1, 1, 10.0), (6, 1, 10.0)], [12, 3, 8]),
    ],
)
def test_traffic_is_two_way_while_it_overlaps(transfers, ends):
    assert opposed_ends(transfers) == pytest.approx(ends)


def test_a_mark_fires_when_so_much_has_left():
    env = simpy.Environment()
    network = Network(env, [10.0])
    mark = env.event()
    done = network.send((0,), 100.0, Ramp(rtt_s=4.0, window=10.0, limit=1000.0), (25.0, mark))
    seen = []
    mark.callbacks.append(lambda _: seen.append(env.now))
    env.run(done)
    # 10 in the first second, 20 from 4 to 6, then the path is full.
    assert (seen, env.now) == ([pytest.approx(5.5)], pytest.approx(15.0))


def test_send_buffers_are_what_linux_grows_them_to():
    """Two (BBR: three) of the largest window, of which a buffer's bookkeeping takes a part."""
    link = WanLink(between=("a", "b"), bandwidth_bytes_per_s=2.5e6, rtt_s=0.08)
    path = make_path(link, "a")
    full, queue = 2.5e6 * 0.08, 256 * 1024
    assert path.send_buffer(1) == pytest.approx(2.2 * (full + queue))
    assert path.send_buffer(1) == path.send_buffer(4)
    bbr = make_path(link.model_copy(update={"congestion_control": "bbr"}), "a")
    assert bbr.send_buffer(1) == pytest.approx(3.3 * 2.89 * full)
    small = make_path(link.model_copy(update={"window_bytes": 1e5}), "a")
    assert small.send_buffer(2) == pytest.approx(2 * small.window_limit(1))
    for one in (path, bbr, small):
        assert one.send_buffer(1) >= one.window_limit(1)
