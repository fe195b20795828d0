"""What people see of a benchmark: progress on standard error, tables on standard output."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from geosim.screen import plain_table
from geosim.units import SIZE, TIME, show

Row = Mapping[str, Any]


class Stages:
    """A bar for each stage on a terminal, a line for each elsewhere."""

    def __init__(self) -> None:
        console = Console(stderr=True)
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        self._bar = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
        self._task = self._bar.add_task("starting")
        self._stage = ""

    def __enter__(self) -> Stages:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def __call__(self, stage: str, done: int, of: int) -> None:
        """So much of a stage is done."""
        self._bar.update(self._task, description=stage, completed=done, total=of)
        if self._bar.disable and stage != self._stage:
            print(stage, file=sys.stderr, flush=True)
        self._stage = stage


def write_codecs(result: Mapping[str, Any]) -> None:
    """The figures of `measure_codecs` as tables."""
    # Into a file or a pipe tables go unbroken, whatever the terminal is.
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 130)
    threads = f", torch threads: {result['threads']}" if result["device"] == "cpu" else ""
    trained = f"{result['training']['model']} after {result['training']['steps']} steps"
    console.print(
        f"codec {result['codec']} on {result['device']}{threads}; gradient of {trained}, tiled to "
        f"{result['numel']:,} fp32 values; {result['rounds']} rounds"
    )
    fastest, slowest = (show(result[f"pass_{name}_s"], TIME) for name in ("fastest", "slowest"))
    console.print(
        f"One pass (12 bytes a value: residual += gradient) takes {show(result['pass_s'], TIME)}, "
        f"{fastest} to {slowest}."
    )
    if "copy_bytes_per_s" in result:
        console.print(f"A copy on the device: {show(result['copy_bytes_per_s'], SIZE)} a second.")
    console.print()
    console.print(_table(result))
    console.print(
        "B/kept: payload, header and scales included, a value that travels. bits/position: sent (bound).\n"
        "plain torch: topk, gather, quantize and residual, without packing positions, over encode.\n"
        "Times over a pass, and that ratio, are medians of ratios within a round."
    )
    if result["degenerate"]:
        console.print()
        console.print(_degenerate(result))


def _table(result: Mapping[str, Any]) -> Table:
    floor = any("encode_floor_share" in row for row in result["rows"].values())
    heads = (
        "codec", "B/kept", "bits/position", "encode", "passes", *(["of floor"] if floor else []),
        "plain\ntorch", "decode\nadd", "passes", "decode\nsum of 4", "passes", "extra\nmemory",
    )  # fmt: skip
    table = plain_table(*heads, right=range(1, len(heads)))
    for row in result["rows"].values():
        speedup, extra = row["plain_torch_over_encode_ratio"], row["encode_extra_memory_share"]
        cells = [row["title"], f"{row['bytes_per_kept_value']:.3f}", _positions(row)]
        cells += [show(row["encode_s"], TIME), f"{row['encode_over_pass_ratio']:.2f}"]
        if floor:
            cells.append(f"{100 * row['encode_floor_share']:.0f} %")
        cells.append("-" if speedup is None else f"{speedup:.1f} x")
        for name in ("decode_add", "decode_sum4"):
            cells += [show(row[f"{name}_s"], TIME), f"{row[f'{name}_over_pass_ratio']:.2f}"]
        table.add_row(*cells, "-" if extra is None else f"{100 * extra:.1f} %")
    return table


def _positions(row: Row) -> str:
    if not row["position_bits_per_kept_value"]:
        return "-"
    return f"{row['position_bits_per_kept_value']:.2f} ({row['position_bound_bits_per_kept_value']:.2f})"


def _degenerate(result: Mapping[str, Any]) -> Table:
    names = next(iter(result["degenerate"].values()))
    words = [name.removesuffix("_ratio").replace("_", " ") for name in names]
    heads = ("encode time of other updates over the gradient's", *words)
    table = plain_table(*heads, right=range(1, len(heads)))
    for key, row in result["degenerate"].items():
        table.add_row(result["rows"][key]["title"], *(f"{row[name]:.2f}" for name in names))
    return table
