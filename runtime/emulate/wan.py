"""The emulated WAN as its user sees it: start programs in sites, change links, read counters."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import threading
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from geosim.errors import RunError
from runtime.emulate.namespaces import INTERFACE, check_sites, make
from runtime.emulate.processes import helper, kill_inside
from runtime.emulate.spec import LinkSpec

_LEAST_MTU, _MOST_MTU = 576, 65535
_PATIENCE_S = 30.0  # the relay answers in milliseconds even on a busy machine


class EmulatedWan:
    """A network namespace a site, joined by directed links; a context manager.

    A pair without a link cannot talk. `congestion_control` holds for connections across the WAN
    (None: the machine's default), `sysctls` ("net.ipv4.tcp_wmem": "...") for every site. Nothing
    outlives `close` or the death of this process: namespaces have no names, and all that runs in
    them is killed.
    """

    interface = INTERFACE

    def __init__(
        self,
        sites: Sequence[str],
        links: Mapping[tuple[str, str], LinkSpec],
        *,
        mtu: int = 1500,
        seed: int = 0,
        congestion_control: str | None = None,
        sysctls: Mapping[str, str] | None = None,
    ) -> None:
        check_sites(sites)
        if not _LEAST_MTU <= mtu <= _MOST_MTU:
            raise RunError(f"mtu = {mtu}: must be {_LEAST_MTU} to {_MOST_MTU} bytes")
        self._index = {site: index for index, site in enumerate(sites)}
        for source, destination in links:
            self._check_link(source, destination)
        self._specs = dict(links)
        self._lock = threading.Lock()
        self._programs: list[subprocess.Popen[Any]] = []
        self._closed = False
        self._spaces = make(len(sites), mtu=mtu, congestion_control=congestion_control, sysctls=sysctls or {})
        self._inodes = self._spaces.inodes
        self._control, theirs = socket.socketpair()
        try:
            with theirs:
                self._relay = subprocess.Popen(
                    helper("relay", os.getpid()), stdin=theirs.fileno(), process_group=0
                )
            self._control.settimeout(_PATIENCE_S)
            self._answers = self._control.makefile("rb")
            self._hand_over(seed)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> EmulatedWan:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def address(self, site: str) -> str:
        """The IPv4 address of a site."""
        return self._spaces.addresses[self._site(site)]

    def popen(self, site: str, argv: Sequence[str], **popen_kwargs: Any) -> subprocess.Popen[Any]:
        """Start a program in a site, with `subprocess.Popen`'s arguments.

        It has a process group of its own and no standard input unless given one. It is killed when
        this process, or the thread that calls this, ends; so call from a thread that stays.
        """
        index = self._site(site)
        if self._closed:
            raise RunError("the emulated WAN is closed")
        network = self._spaces.networks[index]
        user = -1 if self._spaces.user is None else self._spaces.user
        kept = {network, *popen_kwargs.pop("pass_fds", ())} | ({user} - {-1})
        popen_kwargs.setdefault("stdin", subprocess.DEVNULL)
        if not popen_kwargs.get("start_new_session"):
            popen_kwargs.setdefault("process_group", 0)
        command = helper("enter", os.getpid(), user, network, *argv)
        program: subprocess.Popen[Any] = subprocess.Popen(command, pass_fds=tuple(kept), **popen_kwargs)
        self._programs.append(program)
        return program

    def counters(self) -> dict[str, dict[str, int]]:
        """By "a->b" what became of the traffic, and under "unrouted" what had no link."""
        answer: dict[str, dict[str, int]] = self._ask({"do": "counters"})
        return answer

    @property
    def works(self) -> bool:
        """Whether the relay still runs."""
        return self._relay.poll() is None

    def set_link(self, source: str, destination: str, **changes: Any) -> None:
        """Change fields of a link's spec; `up=False` drops all it holds and is offered."""
        self._check_link(source, destination)
        key = (source, destination)
        if key not in self._specs:
            raise RunError(f"there is no link {source}->{destination}")
        fields = {name: value for name, value in changes.items() if name != "up"}
        try:
            changed = replace(self._specs[key], **fields)  # refuses what a spec refuses
        except TypeError as error:
            raise RunError(f"link {source}->{destination}: {error}") from None
        self._ask({"do": "change", "link": f"{source}->{destination}", "changes": changes})
        self._specs[key] = changed

    def close(self) -> None:
        """Kill what runs in the sites, stop the relay, let go of the namespaces."""
        if self._closed:
            return
        self._closed = True
        for program in self._programs:
            program.poll()
        # By namespace for what they started, by handle for what has not entered yet.
        for program in self._programs:
            program.kill()
        kill_inside(self._inodes)
        for program in self._programs:
            program.wait()
        self._control.close()
        relay: subprocess.Popen[bytes] | None = getattr(self, "_relay", None)
        if relay is not None:
            self._answers.close()
            relay.kill()
            relay.wait()
        self._spaces.close()

    def _hand_over(self, seed: int) -> None:
        config = {
            "seed": seed,
            "addresses": self._spaces.addresses,
            "namespaces": self._inodes,
            "links": [
                {
                    "name": f"{source}->{destination}",
                    "from": self._index[source],
                    "to": self._index[destination],
                    "spec": asdict(spec),
                }
                for (source, destination), spec in self._specs.items()
            ],
        }
        socket.send_fds(self._control, [b"t"], list(self._spaces.tuns))
        self._control.sendall(json.dumps(config).encode() + b"\n")
        self._read_answer()

    def _site(self, site: str) -> int:
        if site not in self._index:
            raise RunError(f"site {site!r}: there are {', '.join(self._index)}")
        return self._index[site]

    def _check_link(self, source: str, destination: str) -> None:
        if self._site(source) == self._site(destination):
            raise RunError(f"link {source}->{destination}: a link joins two different sites")

    def _ask(self, request: dict[str, Any]) -> Any:
        with self._lock:
            if self._closed:
                raise RunError("the emulated WAN is closed")
            with contextlib.suppress(OSError):  # it is gone: the missing answer says so
                self._control.sendall(json.dumps(request).encode() + b"\n")
            return self._read_answer()

    def _read_answer(self) -> Any:
        try:
            line = self._answers.readline()
        except OSError:
            line = b""
        if not line:
            raise RunError(f"the WAN relay has stopped (exit status {self._relay.poll()})")
        return json.loads(line)
