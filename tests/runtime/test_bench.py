"""The codec benchmark: what it compares is comparable, and what it says has the promised form."""

import json
import math
from dataclasses import replace

import pytest
import torch

from geosim.errors import UsageError
from runtime.bench import Stages, measure_codecs, plain, write_codecs
from runtime.bench.cases import BLOCK, CASES, DEGENERATE, GROUP, RATIO, log2_choose, sizes
from runtime.bench.rounds import Contestant, run_rounds
from runtime.bench.updates import site_updates, tiled
from runtime.codec import codec_for

CPU = torch.device("cpu")
NUMEL = 100_000


def heavy(numel: int, seed: int) -> torch.Tensor:
    return torch.randn(numel, generator=torch.Generator().manual_seed(seed)) ** 3


@pytest.mark.parametrize("case", [c for c in CASES if c.plain_width is not None], ids=lambda c: c.key)
def test_plain_torch_does_the_same_work(case) -> None:
    """Equal selections leave equal residuals where nothing was sent. Where something was, groups in another
    order have other scales: both errors are below half a scale, the largest value over 127."""
    values, before = heavy(NUMEL, 0), heavy(NUMEL, 1)
    coder = codec_for("reference", CPU)(case.layout(NUMEL), 0, 0, 0)
    ours, theirs = before.clone(), before.clone()
    coder.encode(values, 0.25, ours, 0, torch.zeros(coder.payload_bytes, dtype=torch.uint8))
    plain.encode(values, 0.25, theirs, RATIO, case.plain_width or NUMEL, GROUP)
    differs = ours != theirs
    assert 0 < int(differs.sum()) <= case.kept(NUMEL)
    scale = float((before + 0.25 * values).abs().max()) / 127
    assert float((ours - theirs).abs().max()) <= scale
    assert int((theirs != before + 0.25 * values).sum()) <= case.kept(NUMEL)


def test_the_bound_counts_sets() -> None:
    assert log2_choose(20, 7) == pytest.approx(math.log2(math.comb(20, 7)))
    assert log2_choose(9, 9) == pytest.approx(0, abs=1e-9)
    for case in CASES:
        found = sizes(case, 3 * BLOCK + 100)
        sent, bound = found["position_bits_per_kept_value"], found["position_bound_bits_per_kept_value"]
        assert (
            bound <= sent < bound + 1.2
        )  # Elias-Fano: at most 2 + log2(n / k) a position, and bytes round up
        assert found["payload_bytes"] == case.layout(3 * BLOCK + 100).payload_bytes(0, 0)


def test_degenerate_updates_are_what_they_are_called() -> None:
    gradient, update = heavy(1000, 2), torch.empty(1000)
    made = {name: (fill(update, gradient), update.clone())[1] for name, fill in DEGENERATE.items()}
    assert not made["zeros"].any()
    assert len(made["constant"].unique()) == 1
    assert int((made["mostly_zeros"] != 0).sum()) == 10
    assert int((made["one_huge"] != gradient).sum()) == 1
    tiny = made["denormals"].abs()
    assert 0 < float(tiny.max()) < torch.finfo(torch.float32).tiny
    assert torch.isfinite(made["one_huge"]).all()


def test_a_round_runs_each_once_and_ratios_are_taken_within_it() -> None:
    order: list[str] = []
    seconds = {"a": iter([2.0, 30.0, 8.0]), "b": iter([1.0, 10.0, 2.0]), "seldom": iter([5.0])}
    contestants = [
        Contestant(name, lambda name=name: order.append(name), rounds=1 if name == "seldom" else None)
        for name in seconds
    ]

    def clock(run) -> float:
        run()
        return next(seconds[order[-1]])

    times = run_rounds(contestants, 3, clock, 0, lambda done: None)
    assert order[:2] == ["a", "b"]  # a first run of each, which does not count
    assert sorted(order[2:5]) == ["a", "b", "seldom"]
    assert sorted(order[5:7]) == sorted(order[7:]) == ["a", "b"]
    assert times.ratio("a", "b") == 3.0  # of 2, 3 and 4
    assert times.median_s("a") == 8.0
    assert times.ratio("seldom", "a") == 2.5


def test_updates_depend_on_the_seed_alone() -> None:
    def updates(seed: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
        return site_updates("byte-gpt-tiny", 3, 2, 0.5, seed, lambda done, loss: None)

    first, again, other = updates(0), updates(0), updates(1)
    assert all(
        torch.equal(x, y) for a, b in zip(first, again, strict=True) for x, y in zip(a, b, strict=True)
    )
    assert not torch.equal(first[0][0], other[0][0])
    assert not torch.equal(first[0][0], first[1][0])
    for _, residual in first:
        assert 0.005 < float((residual == 0).float().mean()) < 0.05  # what the last step has sent


def test_tiles_differ() -> None:
    out = tiled(heavy(50, 3), 120, CPU)
    assert out.shape == (120,)
    assert len(out.abs().unique()) == 120


def test_the_whole_benchmark(capsys, monkeypatch) -> None:
    pytest.importorskip("numba")
    monkeypatch.setattr("runtime.bench.codec.MODEL", "byte-gpt-tiny")
    by_key = {case.key: case for case in CASES}
    cases = [
        by_key["piece-int8"], replace(by_key["block-int8"], plain_width=None), by_key["sparse-loco"],
        by_key["dense-bf16"],
    ]  # fmt: skip
    with Stages() as progress:
        result = measure_codecs("cpu", NUMEL, cases=cases, rounds=2, steps=2, progress=progress)
    assert json.loads(json.dumps(result, allow_nan=False)) == result
    assert list(result["rows"]) == [case.key for case in cases]
    for row in result["rows"].values():
        assert row["encode_s"] > 0
        assert row["encode_over_pass_ratio"] > 0
        assert row["decode_sum4_over_pass_ratio"] > 0
    assert result["rows"]["piece-int8"]["plain_torch_over_encode_ratio"] > 0
    assert result["rows"]["block-int8"]["plain_torch_over_encode_ratio"] is None
    assert set(result["degenerate"]) == {"piece-int8", "block-int8"}
    capsys.readouterr()
    write_codecs(result)
    printed = capsys.readouterr().out
    for case in cases:
        assert case.title in printed


@pytest.mark.parametrize(
    ("device", "numel", "words"), [("tpu", NUMEL, "'cpu' or 'cuda'"), ("cpu", 9, "--numel 9")]
)
def test_a_mistake_is_one_line(device, numel, words) -> None:
    with pytest.raises(UsageError, match=words):
        measure_codecs(device, numel)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_cuda_is_asked_for_where_there_is_none() -> None:
    with pytest.raises(UsageError, match="no CUDA device"):
        measure_codecs("cuda", NUMEL)
