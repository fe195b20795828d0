"""Field report B: what the inference of its message rests on."""

import numpy as np
import pytest

from geosim.scenario import load_scenario
from papers.field_report_b import infer as fit
from papers.field_report_b.reproduce import reproduce

STEADY = load_scenario("hongkong-siliconvalley", {"wan.0.jitter": "0 s"})


def test_the_fit_finds_times_that_the_model_made():
    """Times of a made-up setting come back from their own message; a wrong width does not fit."""
    wan, message = fit.Wan(STEADY), np.array([1.5e9])
    made = {
        "B1": float(wan.ring_s(message, fit.NOMINAL, 128 * 2.0**20)[0]),
        "B2": float(wan.tree_s(message, fit.NOMINAL, 128 * 2.0**20)[0]),
        "B4": float(wan.tree_s(message / 2, fit.NOMINAL, 128 * 2.0**20)[0]),
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fit, "TIMES_S", made)
        found = fit.infer(STEADY)
        assert found.worst < 0.01
        assert found.bits == 16
        assert found.message_bytes / found.flight_bytes == pytest.approx(1.5e9 / (128 * 2.0**20), rel=0.01)
        assert fit.infer(STEADY, bits=(32,)).worst > 0.1


def test_one_setting_explains_the_three_times_but_not_the_utilization():
    best = fit.infer(STEADY)
    assert best.worst < 0.065
    for name, seconds in fit.TIMES_S.items():
        assert best.times_s[name] == pytest.approx(seconds, rel=best.worst + 1e-9)
    found = reproduce()
    assert found["B1-use"] < 30
    assert found["B4-use"] < 35
    # Whatever is in flight: bytes over time fix what 70 % and 30 % would be.
    assert found["before70"] > 60


def test_every_claim_of_the_report_is_in_the_table():
    from papers.__main__ import folders, read_claims

    folder = next(f for f in folders() if f.name == "field_report_b")
    claims = read_claims(folder)
    assert {c.id.split("-")[0] for c in claims} == {f"B{k}" for k in range(1, 10)}
    # What is not reproduced has a counter-run.
    assert all("counter-run" in c.reason.lower() for c in claims if c.status != "reproduced")
