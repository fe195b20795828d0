"""Speed, size and memory of the codecs on real gradients, beside one pass over the same memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from geosim.errors import UsageError
from geosim.units import TIME, show
from runtime.bench.cases import CASES, DEGENERATE, Case, sizes
from runtime.bench.contest import Stand
from runtime.bench.memory import cuda_peaks, resident_peaks
from runtime.bench.rounds import Times, clock_of, run_rounds
from runtime.bench.updates import site_updates, tile, tiled
from runtime.codec import FragmentCodec, codec_for

MODEL = "byte-gpt-3m"
SITES = 4
WEIGHT = 1 / SITES
LEAST_NUMEL = 100_000
PASS_BYTES = 12  # an element: gradient and residual read, residual written
COPY_BYTES = 8
_FAST = {"cpu": "cpu", "cuda": "triton"}

Progress = Callable[[str, int, int], None]


def codec_on(device: torch.device) -> type[FragmentCodec]:
    """The fast codec of a device.

    Raises:
        UsageError: no such device here, or what its codec needs is not installed.
    """
    if device.type == "cuda" and not torch.cuda.is_available():
        raise UsageError("--device cuda: torch finds no CUDA device here: use 'cpu'")
    return codec_for(_FAST[device.type], device)


def measure_codecs(
    device: str = "cpu",
    numel: int = 50_000_000,
    *,
    cases: Sequence[Case] = CASES,
    rounds: int = 15,
    steps: int = 24,
    seed: int = 0,
    progress: Progress = lambda what, done, of: None,
) -> dict[str, Any]:
    """Train for gradients, then time, size and weigh the codecs of a device.

    All take turns once a round in an order drawn anew: ratios are medians of the rounds' own, since how fast
    memory is changes between rounds. The update is a site's gradient and its residual, tiled.

    Args:
        device: "cpu" or "cuda".
        numel: elements of the one tensor, at least 100,000.
        cases: which codecs.
        rounds: at least 1; the plain torch pipelines take part in the first 3, degenerate inputs in 7.
        steps: of training, before the gradient is taken.
        seed: of weights, data and orders.
        progress: told what is done, how much of it and of how much.

    Returns:
        JSON-ready: `rows` by case, `degenerate` (times over the ordinary encode's) by case and input. Names
        that end in _ratio are medians of ratios within a round.

    Raises:
        UsageError: no such device or codec here, or too few elements.
        RunError: the process that measures memory failed.
    """
    if numel < LEAST_NUMEL:
        raise UsageError(f"--numel {numel}: must be {LEAST_NUMEL} or more")
    if device not in _FAST:
        raise UsageError(f"--device {device}: use 'cpu' or 'cuda'")
    place = torch.device(device)
    codec = codec_on(place)
    sources, loss = _sources(steps, seed, progress)
    peaks = None
    if place.type == "cpu":
        progress("measuring memory", 0, 1)
        peaks = resident_peaks(cases, numel, WEIGHT, sources[0])
    stand = _stand(codec, numel, place, sources[0])
    if place.type == "cuda":
        peaks = cuda_peaks(cases, codec, WEIGHT, stand.values, stand.standing)
    times = _race(stand, cases, sources, rounds, seed, progress)
    result: dict[str, Any] = {
        "device": device, "codec": codec.name, "numel": numel, "threads": torch.get_num_threads(),
        "rounds": rounds, "seed": seed, "sites": SITES,
        "training": {"model": MODEL, "steps": steps, "loss_nats_per_byte": loss},
        "pass_s": times.median_s("pass"), "pass_fastest_s": times.fastest_s("pass"),
        "pass_slowest_s": times.slowest_s("pass"),
    }  # fmt: skip
    if place.type == "cuda":
        result["copy_bytes_per_s"] = COPY_BYTES * numel / times.median_s("copy")
    rows = {case.key: _row(case, stand, times, peaks) for case in cases}
    tested = [case.key for case in cases if case.degenerate]
    result["rows"] = rows
    result["degenerate"] = {
        key: {f"{name}_ratio": times.ratio(f"{key} {name}", f"{key} encode") for name in DEGENERATE}
        for key in tested
    }
    return result


def _sources(steps: int, seed: int, progress: Progress) -> tuple[list[tuple[Tensor, Tensor]], float]:
    """Every site's gradient and residual, and the loss at the end."""
    losses = []

    def trained(done: int, loss: float) -> None:
        losses.append(loss)
        progress("training for gradients", done, steps)

    return site_updates(MODEL, steps, SITES, WEIGHT, seed, trained), losses[-1]


def _stand(
    codec: type[FragmentCodec], numel: int, device: torch.device, source: tuple[Tensor, Tensor]
) -> Stand:
    values, standing = (tiled(t, numel, device) for t in source)
    return Stand(codec, WEIGHT, values, standing, standing.clone())


def _race(
    stand: Stand,
    cases: Sequence[Case],
    sources: list[tuple[Tensor, Tensor]],
    rounds: int,
    seed: int,
    progress: Progress,
) -> Times:
    """Payloads of all sites first; at the end the stand holds the first's update. Empties `sources`."""
    payloads: dict[str, list[Tensor]] = {case.key: [] for case in cases}
    for site in reversed(range(SITES)):
        progress("encoding the sites' payloads", SITES - 1 - site, SITES)
        tile(sources[site][0], stand.values)
        tile(sources[site][1], stand.standing)
        for case in cases:
            payloads[case.key].insert(0, stand.sealed(case, site))
    sources.clear()
    contestants = stand.passes()
    for case in cases:
        contestants += stand.encoding(case, payloads[case.key][0])
        contestants += stand.decoding(case, payloads[case.key])
    clock = clock_of(stand.values.device)
    return run_rounds(contestants, rounds, clock, seed, lambda done: progress("rounds", done, rounds))


def _row(case: Case, stand: Stand, times: Times, peaks: dict[str, int] | None) -> dict[str, Any]:
    """What is said of one codec."""
    numel, encode = len(stand.values), f"{case.key} encode"
    row: dict[str, Any] = {"title": case.title, **sizes(case, numel)}
    row["encode_s"] = times.median_s(encode)
    row["encode_fastest_s"] = times.fastest_s(encode)
    row["encode_over_pass_ratio"] = times.ratio(encode, "pass")
    if stand.values.is_cuda:
        copies = times.ratio(encode, "copy")
        row["encode_floor_share"] = PASS_BYTES / COPY_BYTES / copies
    plain = f"{case.key} plain"
    row["plain_torch_s"] = times.median_s(plain) if case.plain_width is not None else None
    row["plain_torch_over_encode_ratio"] = (
        times.ratio(plain, encode) if case.plain_width is not None else None
    )
    for name in ("decode_add", "decode_sum4"):
        row[f"{name}_s"] = times.median_s(f"{case.key} {name}")
        row[f"{name}_over_pass_ratio"] = times.ratio(f"{case.key} {name}", "pass")
    row["encode_extra_memory_share"] = None if peaks is None else peaks[case.key] / (4 * numel)
    return row


def summary_rows(numel: int = 10_000_000, rounds: int = 9) -> list[tuple[str, str]]:
    """A few rows (what, figure) for a wider benchmark: the CPU codec at top 1 % INT8."""
    cases = [replace(case, degenerate=False) for case in CASES if case.plain_width is not None]
    result = measure_codecs("cpu", numel, cases=cases, rounds=rounds)
    rows = []
    for row in result["rows"].values():
        what = f"encode, {row['title']}, {numel / 1e6:.0f} M values, torch threads: {result['threads']}"
        rows.append(
            (
                what,
                f"{show(row['encode_s'], TIME)} ({row['encode_over_pass_ratio']:.1f} passes; plain torch "
                f"{row['plain_torch_over_encode_ratio']:.1f} times that), "
                f"{row['bytes_per_kept_value']:.2f} B a value kept",
            )
        )
    return rows
