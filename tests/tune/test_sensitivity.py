"""Scaled scenarios and bisection."""

import pytest

from geosim.scenario import load_scenario
from geosim.tune.sensitivity import threshold, with_bandwidth, with_model_scale, with_rtt


@pytest.mark.parametrize("edge", [1.0, 1.7, 900.0])
def test_bisection_finds_the_edge(edge):
    found = threshold(lambda x: x >= edge, 1.0, 1e3)
    assert found is not None
    assert edge <= found <= edge * 1.006


def test_bisection_says_when_there_is_no_edge():
    assert threshold(lambda x: False, 1.0, 1e3) is None


def test_bandwidth_scales_every_limit_and_keeps_windows_from_binding():
    changes = {"wan.0.back_bandwidth": "10 Mbit/s", "sites.0.uplink": "1 Gbit/s", "wan.0.queue": "1 MiB"}
    changes["wan.0.trace"] = [{"at": "0 s", "bandwidth": "50 Mbit/s"}]
    before = load_scenario("laptop", changes)
    after = with_bandwidth(before, 4.0)
    a, b = before.wan[0], after.wan[0]
    assert b.bandwidth_bytes_per_s == 4 * a.bandwidth_bytes_per_s
    assert b.back_bandwidth_bytes_per_s == 4 * 10e6 / 8
    assert b.window_bytes == 4 * a.window_bytes
    assert b.queue_bytes == 4 * 2**20
    assert b.trace[0].bandwidth_bytes_per_s == 4 * 50e6 / 8
    assert after.sites[0].uplink_bytes_per_s == 4 * 1e9 / 8
    assert after.sites[0].downlink_bytes_per_s is None
    assert with_bandwidth(before, 0.5).wan[0].window_bytes == a.window_bytes
    assert with_bandwidth(before, 1.0) == before


def test_rtt_scales():
    assert with_rtt(load_scenario("laptop"), 2.0).wan[0].rtt_s == 0.08


def test_models_keep_their_shape_when_they_shrink():
    scenario = load_scenario("beijing-ningxia")
    numel = scenario.workload.model.param_table().numel
    model = with_model_scale(scenario, 1 / 8).workload.model
    assert model.d_model % model.heads == 0
    assert numel / 10 < model.param_table().numel < numel / 5
    assert with_model_scale(scenario, 1.0).workload.model.param_table().numel == numel
