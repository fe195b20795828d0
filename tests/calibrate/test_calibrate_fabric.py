"""nccl-tests: tables that geosim's own law makes give its fabric back; public outputs of several versions."""

from pathlib import Path

import numpy as np
import pytest

from geosim.calibrate import read_file
from geosim.cost.collective import site_all_gather, site_all_reduce
from geosim.errors import UsageError
from geosim.scenario import Accelerator, Fabric, Hop, Site

FIXTURES = Path(__file__).parent / "fixtures"
SIZES = [8 * 2**i for i in range(31)]


def site(device, nodes, per_node, fabric):
    name = device.removeprefix("NVIDIA ")
    made = Accelerator(
        name=name, fp32_flops=1e12, memory_bytes=1e9, memory_bandwidth_bytes_per_s=1e9, source=""
    )
    return Site(name="a", accelerator=made, nodes=nodes, accelerators_per_node=per_node, fabric=fabric)


def output(device, nodes, per_node, times, factor, collective="all_reduce", sizes=SIZES):
    """What nccl-tests 2.18 prints."""
    lines = [
        "# nccl-tests version 2.18.0 nccl-headers=22907 nccl-library=22907",
        f"# Collective test starting: {collective}_perf",
    ]
    lines += ["# nThread 1 nGpus 1 minBytes 8 maxBytes 8589934592 step: 2(factor)", "#", "# Using devices"]
    for rank in range(nodes * per_node):
        place = f"host{rank // per_node} device {rank % per_node:2} [0x0f]"
        lines.append(f"#  Rank {rank:2} Group  0 Pid {rank + 7:6} on {place} {device}")
    for size, time in zip(sizes, times, strict=True):
        algbw = size / time / 1e9
        cells = f"{time * 1e6:8.4g} {algbw:7.2f} {algbw * factor:7.2f}       0"
        lines.append(f"{size:12} {size // 4:12}     float     sum      -1 {cells} {cells}")
    return "\n".join([*lines, "# Out of bounds values : 0 OK", "# Avg bus bandwidth    : 1 ", "#", ""])


@pytest.mark.parametrize("collective", ["all_reduce", "all_gather", "reduce_scatter"])
@pytest.mark.parametrize(
    ("device", "nodes", "per_node", "bandwidth", "latency"),
    [
        ("NVIDIA GeForce RTX 4090", 1, 8, 20e9, 8e-6),
        ("NVIDIA GeForce RTX 4090", 4, 1, 3e9, 20e-6),
        ("NVIDIA H100 80GB HBM3", 2, 8, 12.5e9, 5e-6),
        ("NVIDIA A100-SXM4-80GB", 4, 8, 6.25e9, 10e-6),
    ],
)
def test_a_fabrics_own_times_give_it_back(tmp_path, collective, device, nodes, per_node, bandwidth, latency):
    tier = Hop(bandwidth_bytes_per_s=bandwidth, latency_s=latency)
    nvlink = {"H": 450e9, "A": 300e9, "G": 1e15}[device.removeprefix("NVIDIA ")[0]]
    inside = Hop(bandwidth_bytes_per_s=nvlink, latency_s=0.0)
    fabric = Fabric(intra_node=tier) if nodes == 1 else Fabric(intra_node=inside, inter_node=tier)
    place = site(device, nodes, per_node, fabric)
    size = np.array(SIZES, float)
    times = (
        site_all_reduce(size, place)
        if collective == "all_reduce"
        else site_all_gather(size, place, place.ranks)
    )
    share = (place.ranks - 1) / place.ranks
    file = tmp_path / "nccl.txt"
    file.write_text(
        output(device, nodes, per_node, times, 2 * share if collective == "all_reduce" else share, collective)
    )
    reading = read_file(file)
    read = {v.field.rpartition(".")[2]: v for v in reading.values}
    assert read["bandwidth"].field == f"fabric.{'intra' if nodes == 1 else 'inter'}_node.bandwidth"
    # Times have four digits in the file, and bandwidth is held against sizes in which latency still counts.
    assert read["bandwidth"].value == pytest.approx(bandwidth, rel=0.02)
    assert read["latency"].value == pytest.approx(latency, rel=0.02, abs=1e-7)
    assert reading.version == "2.18.0"


def test_two_nodes_of_a100():
    """OCI's 16 x A100 over 8 x 200 Gbit/s a node: NVLink limits, and the NICs are at least that fast."""
    reading = read_file(FIXTURES / "nccl-2x8-a100.txt")
    read = {v.field: v for v in reading.values}
    assert read["fabric.inter_node.bandwidth"].at_least
    assert read["fabric.inter_node.bandwidth"].value == pytest.approx(200e9 / 8, rel=0.1)
    assert {f.name: f.text for f in reading.facts}["ranks"] == "2 x 8"
    # The bar that papers/nccl holds the model to.
    assert not any("off by" in item.text for item in reading.unknown)


def test_one_node_of_h100():
    """NVLink is 450 GB/s by the data sheet; NVLS reaches 480 GB/s of bus bandwidth with it, 471 here."""
    read = {v.field: v for v in read_file(FIXTURES / "nccl-1x8-h100.txt").values}
    assert set(read) == {"fabric.intra_node.bandwidth"}
    assert read["fabric.intra_node.bandwidth"].value == pytest.approx(450e9, rel=0.15)


def test_what_mpirun_puts_before_each_line_is_dropped_and_a_bad_fit_is_told():
    reading = read_file(FIXTURES / "nccl-1x2-rtx5090-mpirun.txt")
    assert reading.values[0].law == "ring"
    assert any("the law is off by" in item.text for item in reading.unknown)


def test_the_oldest_header_is_read():
    reading = read_file(FIXTURES / "nccl-2x8-a100-old.txt")
    assert (reading.version, len(reading.values)) == ("not said", 2)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("Out of bounds values : 0", "Out of bounds values : 3", "3 values out of bounds"),
        ("#  Rank", "#  Rang", "no '# Rank ... device' lines"),
        ("float", "9", "no row of results"),
        ("      0\n", "      7\n", "7 wrong values"),
        ("Rank  1", "Rank  0", "ranks are missing"),
    ],
)
def test_outputs_that_are_refused(tmp_path, old, new, says):
    file = tmp_path / "nccl.txt"
    file.write_text((FIXTURES / "nccl-1x8-h100.txt").read_text().replace(old, new))
    with pytest.raises(UsageError, match=says):
        read_file(file)


def test_another_collective_and_ranks_alone_are_refused(tmp_path):
    text = output("NVIDIA H100 80GB HBM3", 1, 2, [1e-3] * len(SIZES), 1.0, "sendrecv")
    file = tmp_path / "nccl.txt"
    file.write_text(text)
    with pytest.raises(
        UsageError, match="sendrecv_perf is not read: use all_reduce, all_gather, reduce_scatter"
    ):
        read_file(file)
    file.write_text(text.replace("Rank  1", "Rank  0"))
    with pytest.raises(UsageError, match="each ran alone"):
        read_file(file)


def test_an_output_cut_off_says_so(tmp_path):
    file = tmp_path / "nccl.txt"
    file.write_text((FIXTURES / "nccl-2x8-a100.txt").read_text().split("# Out of bounds")[0])
    assert any("output stops there" in item.text for item in read_file(file).unknown)
