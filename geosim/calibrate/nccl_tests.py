"""Text output of nccl-tests: one tier of a site's fabric, from how long collectives of each size took.

One node fixes what joins accelerators inside it; several nodes fix what joins nodes. Both come from
`fabric_fit`, so that geosim's collectives take as long as these. All headers from NCCL 2.4's time
(`error`, no root) to nccl-tests 2.20 are known; what MPI or Slurm put before each line is dropped.
"""

import re
from collections import Counter
from dataclasses import dataclass

from geosim.calibrate.fabric_fit import Fit, Measured, fit
from geosim.calibrate.reading import Fact, Reading, Unknown, Value
from geosim.calibrate.source import Source
from geosim.errors import UsageError
from geosim.units import BANDWIDTH, SIZE, TIME, show

_FITS = 0.15  # the bar that the model of NCCL is held to (papers/nccl)
COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter")
_PREFIX = re.compile(r"^(?:\[[\d,]+\]<std\w+>:\s?|\s*\d+: )")  # mpirun --tag-output, srun --label
_RANK = re.compile(r"^#\s+Rank\s+(\d+)\s.*?\bPid\s+\d+ on\s+(\S+)\s+device\s+\d+ \[[\w:.]+\] (.+?)\s*$")
_NUMBER = r"[-+.\deE]+"
_ROW = re.compile(
    rf"^\s*(\d+)\s+(\d+)\s+([a-z]\w*)\s+(\w+)(?:\s+-?\d+)?\s+({_NUMBER})\s+({_NUMBER})\s+({_NUMBER})\s+(\S+)"
    rf"(?:\s+({_NUMBER})\s+({_NUMBER})\s+({_NUMBER})\s+(\S+))?\s*$"
)
_STARTING = re.compile(r"^# Collective test starting: (\w+?)_perf", re.MULTILINE)
_VERSION = re.compile(r"^# nccl-tests version (\S+)", re.MULTILINE)
_LIBRARY = re.compile(r"NCCL version ([\d.]+)")
_WRONG = re.compile(r"^# Out of bounds values : (\d+)", re.MULTILINE)
_MARK = re.compile(
    r"^#? ?# nThread \d+ nGpus \d+ minBytes|out-of-place +in-place|^# nccl-tests version", re.MULTILINE
)


@dataclass(frozen=True)
class _Row:
    """A size in bytes, seconds, and bus bandwidth over algorithm bandwidth (0 where both are)."""

    size_bytes: float
    time_s: float
    ratio: float
    busbw_bytes_per_s: float


def recognise(source: Source) -> bool:
    """Whether a file is of nccl-tests."""
    return bool(_MARK.search(_plain(source.text[:1_000_000])))


def read(source: Source) -> Reading:
    """Bandwidth and latency of a tier.

    Raises:
        UsageError: another collective, wrong results, one rank alone, no rows or no devices: one line.
    """
    text = _plain(source.text)
    if (
        len(re.findall(r"^# Avg bus bandwidth", text, re.MULTILINE)) > 1
        or len(set(_STARTING.findall(text))) > 1
    ):
        raise UsageError(f"{source.name}: holds several runs of nccl-tests: give each a file of its own")
    wrong = _WRONG.search(text)
    if wrong is not None and int(wrong[1]):
        raise UsageError(f"{source.name}: {wrong[1]} values out of bounds: the run computed wrong results")
    rows = _rows(source.name, text)
    nodes, per_node, device = _devices(source.name, text)
    collective = _collective(source.name, text, rows, nodes * per_node)
    found = fit(Measured(collective, nodes, per_node, device, tuple((r.size_bytes, r.time_s) for r in rows)))
    tier = "intra_node" if nodes == 1 else "inter_node"
    version = _VERSION.search(text)
    return Reading(
        "nccl-tests",
        source.name,
        version[1] if version else "not said",
        _values(found, tier, nodes * per_node),
        _facts(text, rows, collective, nodes, per_node, device),
        _unknown(text, rows, found, nodes, per_node, device),
    )


def _plain(text: str) -> str:
    return "\n".join(_PREFIX.sub("", line).strip("\r") for line in text.split("\n"))


def _rows(name: str, text: str) -> list[_Row]:
    rows = []
    for line in text.split("\n"):
        match = _ROW.match(line)
        if match is None:
            continue
        size, *cells = match[1], *match.groups()[4:]
        # In place where it was run, as training reduces its gradients.
        time, algorithm, bus, wrong = cells[4:] if cells[4] is not None else cells[:4]
        if re.fullmatch(r"[1-9]\d*", wrong):
            raise UsageError(
                f"{name}: size {size[:20]}: {wrong[:20]} wrong values: the run computed wrong results"
            )
        try:
            row = float(size), float(time) * 1e-6, float(algorithm), float(bus)
        except (ValueError, OverflowError):
            raise UsageError(f"{name}: '{line.strip()[:60]}': not a row of nccl-tests") from None
        if not (row[0] < 1e18 and 0 < row[1] < 1e6 and 0 <= row[2] < 1e6 and 0 <= row[3] < 1e6):
            raise UsageError(f"{name}: '{line.strip()[:60]}': time or bandwidth is not one of a machine")
        if row[0] > 0:
            rows.append(_Row(row[0], row[1], row[3] / row[2] if row[2] else 0.0, 1e9 * row[3]))
    if not rows:
        raise UsageError(f"{name}: no row of results: the run ended before it measured anything")
    return sorted(rows, key=lambda row: row.size_bytes)


def _devices(name: str, text: str) -> tuple[int, int, str]:
    """Nodes, accelerators in each, and what they are."""
    ranks = [m for m in map(_RANK.match, text.split("\n")) if m is not None]
    if not ranks:
        raise UsageError(
            f"{name}: no '# Rank ... device' lines: keep the whole output, they say what ran where"
        )
    if len(ranks) > 1 and all(rank[1] == "0" for rank in ranks):
        raise UsageError(f"{name}: every rank is rank 0: each ran alone (build nccl-tests with MPI=1)")
    numbers = sorted({int(rank[1][:9]) for rank in ranks})
    hosts = Counter(rank[2] for rank in ranks)
    if len(numbers) != len(ranks) or numbers != list(range(len(ranks))) or len(set(hosts.values())) != 1:
        raise UsageError(
            f"{name}: {len(ranks)} lines of '# Rank ... device' on {len(hosts)} hosts: "
            "ranks are missing, or not the same number a host"
        )
    return len(hosts), len(ranks) // len(hosts), ranks[0][3].strip()[:60]


def _collective(name: str, text: str, rows: list[_Row], ranks: int) -> str:
    """By its name, or in older versions by what bus bandwidth is over algorithm bandwidth."""
    said = _STARTING.search(text)
    if said is not None:
        if said[1] not in COLLECTIVES:
            raise UsageError(f"{name}: {said[1]}_perf is not read: use {', '.join(COLLECTIVES)}")
        return said[1]
    ratio = rows[-1].ratio
    share = (ranks - 1) / ranks
    for collective, expected in (("all_reduce", 2 * share), ("all_gather", share)):
        if abs(ratio - expected) < 0.03 * max(expected, 0.1) and ranks > 1:
            return collective
    if ranks == 1 or ratio == 0:
        raise UsageError(f"{name}: one rank alone, or no bandwidth: nothing was exchanged")
    raise UsageError(
        f"{name}: busbw / algbw = {ratio:.3g} over {ranks} ranks: not one of {', '.join(COLLECTIVES)}"
    )


def _values(found: Fit, tier: str, ranks: int) -> tuple[Value, ...]:
    laws = {"nccl": "NCCL's constants", "ring": "a plain ring"}
    values = []
    if found.bandwidth_bytes_per_s is not None:
        note = f"an accelerator and direction, by {laws[found.law]} over {ranks} ranks"
        note += ", which is not what limits" if found.at_least else ""
        note += f"; off by {100 * found.error:.2g} % on average"
        values.append(
            Value(
                f"fabric.{tier}.bandwidth",
                found.bandwidth_bytes_per_s,
                BANDWIDTH,
                note,
                at_least=found.at_least,
                law=found.law,
            )
        )
    if found.latency_s is not None:
        beyond = " beyond NCCL's own" if found.law == "nccl" else ""
        note = f"of a message{beyond}, from sizes up to 16 KiB"
        values.append(Value(f"fabric.{tier}.latency", found.latency_s, TIME, note, law=found.law))
    return tuple(values)


def _facts(
    text: str, rows: list[_Row], collective: str, nodes: int, per_node: int, device: str
) -> tuple[Fact, ...]:
    best = max(rows, key=lambda row: row.busbw_bytes_per_s)
    library = _LIBRARY.search(text)
    facts = [
        Fact("ranks", f"{nodes} x {per_node}", f"{device}{f', NCCL {library[1]}' if library else ''}"),
        Fact(
            f"{collective} busbw",
            f"{best.busbw_bytes_per_s / 1e9:.4g} GB/s",
            f"the best, at {show(best.size_bytes, SIZE)}",
        ),
        Fact(
            f"{collective} time",
            show(rows[0].time_s, TIME),
            f"of the smallest, {show(rows[0].size_bytes, SIZE)}",
        ),
    ]
    return tuple(facts)


def _unknown(
    text: str, rows: list[_Row], found: Fit, nodes: int, per_node: int, device: str
) -> tuple[Unknown, ...]:
    out = []
    if found.bandwidth_bytes_per_s is None:
        out.append(Unknown(f"bandwidth: the largest size is {show(rows[-1].size_bytes, SIZE)} (-e 1G tells)"))
    if found.latency_s is None:
        out.append(Unknown(f"latency: the smallest size is {show(rows[0].size_bytes, SIZE)} (-b 8 tells)"))
    if nodes > 1 and per_node > 1:
        law = found.law == "nccl"
        inside = f"taken as {show(found.inside_bytes_per_s, BANDWIDTH)}" if law else "taken as no limit"
        said = f"what joins accelerators inside a node: {inside} (a run in one node tells)"
        out.append(Unknown(said, ("fabric.intra_node.bandwidth",)))
    if nodes == 1:
        said = "what joins nodes (a run over two nodes tells)"
        out.append(Unknown(said, ("fabric.inter_node.bandwidth",)))
    if found.law == "ring":
        said = "geosim has its constants over NVLink; a ring stands in"
        out.append(Unknown(f"what NCCL makes of {device}: {said}"))
    if found.error > _FITS:
        mean, worst = (f"{100 * error:.2g} %" for error in (found.error, found.worst))
        out.append(Unknown(f"all of the curve: the law is off by {mean} on average, {worst} at worst"))
    if not re.search(r"^# Avg bus bandwidth", text, re.MULTILINE):
        out.append(Unknown("what came after the last row: the output stops there"))
    return tuple(out)
