"""What the simulator takes a codec to cost without a calibration, beside what `georun bench codec` measured.

    python -m experiments.codec_cost           # seconds: nothing is measured anew

Measured are the outputs in experiments/results/. On processors a rank is one core, so what n threads took
counts n times. An encode was timed without its checksum, a decode with it.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

import typer
from rich.table import Table

from experiments.console import console, run_app
from geosim.cost.calibration import Calibration
from geosim.cost.codec import decode_time, encode_time, rates
from geosim.policy.codec import wire_bytes
from geosim.scenario import Accelerator
from geosim.scenario.accelerator import accelerators
from geosim.units import TIME, parse, show
from runtime.bench.cases import CASES, Case

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
RESULTS = Path(__file__).parent / "results"
SOURCES = {
    "codec_cpu_zen5.txt": "cpu-core",
    "codec_cpu_zen4.txt": "cpu-core",
    "codec_cpu_xeon.txt": "cpu-core",
    "codec_cpu_emerald_rapids.txt": "cpu-core",
    "codec_cpu.txt": "cpu-core",
    "codec_h200.txt": "H200",
}
_TIME = r"([\d.,]+ (?:s|ms|us))"
_HEAD = re.compile(r"codec \w+ on (\w+)(?:, torch threads: (\d+))?; .* tiled to ([\d,]+) fp32 values")


@dataclass(frozen=True)
class Row:
    """A codec's measured seconds of `threads` threads: one encode, one payload added."""

    case: Case
    numel: int
    threads: int
    encode_s: float
    decode_s: float


def rows_of(text: str) -> Iterator[Row]:
    """The rows of the first table in the benchmark's output."""
    head = _HEAD.search(text)
    if head is None:
        raise ValueError("no output of georun bench codec")
    table = text[head.end() :].split("sum of 4", 1)[1].split("B/kept:")[0]
    lines = [line for line in table.splitlines() if len(re.findall(_TIME, line)) > 2]
    for case, line in zip(CASES, lines, strict=True):
        if not line.startswith(case.title.rsplit(" ", 2)[0]):
            raise ValueError(f"a row of '{case.title}' begins with '{line[:40]}'")
        encode, added = re.findall(_TIME, line)[:2]
        yield Row(
            case, int(head[3].replace(",", "")), int(head[2] or 1), parse(encode, TIME), parse(added, TIME)
        )


def predict(row: Row, accelerator: Accelerator) -> tuple[float, float]:
    """Seconds of one encode without its checksum and of one payload added, by the cost model."""
    codec = row.case.codec
    size = wire_bytes((row.numel,), (), codec)
    rate = rates(codec, accelerator, Calibration())
    hashed = size * rates(codec, accelerators()["cpu-core"], Calibration()).encode_s_per_byte
    encode = encode_time(row.numel, size, rate) - hashed
    added = decode_time(row.numel, size, codec, 1, rate) - row.numel * rate.decode_s_per_element
    return encode, added


@app.command()
def compare() -> None:
    """Print every row: what it took, what the model says, and the mean error."""
    for name, device in SOURCES.items():
        table = Table("codec", *("encode", "predicted", "error", "add one", "predicted", "error"), box=None)
        for column in table.columns[1:]:
            column.justify = "right"
        errors: list[tuple[float, float]] = []
        for row in rows_of((RESULTS / name).read_text()):
            cells: list[str] = [row.case.title]
            found = []
            for took, said in zip(
                (row.encode_s, row.decode_s), predict(row, accelerators()[device]), strict=True
            ):
                took *= row.threads
                found.append(said / took - 1)
                cells += [show(took, TIME), show(said, TIME), f"{said / took - 1:+.0%}"]
            errors.append((found[0], found[1]))
            table.add_row(*cells)
        console.print(f"\n{device}, from {name}")
        console.print(table)
        for what, of in zip(("encode", "add one"), zip(*errors, strict=True), strict=True):
            console.print(f"{what}: mean error {fmean(map(abs, of)):.0%}, worst {max(map(abs, of)):.0%}")


if __name__ == "__main__":
    run_app(app, "codec_cost")
