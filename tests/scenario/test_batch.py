"""How a step's batch is dealt over sites."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geosim.errors import UsageError
from geosim.scenario import load_scenario, site_batches, site_tokens


def world(**changes):
    """The laptop's two sites with changes."""
    return load_scenario("laptop", changes)


def test_equal_unless_said():
    assert site_batches(world()) == (2, 2)
    assert site_batches(world(**{"sites.1.batch_per_accelerator": 6})) == (2, 6)
    assert site_tokens(world(**{"sites.1.batch_per_accelerator": 6})) == (2 * 2 * 128, 2 * 6 * 128)


def test_by_speed_deals_the_same_batch_so_that_sites_take_equally_long():
    uneven = {
        "workload.batch": "by-speed",
        "workload.batch_per_accelerator": 4,
        "sites.1.step_time": "750 ms",
    }
    assert site_batches(world(**uneven)) == (6, 2)
    faster = world(
        **{"workload.batch": "by-speed", "workload.step_time": None, "sites.1.accelerator": "H100"}
    )
    assert site_batches(faster) != (2, 2)
    assert sum(site_batches(faster)) == 4


@given(
    st.integers(1, 64), st.lists(st.tuples(st.integers(1, 16), st.floats(0.02, 5)), min_size=2, max_size=2)
)
def test_by_speed_gives_out_what_there_is_and_leaves_no_site_idle(batch, sites):
    changes = {"workload.batch": "by-speed", "workload.batch_per_accelerator": batch}
    for m, (ranks, step) in enumerate(sites):
        changes |= {f"sites.{m}.accelerators_per_node": ranks, f"sites.{m}.step_time": f"{step!r} s"}
    made = world(**changes)
    batches = site_batches(made)
    ranks = [r for r, _ in sites]
    left = batch * sum(ranks) - sum(r * b for r, b in zip(ranks, batches, strict=True))
    assert 0 <= left < min(ranks)
    assert min(batches) >= 1
    times = [b * step for b, (_, step) in zip(batches, sites, strict=True)]
    # No site could take a sequence off the slowest and be done sooner, had it room for one.
    slowest = max(range(2), key=lambda m: times[m])
    other = 1 - slowest
    if batches[slowest] > 1 and ranks[0] == ranks[1]:
        assert (batches[other] + 1) * sites[other][1] >= times[slowest] * (1 - 1e-9)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"workload.batch": "fast"}, "batch"),
        ({"workload.batch": "by-speed", "sites.0.batch_per_accelerator": 2}, "leave one out"),
        ({"workload.batch": "by-speed", "workload.parallel": {}}, "workload.batch: 'by-speed'"),
        ({"sites.0.batch_per_accelerator": 0}, "batch_per_accelerator"),
        ({"sites.1.step_time": "0 s"}, "step_time"),
    ],
)
def test_mistakes_are_one_line(changes, words):
    with pytest.raises(UsageError, match=words) as error:
        world(**changes)
    assert "\n" not in str(error.value)
