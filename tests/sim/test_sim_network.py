"""The fluid network: fair shares, slow start, and bytes that neither vanish nor pile up."""

import pytest
import simpy
from hypothesis import given
from hypothesis import strategies as st

from geosim.cost.sending import send_time
from geosim.sim.flow import Ramp
from geosim.sim.network import Network, max_min_rates

INF = float("inf")


@pytest.mark.parametrize(
    ("routes", "weights", "caps", "capacity", "rates"),
    [
        ([(0,), (0,)], [1, 1], [INF, INF], [10.0], [5, 5]),
        ([(0,), (0,)], [3, 1], [INF, INF], [10.0], [7.5, 2.5]),
        ([(0,), (0,)], [1, 1], [2.0, INF], [10.0], [2, 8]),
        # One long flow over two links, a short one on each (Bertsekas and Gallager, figure 6.17 in spirit).
        ([(0, 1), (0,), (1,)], [1, 1, 1], [INF] * 3, [10.0, 4.0], [2, 8, 2]),
        ([(0, 1), (0,), (1,), (1,)], [1] * 4, [INF] * 4, [10.0, 3.0], [1, 9, 1, 1]),
        ([(0,)], [1], [1.0], [10.0], [1]),
    ],
)
def test_max_min_shares_by_hand(routes, weights, caps, capacity, rates):
    assert max_min_rates(routes, weights, caps, capacity) == pytest.approx(rates)


@st.composite
def loads(draw):
    links = draw(st.integers(1, 4))
    flows = draw(st.integers(1, 6))
    routes = [
        tuple(draw(st.sets(st.integers(0, links - 1), min_size=1, max_size=links))) for _ in range(flows)
    ]
    weights = [draw(st.integers(1, 8)) for _ in range(flows)]
    caps = [draw(st.one_of(st.just(INF), st.floats(0.1, 100))) for _ in range(flows)]
    return routes, weights, caps, [draw(st.floats(0.5, 100)) for _ in range(links)]


@given(loads())
def test_max_min_is_feasible_and_nobody_can_gain(load):
    routes, weights, caps, capacity = load
    rates = max_min_rates(*load)
    used = [sum(r for r, way in zip(rates, routes, strict=True) if i in way) for i in range(len(capacity))]
    assert all(u <= c * (1 + 1e-9) for u, c in zip(used, capacity, strict=True))
    levels = [r / w for r, w in zip(rates, weights, strict=True)]
    for f, way in enumerate(routes):
        if rates[f] >= caps[f] * (1 - 1e-9):
            continue
        full = [i for i in way if used[i] >= capacity[i] * (1 - 1e-9)]
        # Every flow below its cap has a full link on which no other gets more a unit of weight.
        assert any(
            all(levels[f] >= levels[g] * (1 - 1e-9) for g, other in enumerate(routes) if i in other)
            for i in full
        )


def finish_times(capacity, transfers):
    """Start (at, route, size, ramp) transfers; when each has left."""
    env = simpy.Environment()
    network = Network(env, capacity)
    ends = {}

    def transfer(k, at, route, size, ramp):
        yield env.timeout(at)
        yield network.send(route, size, ramp)
        ends[k] = env.now

    for k, t in enumerate(transfers):
        env.process(transfer(k, *t))
    env.run()
    return [ends[k] for k in range(len(transfers))], network


def test_two_flows_share_and_the_second_speeds_up_when_the_first_is_through():
    ends, _ = finish_times([10.0], [(0, (0,), 50.0, Ramp()), (0, (0,), 100.0, Ramp())])
    assert ends == pytest.approx([10, 15])


def test_a_late_flow_slows_an_early_one():
    ends, _ = finish_times([10.0], [(0, (0,), 100.0, Ramp()), (5, (0,), 20.0, Ramp())])
    assert ends == pytest.approx([12, 9])


def test_a_flow_uses_what_another_in_slow_start_leaves_idle():
    ramp = Ramp(rtt_s=10.0, window=10.0, limit=1000.0)
    # Alone the ramping flow sends 10 bytes in 1 s, pauses to 10 s, then 20 bytes.
    alone, _ = finish_times([10.0], [(0, (0,), 30.0, ramp)])
    assert alone == pytest.approx([12])
    both, _ = finish_times([10.0], [(0, (0,), 30.0, ramp), (0, (0,), 50.0, Ramp())])
    assert both == pytest.approx([12, 6])


@given(
    st.floats(1.0, 1e8),
    st.floats(1e4, 1e9),
    st.floats(1e-3, 0.3),
    st.floats(1e3, 1e5),
    st.floats(1.0, 1e3),
    st.one_of(st.just(1.0), st.floats(0.3, 1.0)),
    st.booleans(),
)
def test_one_flow_takes_what_the_law_says(size, rate, rtt, window, factor, share, paced):
    limit, stream = window * factor, share * rate
    ends, _ = finish_times([rate], [(0, (0,), size, Ramp(1, rtt, window, limit, stream, paced=paced))])
    law = float(send_time(size, rate, rtt, window, limit, stream, paced))
    assert ends[0] == pytest.approx(law, rel=1e-6)


@pytest.mark.parametrize("at", [0.1, 0.27, 0.5])
def test_a_link_that_gets_slower_makes_no_transfer_faster(at):
    """Its window has left, and what follows waits for its acknowledgements all the same."""

    def ends(rate_later):
        env = simpy.Environment()
        network = Network(env, [1e6])
        done = network.send((0,), 0.306e6, Ramp(1, 1.0, 0.303e6, 4e6, 1e6))
        env.run(until=at)
        network.set_capacity(0, rate_later)
        env.run(until=done)
        return env.now

    assert ends(1e6) == pytest.approx(1.003)
    assert ends(1e6 / 3.66) >= ends(1e6)


def test_flows_that_meet_others_go_on_without_bursts():
    """Windows of 2 s of sending in round trips of 10: alone 3 windows end at 22, in company they stream."""
    ramp = Ramp(rtt_s=10.0, window=20.0, limit=20.0)
    alone, _ = finish_times([10.0], [(0, (0,), 60.0, ramp)])
    assert alone == pytest.approx([22])
    both, network = finish_times([10.0], [(0, (0,), 60.0, ramp), (0, (0,), 60.0, ramp)])
    assert both == pytest.approx([30, 30])
    assert network.carried[0] == pytest.approx(120)


@st.composite
def traffic(draw):
    links = draw(st.integers(1, 3))
    transfers = []
    for _ in range(draw(st.integers(1, 6))):
        route = tuple(draw(st.sets(st.integers(0, links - 1), min_size=1)))
        ramp = Ramp(draw(st.integers(1, 4)), draw(st.floats(0.01, 1)), draw(st.floats(1, 50)), 200.0)
        transfers.append((draw(st.floats(0, 5)), route, draw(st.floats(1, 500)), ramp))
    return [draw(st.floats(1, 100)) for _ in range(links)], transfers


@given(traffic())
def test_bytes_are_conserved_and_no_link_carries_more_than_its_rate(case):
    capacity, transfers = case
    env = simpy.Environment()
    network = Network(env, capacity)
    over = []
    network.observe = lambda now, use: over.extend(
        u for u, c in zip(use, capacity, strict=True) if u > c * (1 + 1e-9)
    )
    for at, route, size, ramp in transfers:

        def one(at=at, route=route, size=size, ramp=ramp):
            yield env.timeout(at)
            yield network.send(route, size, ramp)

        env.process(one())
    env.run()
    assert not over
    for i, carried in enumerate(network.carried):
        assert carried == pytest.approx(sum(size for _, route, size, _ in transfers if i in route), rel=1e-9)
        assert carried <= capacity[i] * env.now * (1 + 1e-9)


def test_a_capacity_that_changes_counts_from_then_on():
    env = simpy.Environment()
    network = Network(env, [10.0])
    done = network.send((0,), 100.0, Ramp())

    def change():
        yield env.timeout(5)
        network.set_capacity(0, 5.0)

    env.process(change())
    env.run(done)
    assert env.now == pytest.approx(15)
