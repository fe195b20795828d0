"""Make the fixtures that come from tools which run anywhere, over an emulated WAN of known truth.

    python -m tests.calibrate.make_fixtures ping|iperf3|faults     # needs iperf3, iputils-ping and busybox

Each group takes less than a minute. What it writes is committed; `fixtures/README.md` says what is in it.
"""

import signal
import subprocess
import sys
import time
from pathlib import Path

from runtime.emulate import EmulatedWan, LinkSpec

FIXTURES = Path(__file__).parent / "fixtures"
SITES = ("east", "west")

# Truths that the tests hold the readings against (tests/calibrate/truths.py says them once more in SI).
CLEAN = {
    ("east", "west"): LinkSpec(100 * 125e3, 0.020),
    ("west", "east"): LinkSpec(100 * 125e3, 0.020),
}
UNEVEN = {
    ("east", "west"): LinkSpec(200 * 125e3, 0.010, jitter_s=0.002, loss=0.002),
    ("west", "east"): LinkSpec(50 * 125e3, 0.010, jitter_s=0.002, loss=0.002),
}


def main() -> None:
    """Make one group."""
    groups = {"ping": pings, "iperf3": iperf3s, "faults": faults}
    if len(sys.argv) < 2 or sys.argv[1] not in groups:
        sys.exit(f"usage: python -m tests.calibrate.make_fixtures {'|'.join(groups)}")
    groups[sys.argv[1]](*sys.argv[2:])


def pings(inetutils: str = "") -> None:
    """`inetutils`: a path of GNU inetutils' ping, which Debian does not install beside iputils'."""
    with EmulatedWan(SITES, CLEAN) as wan:
        west = wan.address("west")
        _save(wan, "ping-iputils-clean.txt", f"ping -c 20 -i 0.2 {west}")
        _save(wan, "ping-iputils-quiet.txt", f"ping -q -c 20 -i 0.2 {west}")
        _save(wan, "ping-busybox-clean.txt", f"busybox ping -c 5 {west}")
        if inetutils:
            _save(wan, "ping-inetutils-clean.txt", f"{inetutils} -c 10 -i 0.2 {west}")
    with EmulatedWan(SITES, UNEVEN, seed=7) as wan:
        _save(wan, "ping-iputils-uneven.txt", f"ping -c 600 -i 0.02 {wan.address('west')}")


def iperf3s(*wanted: str) -> None:
    """Over both links: one way, back, both ways at once, streams, UDP below and above the capacity."""
    runs = {
        "clean": (CLEAN, {
            "forward": "-t 6", "reverse": "-t 6 -R", "bidir": "-t 6 --bidir", "streams": "-t 5 -P 4 -i 0.5",
            "cubic": "-t 6 -C cubic", "bbr": "-t 5 -C bbr", "window": "-t 4 -w 64K", "short": "-n 200K",
            "omit": "-t 5 -O 1", "udp": "-t 4 -u -b 50M", "udp-over": "-t 4 -u -b 150M",
        }),
        "uneven": (UNEVEN, {
            "forward": "-t 6 -P 8", "reverse": "-t 6 -P 8 -R", "udp": "-t 8 -u -b 20M", "one": "-t 6",
            "cubic": "-t 6 -C cubic",
        }),
    }  # fmt: skip
    for name, (links, cases) in runs.items():
        for case, options in cases.items():
            if wanted and f"{name}-{case}" not in wanted:
                continue
            with EmulatedWan(SITES, links, seed=3) as wan:
                server = _server(wan)
                _save(wan, f"iperf3-{name}-{case}.json", f"iperf3 -J -c {wan.address('west')} {options}")
                server.kill()


def faults() -> None:
    """What goes wrong: no server, a stop half way, a server's own report, no replies, no summary, doubles."""
    with EmulatedWan(SITES, CLEAN) as wan:
        west = wan.address("west")
        _save(wan, "iperf3-refused.json", f"iperf3 -J -c {west}")
        _save(wan, "ping-iputils-stopped.txt", f"ping -c 50 -i 0.2 {west}", stop_after_s=2.1)
        _save(wan, "ping-iputils-killed.txt", f"stdbuf -oL ping -c 50 -i 0.2 {west}", 2.1, signal.SIGKILL)
        server = _server(wan)
        _save(wan, "iperf3-stopped.json", f"iperf3 -J -c {west} -t 20", stop_after_s=3.6)
        server.kill()
        time.sleep(0.5)
        server = _server(wan, "-J", stdout=subprocess.PIPE)
        _run(wan, f"iperf3 -J -c {west} -t 3")
        (FIXTURES / "iperf3-server.json").write_text(server.communicate(timeout=30)[0])
        wan.set_link("east", "west", loss=1.0)
        _save(wan, "ping-iputils-silent.txt", f"ping -c 3 -i 0.2 -W 1 {west}")
        _save(wan, "ping-busybox-silent.txt", f"busybox ping -c 2 -W 1 {west}")


def _server(wan: EmulatedWan, *options: str, **popen: object) -> "subprocess.Popen[str]":
    server = wan.popen(
        "west", ["iperf3", "-s", "-1", *options], text=True, **{"stdout": subprocess.DEVNULL} | popen
    )
    time.sleep(0.8)
    return server


def _run(wan: EmulatedWan, command: str, stop_after_s: float | None = None, by: int = signal.SIGINT) -> str:
    """What a command prints in the site east; stopped by a signal after some time, if one is given."""
    done = wan.popen("east", command.split(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if stop_after_s is not None:
        time.sleep(stop_after_s)
        done.send_signal(by)
    return done.communicate(timeout=60)[0]


def _save(
    wan: EmulatedWan, name: str, command: str, stop_after_s: float | None = None, by: int = signal.SIGINT
) -> None:
    text = _run(wan, command, stop_after_s, by)
    (FIXTURES / name).write_text(text)
    print(f"{name}: {len(text)} characters of {command}", file=sys.stderr)


if __name__ == "__main__":
    main()
