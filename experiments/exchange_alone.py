"""Bulk transfers over the emulated WAN with no training around them: what TCP leaves of a link.

    python -m experiments.exchange_alone            # 8 combinations, 4 minutes

Both ends send at once (as an exchange does) or one alone, on plain sockets, after a second of silence each
time. The share is that of the payload rate which a transfer reaches on average; `streaming` leaves out
the ramp by taking the difference between two sizes. `geosim.cost.transport` sums this up in one constant.
"""

import json
import subprocess
import sys
import threading
import time
from socket import create_connection, create_server, socket
from statistics import median
from typing import Any

from rich.table import Table

from experiments.console import console
from runtime.emulate import EmulatedWan, LinkSpec

PORT = 6100
GAP_S = 1.0
REPEATS = 4
PAYLOAD_SHARE = 1448 / 1500
CASES = [
    (mbit, rtt_ms, flows, algorithm, two_way)
    for mbit, rtt_ms in ((100, 40), (200, 40))
    for flows, algorithm, two_way in (
        (2, "cubic", True),
        (8, "cubic", True),
        (2, "cubic", False),
        (2, "bbr", True),
    )
]


def main() -> None:
    """Measure every case and print a table."""
    table = Table(box=None, pad_edge=False)
    for head in ("link", "RTT", "flows", "", "ways", "small", "large", "share", "streaming"):
        table.add_column(head, justify="right")
    for mbit, rtt_ms, flows, algorithm, two_way in CASES:
        rate = mbit * 125e3 * PAYLOAD_SHARE
        small, large = int(rate * 0.3), int(rate * 1.0)
        times = [measure(mbit, rtt_ms, flows, algorithm, two_way, size) for size in (small, large)]
        share = large / rate / (times[1] - rtt_ms / 2e3)
        streaming = (large - small) / rate / (times[1] - times[0])
        row = (f"{mbit} Mbit/s", f"{rtt_ms} ms", flows, algorithm, "both" if two_way else "one")
        shown = [f"{1e3 * t:.0f} ms" for t in times]
        table.add_row(*map(str, row), *shown, f"{share:.2f}", f"{streaming:.2f}")
        print(*row, *shown, f"{share:.2f} {streaming:.2f}", file=sys.stderr, flush=True)
    console.print(table)


def measure(mbit: float, rtt_ms: float, flows: int, algorithm: str, two_way: bool, size: int) -> float:
    """Median seconds from the start until the last receiver has everything."""
    link = LinkSpec(mbit * 125e3, rtt_ms / 2e3)
    with EmulatedWan(["a", "b"], {("a", "b"): link, ("b", "a"): link}, congestion_control=algorithm) as wan:
        start = time.monotonic() + 2.0
        back = size if two_way else 0
        ends = [_end(wan, "a", "b", flows, size, back, start), _end(wan, "b", "a", flows, back, size, start)]
        times = [json.loads(end.communicate(timeout=300)[0]) for end in ends]
    return median(max(pair) for pair in zip(*times, strict=True))


def _end(wan: EmulatedWan, site: str, peer: str, flows: int, sends: int, receives: int, start: float) -> Any:
    settings = {
        "own": wan.address(site),
        "peer": wan.address(peer),
        "listens": site == "a",
        "flows": flows,
        "sends": sends,
        "receives": receives,
        "start": start,
    }
    argv = [sys.executable, "-m", "experiments.exchange_alone", json.dumps(settings)]
    return wan.popen(site, argv, stdout=subprocess.PIPE, text=True)


def end(own: str, peer: str, listens: bool, flows: int, sends: int, receives: int, start: float) -> None:
    """One site's side: print the seconds that each round took here."""
    if listens:
        server = create_server((own, PORT))
        connections = [server.accept()[0] for _ in range(flows)]
    else:
        connections = [_connect(peer) for _ in range(flows)]
    times = []
    for _ in range(REPEATS + 1):
        time.sleep(max(0.0, start - time.monotonic()))
        threads = [threading.Thread(target=_receive, args=(c, receives // flows)) for c in connections]
        threads += [threading.Thread(target=c.sendall, args=(bytes(sends // flows),)) for c in connections]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        times.append(time.monotonic() - start)
        start += GAP_S + 2.2
    print(json.dumps(times[1:]))


def _connect(peer: str) -> socket:
    deadline = time.monotonic() + 10
    while True:
        try:
            return create_connection((peer, PORT), timeout=60)
        except ConnectionRefusedError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def _receive(connection: socket, count: int) -> None:
    buffer = bytearray(1 << 20)
    while count > 0:
        got = connection.recv_into(buffer, min(count, len(buffer)))
        if not got:
            raise ConnectionError("the other end left")
        count -= got


if __name__ == "__main__":
    if len(sys.argv) > 1:
        end(**json.loads(sys.argv[1]))
    else:
        main()
