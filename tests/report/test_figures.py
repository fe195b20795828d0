"""Figures are drawn from plain dictionaries, complete or not."""

import pytest

from geosim.errors import UsageError
from geosim.report.figures import breakdown_figure, closed_loop_figure, loss_figure, predicted_measured_figure
from geosim.report.parts import PARTS, parts_of
from geosim.sim import simulate
from geosim.sim.record import PARTS as RECORDED

PNG = b"\x89PNG"


def result(policy="hierarchical-efsgd"):
    return simulate("laptop", policy, seeds=1, windows=10).to_dict()


def measured(policy="hierarchical-efsgd"):
    """What a real run knows: no breakdown."""
    return {key: value for key, value in result(policy).items() if key != "parts"}


def losses(seconds):
    return [(i * 4096, i * seconds, 6 / (1 + i)) for i in range(1, 30)]


def test_every_part_of_the_simulator_has_a_name_and_a_colour():
    assert set(RECORDED) == set(PARTS) - {"other"}
    assert len({colour for _, colour, _ in PARTS.values()}) == len(PARTS)


@pytest.mark.parametrize("policy", ["ddp", "hierarchical-efsgd", "local-sgd"])
def test_parts_add_up_to_the_step(policy):
    for r in (result(policy), measured(policy)):
        assert sum(parts_of(r).values()) == pytest.approx(r["step_time_s"]["mean"], rel=0.002)


def test_breakdown(tmp_path):
    breakdown_figure({"ddp": result("ddp"), "ours": result()}, tmp_path / "new" / "a.png")
    assert (tmp_path / "new" / "a.png").read_bytes().startswith(PNG)


def test_predicted_against_measured(tmp_path):
    points = [{"predicted": 0.3, "measured": 0.31}, {"predicted": 2.0, "measured": 1.8, "group": "delayed"}]
    predicted_measured_figure(points, tmp_path / "b.png")
    assert (tmp_path / "b.png").read_bytes().startswith(PNG)


def test_losses(tmp_path):
    loss_figure({"flat DDP": losses(2.0), "chosen": losses(0.3)}, tmp_path / "c.svg")
    text = (tmp_path / "c.svg").read_text()
    assert "<svg" in text


@pytest.mark.parametrize("missing", [None, "predicted", "measured", "loss"])
def test_closed_loop_with_whatever_is_there(tmp_path, missing):
    runs = {
        "flat-ddp": {"predicted": result("ddp"), "measured": measured("ddp"), "loss": losses(2.0)},
        "co-located": {"predicted": result(), "measured": measured(), "loss": losses(0.25)},
        "chosen": {"predicted": result(), "measured": measured(), "loss": losses(0.3)},
    }
    for run in runs.values():
        run.pop(missing, None)
    closed_loop_figure({"title": "laptop", "runs": runs}, tmp_path / "d.png")
    assert (tmp_path / "d.png").read_bytes().startswith(PNG)


def test_a_place_that_cannot_be_written_is_a_usage_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot write"):
        breakdown_figure({"ours": result()}, tmp_path / "file" / "a.png")
