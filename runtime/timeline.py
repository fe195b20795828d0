"""A run's trace from what its ranks took down: one clock, one process a site, one a direction of a link."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from geosim.errors import RunError, UsageError
from geosim.trace_events import FLOWS, LINK_RATE, Count, Span, Timeline, document, link, save
from runtime.trace import Pack

if TYPE_CHECKING:
    from runtime.sites import Sites

_PART_BYTES = 4 * 1024 * 1024  # torch's store takes values of up to 8 MiB
Edges = Mapping[tuple[str, str], float]
RING, ALL_REDUCE = "ring", "all-reduce"


def timeline(packs: Sequence[Pack], about: Mapping[str, str], ring: Edges | None = None) -> Timeline:
    """What all ranks of all sites took down.

    Clocks: ranks of one machine share its monotonic clock; machines are aligned by their wall clocks, so
    that what lies between machines is as exact as these agree.

    A link's flow runs from when its sender began to when its receiver had all of it; its rate is payload
    bytes over that time.

    Args:
        packs: each rank's `Recorder.pack()`.
        about: scenario and policy.
        ring: of plain data parallelism, payload bytes a step over each edge between sites.
    """
    shifts: dict[str, float] = {}
    for pack in packs:
        shifts.setdefault(pack["machine"], pack["wall_minus_monotonic_s"])
    shared = len(shifts) == 1
    said = {
        **about,
        "clock": "one monotonic clock" if shared else f"wall clocks of {len(shifts)} machines",
        **({"cut": "it ends before the run does"} if any(pack["cut"] for pack in packs) else {}),
    }
    out = Timeline("measured", said)
    flows: list[tuple[str, float, float, float]] = []  # link, start, end, bytes
    began = _sends(packs, shifts)
    steps: dict[int, list[tuple[float, float]]] = {}
    for pack in packs:
        site, shift = pack["site"], shifts[pack["machine"]]
        rank = f", rank {pack['rank']}" if pack["rank"] else ""
        for track, name, start, end, detail, count in pack["spans"]:
            out.spans.append(Span(site, f"{track}{rank}", name, start + shift, end + shift, detail, count))
        for name, at, value in pack["counts"]:
            out.counts.append(Count(site, f"{name}{rank}", at + shift, value))
        for sent, peer, stream, what, start, end, size in pack["transfers"]:
            if not sent:
                key = (peer, site, pack["rank"], stream, what)
                start = min(began.get(key, start + shift), end + shift)
                flows.append((link(peer, site), start, end + shift, size))
                out.spans.append(Span(link(peer, site), FLOWS, "flow", start, end + shift, f"{what}{rank}"))
        for step, start, end in pack["reductions"]:
            steps.setdefault(step, []).append((start + shift, end + shift))
    for step, times in steps.items():
        start, end = min(t[0] for t in times), max(t[1] for t in times)
        out.spans.append(Span(RING, ALL_REDUCE, ALL_REDUCE, start, end, f"step {step}"))
        flows += [(link(*edge), start, end, size) for edge, size in (ring or {}).items()]
    out.counts += _rates(flows)
    return out


def write(path: Path, packs: Sequence[Pack], about: Mapping[str, str], ring: Edges | None = None) -> None:
    """Write the trace of a run.

    Raises:
        UsageError: if the file cannot be written.
    """
    save(path, document(timeline(packs, about, ring)))


def collect(sites: Sites, pack: Pack, timeout_s: float) -> list[Pack] | None:
    """All ranks' packs at the first site's rank 0, over the sites' store; None elsewhere.

    Raises:
        RunError: naming the rank whose pack does not come within `timeout_s`.
    """
    mine = zlib.compress(json.dumps(pack).encode())
    everyone = sites.everyone
    if len(everyone) == 1:
        return [pack]
    store = sites.store("trace")
    if (sites.name, sites.rank) != everyone[0]:
        parts = [mine[at : at + _PART_BYTES] for at in range(0, len(mine), _PART_BYTES)]
        key = f"{sites.name}/{sites.rank}"
        for number, part in enumerate(parts):
            store.set(f"{key}/{number}", part)  # type: ignore[arg-type]  # the stub knows text only
        store.set(f"{key}/parts", str(len(parts)))
        store.check([f"{key}/parts"])  # an answer: all before it has arrived
        return None
    packs = [pack]
    for site, rank in everyone[1:]:
        key = f"{site}/{rank}"
        try:
            store.wait([f"{key}/parts"], timedelta(seconds=timeout_s))
            count = int(store.get(f"{key}/parts"))
            packs.append(json.loads(zlib.decompress(b"".join(store.get(f"{key}/{n}") for n in range(count)))))
        except RuntimeError as error:
            why = str(error).strip().split("\n")[0][:200]
            raise RunError(
                f"--trace: site '{site}' rank {rank} did not send what it took down ({why})"
            ) from None
    return packs


def check_file(option: str, path: Path) -> None:
    """Refuse a file that cannot be written before the work starts.

    Raises:
        UsageError: naming the option.
    """
    if path.is_dir():
        raise UsageError(f"{option} {path}: is a folder: name a file")
    there = path.exists()
    try:
        with path.open("a"):
            pass
        if not there:
            path.unlink()
    except OSError as error:
        raise UsageError(f"{option} {path}: cannot write: {error.strerror}") from None


def _sends(packs: Sequence[Pack], shifts: Mapping[str, float]) -> dict[tuple[str, str, int, int, str], float]:
    """When each transfer left, by source, target, rank, stream and round."""
    return {
        (pack["site"], peer, pack["rank"], stream, what): start + shifts[pack["machine"]]
        for pack in packs
        for sent, peer, stream, what, start, _, _ in pack["transfers"]
        if sent
    }


def _rates(flows: Sequence[tuple[str, float, float, float]]) -> list[Count]:
    """What flows together make of each link's rate, Mbit/s, as it changes."""
    changes: dict[str, dict[float, float]] = {}
    for name, start, end, size in flows:
        if end > start:
            rate = 8e-6 * size / (end - start)
            mine = changes.setdefault(name, {})
            mine[start] = mine.get(start, 0.0) + rate
            mine[end] = mine.get(end, 0.0) - rate
    out = []
    for name, mine in changes.items():
        rate = 0.0
        for at in sorted(mine):
            rate += mine[at]
            out.append(Count(name, LINK_RATE, at, max(0.0, round(rate, 9))))
    return out
