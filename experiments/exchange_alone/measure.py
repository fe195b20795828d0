"""One point measured: two processes in two namespaces, told when to start by this one."""

import json
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from statistics import fmean, median
from typing import Any

from experiments.exchange_alone.grid import Point
from runtime.emulate import EmulatedWan, LinkSpec

_LEAD_S = 0.15  # from telling both ends until they start; part of the silence


def measure(point: Point, progress: Callable[[int, int], None], trace: bool = False) -> dict[str, Any]:
    """Exchanges of one point, one after another.

    Args:
        point: what to measure.
        progress: called with (repeat, repeats).
        trace: whether to sample every connection's window, a thousand times a second.

    Returns:
        The point's fields, `seconds` of each repeat (the later receiver's), their median, mean and spread
        (half of the distance between the quartiles over the median), what TCP said after each, and what those
        before took.
    """
    link = LinkSpec(point.rate_bytes_per_s, point.rtt_s / 2, loss=point.loss)
    with EmulatedWan(
        ["a", "b"], {("a", "b"): link, ("b", "a"): link},
        congestion_control=point.algorithm, sysctls={"net.ipv4.tcp_no_metrics_save": "1"},
    ) as wan:  # fmt: skip
        ends = [_start(wan, point, trace, listens) for listens in (True, False)]
        for end in ends:
            _answer(end)
        _ask(ends, {"do": "connect"})
        for end in ends:
            _answer(end)
        _ask(ends, {"do": "ping"})
        ping = max(_answer(end) for end in ends)
        sets = [_set(ends, point, i, progress) for i in range(point.sets)]
        for end in ends:
            end.stdin.close()
            end.wait(timeout=10)
    skip = 0 if point.fresh else point.before
    used = [pair for rows in sets for pair in rows[skip:]]
    seconds = [max(side["seconds"] for side in pair) for pair in used]
    return {
        **asdict(point),
        "name": point.name,
        "sets": point.sets,
        "seconds": seconds,
        "median_s": median(of_sets(seconds, point.sets)),
        "mean_s": fmean(seconds),
        "spread": _spread(seconds),
        "ping_s": ping,
        "before_s": [[max(side["seconds"] for side in pair) for pair in rows[:skip]] for rows in sets],
        "sides": [[side["seconds"] for side in pair] for pair in used],
        "began_s": [[side["began"] for side in pair] for pair in used],
        "retransmits": [[side["retransmits"] for side in pair] for pair in used],
        "cwnd": [[side["cwnd"] for side in pair] for pair in used],
        "ssthresh": [[side["ssthresh"] for side in pair] for pair in used],
        **({"trace": [[side["trace"] for side in pair] for rows in sets for pair in rows]} if trace else {}),
    }


def of_sets(seconds: list[float], sets: int) -> list[float]:
    """The median of each set of connections."""
    each = len(seconds) // sets
    return [median(seconds[i * each : (i + 1) * each]) for i in range(sets)]


def _set(
    ends: list[Any], point: Point, number: int, progress: Callable[[int, int], None]
) -> list[list[dict[str, Any]]]:
    """Exchanges on connections of their own each, or, of idle points, on one set after those before."""
    count = point.repeats + (0 if point.fresh else point.before)
    rows = []
    for k in range(count):
        progress(number * count + k, point.sets * count)
        if point.fresh or k == 0:
            _ask(ends, {"do": "connect"})
            for end in ends:
                _answer(end)
            time.sleep(2 * point.rtt_s)  # so that the last of the handshakes is over
        start = time.monotonic() + max(point.gap_s, _LEAD_S if point.fresh or k == 0 else 0.0)
        _ask(ends, {"do": "exchange", "start": start})
        rows.append([_answer(end) for end in ends])
    return rows


def _start(wan: EmulatedWan, point: Point, trace: bool, listens: bool) -> Any:
    site, peer = ("a", "b") if listens else ("b", "a")
    settings = {
        "own": wan.address(site),
        "peer": wan.address(peer),
        "listens": listens,
        "flows": point.flows,
        "sends": point.size_bytes if point.both or listens else 0,
        "receives": point.size_bytes if point.both or not listens else 0,
        "carrier": point.carrier,
        "trace": trace,
    }
    argv = [sys.executable, "-m", "experiments.exchange_alone.end", json.dumps(settings)]
    return wan.popen(site, argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def _ask(ends: list[Any], request: dict[str, Any]) -> None:
    for end in ends:
        end.stdin.write(json.dumps(request) + "\n")
        end.stdin.flush()


def _answer(end: Any) -> Any:
    line = end.stdout.readline()
    if not line:
        raise RuntimeError(f"an end of the exchange left with exit status {end.wait()}")
    return json.loads(line)


def _spread(values: list[float]) -> float:
    ordered = sorted(values)
    n = len(ordered)
    return (ordered[(3 * n) // 4 if n > 3 else -1] - ordered[n // 4 if n > 3 else 0]) / 2 / median(ordered)
