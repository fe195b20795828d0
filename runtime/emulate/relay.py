"""The process that joins the sites: takes packets from every TUN, writes each when its link says.

It is told over its standard input, a socket: descriptors first, then lines of JSON, each answered
by one. When its parent dies, however that comes, it kills what still runs in the sites and ends.
"""

from __future__ import annotations

import contextlib
import gc
import json
import math
import os
import select
import socket
import sys
import time
from typing import Any

from runtime.emulate.links import Link
from runtime.emulate.packets import VNET_BYTES
from runtime.emulate.processes import kill_inside
from runtime.emulate.spec import LinkSpec
from runtime.emulate.syscalls import wake_precisely

_READ_BYTES = 65536 + 64
_READS_A_TURN = 16  # then other sites and due deliveries get their turn
_EARLY_S = 40e-6  # deliver this much early and save a wake-up
_IPV4 = 4


class Relay:
    """All links of one emulated network."""

    def __init__(self, config: dict[str, Any], tuns: list[int]) -> None:
        now = time.monotonic()
        self.links: dict[str, Link] = {}
        self._unrouted = {"segments": 0, "bytes": 0}
        self._outputs: dict[Link, int] = {}
        # TUN -> destination address as in the packet -> link
        self.routes: dict[int, dict[bytes, Link]] = {tun: {} for tun in tuns}
        for entry in config["links"]:
            spec = dict(entry["spec"], trace=tuple(map(tuple, entry["spec"]["trace"])))
            link = Link(LinkSpec(**spec), f"{config['seed']}:{entry['name']}", now)
            self.links[entry["name"]] = link
            self._outputs[link] = tuns[entry["to"]]
            address = socket.inet_aton(config["addresses"][entry["to"]])
            self.routes[tuns[entry["from"]]][address] = link

    def answer(self, request: dict[str, Any]) -> Any:
        """Carry out one request of the parent."""
        if request["do"] == "counters":
            tallies: dict[str, Any] = {n: link.counters() for n, link in self.links.items()}
            return tallies | {"unrouted": dict(self._unrouted)}
        changes = request["changes"]
        if "trace" in changes:
            changes["trace"] = tuple(map(tuple, changes["trace"]))
        self.links[request["link"]].change(changes, time.monotonic())
        return "done"

    def read(self, tun: int, busy: set[Link]) -> None:
        """Take what a site sends."""
        routes = self.routes[tun]
        now = time.monotonic()
        for _ in range(_READS_A_TURN):
            try:
                packet = os.read(tun, _READ_BYTES)
            except BlockingIOError:
                return
            if packet[VNET_BYTES] >> 4 != _IPV4:
                continue
            link = routes.get(packet[VNET_BYTES + 16 : VNET_BYTES + 20])
            if link is None:
                self._unrouted["segments"] += 1
                self._unrouted["bytes"] += len(packet) - VNET_BYTES
            else:
                link.offer(packet, now)
                busy.add(link)

    def deliver(self, busy: set[Link]) -> float:
        """Write what is due, forget links that are idle; returns when the next delivery is due."""
        horizon = time.monotonic() + _EARLY_S
        soonest = math.inf
        idle = []
        for link in busy:
            if link.next_due() <= horizon:
                self._flush(link, horizon)
            due = link.next_due()
            if due < soonest:
                soonest = due
            if due == math.inf and link.empty():
                idle.append(link)
        busy.difference_update(idle)
        return soonest

    def _flush(self, link: Link, horizon: float) -> None:
        link.advance(horizon)
        wire = link.wire
        tun = self._outputs[link]
        while wire and wire[0][0] <= horizon:
            piece = wire.popleft()[1]
            try:
                os.writev(tun, piece[3])
                link.delivered(piece)
            except OSError:  # somebody set the far interface down
                link.undeliverable(piece)


def _serve(relay: Relay, control: socket.socket, parent: int) -> None:
    """Relay until the parent hangs up or dies."""
    busy: set[Link] = set()
    watched: list[int] = [*relay.routes, control.fileno(), parent]
    pending = b""
    due = math.inf
    while True:
        wait = None if due == math.inf else min(max(0.0, due - time.monotonic()), 3600.0)
        for fd in select.select(watched, (), (), wait)[0]:
            if fd in relay.routes:
                relay.read(fd, busy)
                continue
            if fd == parent:
                return
            received = control.recv(65536)
            if not received:
                return
            *lines, pending = (pending + received).split(b"\n")
            for line in lines:
                answer = relay.answer(json.loads(line))
                control.sendall(json.dumps(answer).encode() + b"\n")
                busy.update(relay.links.values())  # a change may have moved due times
        due = relay.deliver(busy)


def _take_precedence() -> None:
    """Wake on time beside training processes that fill every core: late deliveries look like delay."""
    try:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    except PermissionError:
        with contextlib.suppress(PermissionError):
            os.nice(-10)


def main() -> None:
    """Argument: the parent's process id."""
    parent_id = int(sys.argv[1])
    # Not PR_SET_PDEATHSIG: that fires when the creating *thread* ends, and leaves no time to kill
    # what runs inside.
    try:
        parent = os.pidfd_open(parent_id)
    except ProcessLookupError:
        return
    control = socket.socket(fileno=0)
    _, tuns, _, _ = socket.recv_fds(control, 1, 253)
    config = json.loads(control.makefile("r").readline())
    relay = Relay(config, list(tuns))
    wake_precisely()
    _take_precedence()
    gc.disable()  # nothing here makes cycles
    try:
        if os.getppid() == parent_id:
            control.sendall(b'"ready"\n')
            _serve(relay, control, parent)
    except ConnectionError:  # the parent left in the middle of an answer
        pass
    finally:
        kill_inside(config["namespaces"])
