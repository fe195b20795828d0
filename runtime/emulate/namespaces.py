"""Network namespaces with a TUN each: made by a short-lived process, held by descriptors."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from geosim.errors import RunError
from runtime.emulate.processes import helper

INTERFACE = "wan0"
SUBNET, PREFIX, NETMASK = "10.77.0.0", 24, "255.255.255.0"
MOST_SITES = 100  # their descriptors fit one message
_REMEDY = "train with `--wan none`, which needs none of this"


@dataclass(frozen=True)
class Namespaces:
    """Descriptors in the order of the sites; `user` owns them all, None where root made them."""

    addresses: tuple[str, ...]
    tuns: tuple[int, ...]
    networks: tuple[int, ...]
    user: int | None

    @property
    def inodes(self) -> list[int]:
        """What tells the network namespaces from all others."""
        return [os.stat(network).st_ino for network in self.networks]

    def close(self) -> None:
        """Let go of all of it."""
        for fd in (*self.tuns, *self.networks):
            os.close(fd)
        if self.user is not None:
            os.close(self.user)


def make(count: int, *, mtu: int, congestion_control: str | None, sysctls: Mapping[str, str]) -> Namespaces:
    """Make `count` namespaces with addresses 10.77.0.1 and up."""
    if not sys.platform.startswith("linux"):
        raise RunError(f"an emulated WAN needs Linux: {_REMEDY}")
    if not os.path.exists("/dev/net/tun"):
        raise RunError(f"an emulated WAN needs /dev/net/tun, which is missing: {_REMEDY}")
    addresses = tuple(f"10.77.0.{index + 1}" for index in range(count))
    request = {
        "sites": [{"address": address} for address in addresses],
        "interface": INTERFACE, "subnet": SUBNET, "prefix": PREFIX, "netmask": NETMASK,
        "mtu": mtu, "congestion_control": congestion_control, "sysctls": dict(sysctls),
    }  # fmt: skip
    ours, theirs = socket.socketpair()
    with ours:
        with theirs:
            builder = subprocess.Popen(helper("build", os.getpid()), stdin=theirs.fileno(), process_group=0)
        try:
            ours.sendall(json.dumps(request).encode() + b"\n")
            return _collect(ours, addresses)
        finally:
            builder.kill()
            builder.wait()


def _collect(control: socket.socket, addresses: tuple[str, ...]) -> Namespaces:
    tuns: list[int] = []
    networks: list[int] = []
    user: int | None = None
    try:
        while True:
            # One byte at a time: descriptors belong to the byte that they came with.
            kind, fds, _, _ = socket.recv_fds(control, 1, 2)
            if kind == b"n":
                tuns.append(fds[0])
                networks.append(fds[1])
            elif kind == b"u":
                user = fds[0]
            elif kind == b".":
                return Namespaces(addresses, tuple(tuns), tuple(networks), user)
            else:
                with control.makefile("r") as rest:
                    reason = rest.read() or "the process that makes namespaces failed"
                raise RunError(f"no emulated WAN: {reason}: {_REMEDY}")
    except BaseException:
        Namespaces((), tuple(tuns), tuple(networks), user).close()
        raise


def missing() -> str | None:
    """What this machine lacks for an emulated WAN, in one line; tries it, leaves nothing behind."""
    try:
        make(1, mtu=1500, congestion_control=None, sysctls={}).close()
    except RunError as error:
        return str(error)
    return None


def check_sites(sites: Sequence[str]) -> None:
    """Names that can stand in a link's name, and not too many of them."""
    if not sites or len(set(sites)) != len(sites) or len(sites) > MOST_SITES:
        raise RunError(f"sites {list(sites)!r}: one to {MOST_SITES} different names are needed")
    for site in sites:
        if "->" in site:
            raise RunError(f"site {site!r}: a name must not contain '->'")
