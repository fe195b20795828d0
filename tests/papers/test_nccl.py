"""NCCL's constants are those of the published file; the bars; what a tuner's pick costs."""

import json
from pathlib import Path

import numpy as np
import pytest

import papers.nccl.reproduce as nccl_paper
from geosim.cost import nccl_constants as c
from geosim.cost.nccl import best, picked
from papers.nccl.systems import A3_MEGA, MEASURED

FOLDER = Path(nccl_paper.__file__).parent
PUBLISHED = json.loads((FOLDER / "tuning_constants.json").read_text(encoding="utf-8"))
NAMES = {"tree": "Tree", "ring": "Ring", "nvls": "NVLS", "nvls-tree": "NVLSTree", "pat": "PAT"}


@pytest.mark.parametrize("algorithm", c.ALGORITHMS)
def test_latencies_are_nccls(algorithm):
    name = NAMES[algorithm]
    assert list(c.BASE_US[algorithm]) == PUBLISHED["baseLatencies_us"][name]
    assert list(c.NVLINK_US[algorithm]) == PUBLISHED["hwLatencies_us"]["NVLINK"][name]
    assert list(c.NET_US[algorithm]) == PUBLISHED["hwLatencies_us"]["NET"][name]


@pytest.mark.parametrize("architecture", c.NVLINK_SHARE)
def test_bandwidths_are_nccls(architecture):
    name = architecture.capitalize()
    low = next(v for k, v in PUBLISHED["llMaxBw_GBs_[1,2,4+ nodes]"].items() if k.startswith(name))
    assert list(c.LL_MAX[architecture]) == low
    assert [c.RING_LL128_MAX[architecture]] * 3 == PUBLISHED["perChMaxRingLL128_[1,2,4+]"][name]
    assert list(c.TREE_LL128_MAX[architecture]) == PUBLISHED["perChMaxTreeLL128"][name]
    assert list(c.TREE_MAX[architecture]) == PUBLISHED["perChMaxTree"][name]
    assert list(c.NVLS_TREE_MAX[architecture]) == PUBLISHED["perChMaxNVLSTree"][name]
    assert c.NVLS_EFFICIENCY[architecture] == PUBLISHED["nvlsEfficiency"][name]


def test_corrections_and_overheads_are_nccls():
    for protocol in c.PROTOCOLS:
        table = PUBLISHED["treeCorrectionFactor_64B_to_256MB_pow2"][protocol]
        assert c.TREE_CORRECTION[protocol].tolist() == table
    over = PUBLISHED["netOverhead_us"]
    assert [c.NET_OVERHEAD_US[k.lower()] for k in ("Intel", "AMD", "other")] == [
        over[k] for k in ("Intel", "AMD", "other")
    ]
    assert over["simple_protocol_multiplier"] == c.SIMPLE_OVERHEAD
    link = PUBLISHED["topo_link_bw_GBs_per_link"]
    assert pytest.approx(link["SM80"] / 25) == c.NVLINK_SHARE["ampere"]
    assert pytest.approx(link["SM90"] / 25) == c.NVLINK_SHARE["hopper"]
    assert pytest.approx(link["NET_100Gbit"] / 12.5) == c.NET_SHARE


def test_every_published_bus_bandwidth_is_in_the_table():
    """Rows with a bus bandwidth, each at least once; the script's three further sizes stand in its note."""
    rows = [r for r in nccl_paper.rows(FOLDER / "measured_busbw.csv") if r["busbw_GBs"]]
    assert {float(r["busbw_GBs"]) for r in rows} <= {m.published for m in MEASURED}
    assert len(MEASURED) == len(rows) + 1 + 3  # 231 GB/s at 8 GiB, and three sizes


def test_the_bars():
    found = nccl_paper.reproduce()
    assert found["NC-sweep-mean"] <= 15
    assert found["NC-sweep-worst"] <= 30
    assert found["NC-mean"] <= 15
    assert found["NC-worst"] <= 30


def test_a_run_at_half_its_bandwidth_is_consistent_in_itself():
    """Counter-run: one effective NIC rate from 8 GiB gives the 1 GiB value too."""
    assert nccl_paper.reproduce()["roce_1g"] == pytest.approx(216.5, rel=0.1)


def test_nccls_pick_costs_more_than_the_best_while_a_tree_fills():
    size = np.array([16.0 * 2**20])
    assert picked(size, A3_MEGA)[0] > 2 * best(size, A3_MEGA)[0]
