"""What the Triton codec promises without running: lazy imports, where it runs, memory, large tensors."""

import subprocess
import sys

import pytest
import torch

from geosim.policy import Cast, Dense, Integer, TopK
from geosim.policy.codec import Codec, section_bytes
from geosim.policy.maths import Section
from runtime.codec.cuda.codec import TritonCodec
from runtime.codec.cuda.plan import make_lanes
from runtime.codec.cuda.tables import AT, LENGTH, POS, TILE


def test_importing_the_codec_does_not_import_triton() -> None:
    code = "import sys, runtime.codec, runtime.codec.cuda; sys.exit('triton' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_where_it_runs(monkeypatch) -> None:
    pytest.importorskip("triton")
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    assert TritonCodec.runs_on(torch.device("cuda"))
    assert not TritonCodec.runs_on(torch.device("cpu"))
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    assert TritonCodec.runs_on(torch.device("cpu"))
    assert not TritonCodec.runs_on(torch.device("meta"))


def test_top_one_percent_takes_little_more_memory() -> None:
    """Candidates (6 bytes), what travels (4 + 4), payload, tables and what `choose` holds for each tile."""
    numel = 1 << 24
    codec = Codec(select=TopK(ratio=0.01), quantize=Integer())
    (lane,) = make_lanes([Section(((0, numel),), codec.select, codec.quantize)])
    tables = sum(x.numel() * x.element_size() for x in vars(lane.tables).values())
    per_tile = 4 * 14 * len(lane.tables.tiles)
    selecting = max(4 * lane.samples, 6 * lane.room + 8 * lane.count + 4 * lane.rows)
    extra = selecting + tables + per_tile + section_bytes(numel, codec)
    assert extra <= 0.05 * 4 * numel


@pytest.mark.parametrize("select", [Dense(), TopK(ratio=0.01), TopK(ratio=0.01, scope=4096)])
def test_tiles_of_more_than_2_31_elements(select) -> None:
    numel = (1 << 31) + 12345
    (lane,) = make_lanes([Section(((7, 7 + numel),), select, Cast(kind="fp32"))])
    tiles = lane.tables.tiles
    assert tiles.dtype == torch.int64
    assert make_lanes([Section(((0, 5000),), select, Cast())])[0].tables.tiles.dtype == torch.int32
    assert int(tiles[:, LENGTH].sum()) == numel
    assert int(tiles[:, LENGTH].max()) <= TILE
    assert torch.equal(tiles[1:, POS], tiles[:-1, POS] + tiles[:-1, LENGTH])
    assert torch.equal(tiles[:, AT], tiles[:, POS] + 7)
    assert int(tiles[-1, AT]) > 1 << 31
