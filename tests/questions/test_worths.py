"""What changes are worth: derivatives equal differences where laws are smooth, and say where they are not."""

import dataclasses
import sys

import numpy as np
import pytest

from geosim.cost import build
from geosim.policy import load_policy, preset_names
from geosim.questions import gradient
from geosim.questions.changes import changes, unit_of
from geosim.questions.knobs import Knob
from geosim.questions.sensitivity import sensitivity
from geosim.report.worths import notes
from geosim.scenario import load_scenario
from geosim.sim import simulate
from geosim.sim.closed_form import batch_from, steady_state
from geosim.tune.sensitivity import threshold

TWO_LEVEL = [name for name in preset_names() if not load_policy(name).is_flat]
LOSSY = {"wan.0.loss": 0.001}
SOME_LOSS = {"wan.0.loss": 0.0001}  # bandwidth still counts, as it does not once loss alone bounds windows


def slope(scenario, policy, knob):
    return gradient.step_gradient(scenario, build(scenario, policy), batch_from(scenario, [policy]), knob)


def difference(scenario, knob, step, relative=1e-5):
    """Central, and its two sides."""
    now = knob.value(scenario)
    up, here, down = (step(knob.turned(scenario, now * (1 + s * relative))) for s in (1, 0, -1))
    width = now * relative
    return (up - down) / (2 * width), (up - here) / width, (here - down) / width


@pytest.mark.parametrize("kind", ["bandwidth", "rtt", "loss"])
@pytest.mark.parametrize("name", TWO_LEVEL)
def test_gradients_equal_differences_of_the_engine_where_smooth(name, kind):
    pytest.importorskip("jax")
    scenario, policy, knob = load_scenario("laptop", LOSSY), load_policy(name), Knob(kind)
    central, right, left = difference(
        scenario, knob, lambda world: simulate(world, policy, seeds=1, windows=20).step_time_s.mean
    )
    step = simulate(scenario, policy, seeds=1, windows=20).step_time_s.mean
    noise = 1e-9 * step / knob.value(scenario)
    if abs(right - left) > 0.01 * max(abs(right), abs(left)) + noise / 1e-5:
        pytest.skip("a kink")
    assert slope(scenario, policy, knob) == pytest.approx(central, rel=0.01, abs=noise / 1e-5)


@pytest.mark.parametrize("kind", ["bandwidth", "rtt", "loss"])
@pytest.mark.parametrize("seed", range(6))
def test_gradients_equal_differences_of_the_closed_form(kind, seed):
    """In float64 and of the same lines, so closer than to the engine: 1e-5 is the differences' own error."""
    pytest.importorskip("jax")
    random = np.random.default_rng(seed)
    changes = {
        "wan.0.loss": float(10 ** random.uniform(-5, -2)),
        "wan.0.rtt": f"{10 ** random.uniform(-3, -0.5):.6f} s",
        "wan.0.bandwidth": f"{10 ** random.uniform(1, 4):.3f} Mbit/s",
        "wan.0.congestion_control": str(random.choice(["cubic", "reno", "bbr"])),
    }
    scenario, knob = load_scenario("laptop", changes), Knob(kind)
    for name in TWO_LEVEL:
        policy = load_policy(name)

        def step(world, policy=policy):
            return float(steady_state(batch_from(world, [policy])).step_s[0])

        central, right, left = difference(scenario, knob, step, 1e-6)
        if abs(right - left) > 1e-3 * max(abs(right), abs(left)):
            continue
        noise = 1e-9 * step(scenario) / knob.value(scenario)
        assert slope(scenario, policy, knob) == pytest.approx(central, rel=1e-5, abs=noise)


def test_jax_arrays_give_what_numpy_gives():
    jax = pytest.importorskip("jax")
    batch = batch_from(load_scenario("laptop", LOSSY), [load_policy(name) for name in preset_names()])
    plain = steady_state(batch)
    with jax.enable_x64(True) if hasattr(jax, "enable_x64") else jax.experimental.enable_x64(True):
        moved = dataclasses.replace(batch, rate=jax.numpy.asarray(batch.rate))
        other = steady_state(moved)
        assert isinstance(other.step_s, jax.Array)
        for field in dataclasses.fields(plain):
            expected = getattr(plain, field.name)
            assert np.asarray(getattr(other, field.name)) == pytest.approx(expected, rel=1e-12, nan_ok=True)


@pytest.mark.parametrize("policy", ["local-sgd", "diloco", "streaming-diloco", "ddp"])
def test_both_models_agree_within_a_per_cent_where_smooth(policy):
    found = sensitivity(load_scenario("laptop", LOSSY), load_policy(policy), seeds=1, windows=20)
    assert found.applies
    assert found.step_s == pytest.approx(found.result.step_time_s.mean, rel=0.01)
    compared = [worth for worth in found.worths if worth.smooth and worth.closed_s is not None]
    assert len(compared) >= 4
    for worth in compared:
        assert worth.disagreement <= 0.01, worth


@pytest.mark.parametrize("policy", ["local-sgd", "diloco"])
def test_links_that_count_are_smooth_on_the_laptop(policy):
    """0.1 %: what a central difference over half of a tenth leaves of the curvature of 1 / bandwidth."""
    pytest.importorskip("jax")
    found = sensitivity(load_scenario("laptop", SOME_LOSS), load_policy(policy), seeds=1, windows=20)
    links = [worth for worth in found.worths if worth.method == "gradient"]
    assert len(links) == 3
    for worth in links:
        assert worth.smooth
        assert worth.engine_s < 0
        assert worth.disagreement <= 0.001


def test_signs_are_as_everyone_expects():
    scenario = load_scenario("laptop", SOME_LOSS)
    worths = {w.change: w for w in sensitivity(scenario, load_policy("local-sgd")).worths}
    for name in ("10 Mbit/s more", "1 ms less RTT", "0.001 % less loss", "1 % less compute time", "K = 17"):
        assert worths[name].engine_s < 0 < worths[name].tokens_per_s
    more = worths["one more accelerator a site"]
    assert more.tokens_per_step_change
    assert more.tokens_per_s > 0


def test_without_jax_there_are_differences(monkeypatch):
    scenario, policy = load_scenario("laptop", LOSSY), load_policy("diloco")
    with_jax = sensitivity(scenario, policy, 1, 20) if gradient.is_installed() else None
    monkeypatch.setitem(sys.modules, "jax", None)
    found = sensitivity(scenario, policy, 1, 20)
    assert not found.has_jax
    assert {worth.method for worth in found.worths} == {"difference"}
    if with_jax is not None:
        assert "gradient" in {worth.method for worth in with_jax.worths}
        for a, b in zip(found.worths, with_jax.worths, strict=True):
            assert a.engine_s == b.engine_s
            assert a.closed_s == pytest.approx(b.closed_s, rel=0.01, abs=1e-9)


def test_where_the_closed_form_does_not_hold_it_says_so():
    found = sensitivity(load_scenario("beijing-ningxia"), load_policy("hierarchical-efsgd"), 1, 20)
    assert not found.applies
    assert found.reason == "compute or delay is random"


def test_of_differing_links_the_narrowest_is_worth_what_all_are():
    scenario, policy = load_scenario("four-regions"), load_policy("diloco", {"interval": 50})
    still = scenario.model_copy(
        update={"workload": scenario.workload.model_copy(update={"step_jitter": 0.0})}
    )
    worths = {w.change: w for w in sensitivity(still, policy, 1, 5).worths}
    together, alone = worths["10 Mbit/s more on all links"], worths["10 Mbit/s more, tokyo-frankfurt"]
    assert together.engine_s == pytest.approx(alone.engine_s, rel=0.02)
    assert together.disagreement <= 0.01
    assert worths["10 Mbit/s more, oregon-virginia"].engine_s == 0
    assert alone.closed_s is None


@pytest.mark.parametrize(
    ("kind", "now", "unit"),
    [
        ("bandwidth", 100e6 / 8, 10e6 / 8),
        ("bandwidth", 25e9 / 8, 1e9 / 8),
        ("bandwidth", 99e6 / 8, 1e6 / 8),
        ("bandwidth", 1e12 / 8, 1e9 / 8),
        ("rtt", 0.04, -0.001),
        ("rtt", 0.0011, -0.0001),
        ("loss", 0.001, -0.0001),
        ("loss", 0.5, -0.01),
        ("loss", 0.0, 0.0),
    ],
)
def test_units_are_powers_of_ten_that_are_small_against_what_is_there(kind, now, unit):
    assert unit_of(Knob(kind), now) == pytest.approx(unit)


def test_plain_data_parallelism_has_no_window_to_change():
    names = [change.name for change in changes(load_scenario("laptop"), load_policy("ddp"))]
    assert names == [
        "10 Mbit/s more",
        "1 ms less RTT",
        "1 % less compute time",
        "one more accelerator a site",
    ]


def test_a_kink_is_said():
    """Where an exchange just hides behind compute, less bandwidth costs and more gains nothing."""
    policy = load_policy("diloco", {"overlap": "delayed", "interval": 4})

    def exposed(world):
        return float(steady_state(batch_from(world, [policy])).exposed_s[0])

    world, knob = load_scenario("laptop"), Knob("bandwidth")
    edge = threshold(lambda v: exposed(knob.turned(world, v)) == 0, 1e5, 1e9, 1e-6)
    found = sensitivity(knob.turned(world, edge), policy, 1, 100)
    more = next(worth for worth in found.worths if worth.change.endswith("bit/s more"))
    assert not more.smooth
    assert more.engine_s < 0
    assert "kink" in " ".join(notes(found))
