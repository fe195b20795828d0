"""The short-lived process that makes the namespaces and hands back their file descriptors.

Nothing has a name: a namespace lives as long as a descriptor or a process refers to it.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from pathlib import Path
from typing import Any

from runtime.emulate.netlink import set_congestion_control, set_transmit_queue
from runtime.emulate.syscalls import (
    CLONE_NEWNET,
    CLONE_NEWUSER,
    bring_up,
    configure,
    die_with_parent,
    open_tun,
    unshare,
)

# Senders leave whole windows in the device's queue before the relay wakes; none may be lost there.
_TRANSMIT_QUEUE_PACKETS = 8192


class _RefusedError(Exception):
    """What is missing, in words."""


def _enter_user_namespace() -> int:
    """Become the owner of a user namespace for the network namespaces; returns its descriptor."""
    user, group = os.geteuid(), os.getegid()
    unshare(CLONE_NEWUSER)
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
    Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
    return os.open("/proc/self/ns/user", os.O_RDONLY | os.O_CLOEXEC)


def _new_network_namespace(owned: int | None) -> int | None:
    """Unshare the network, by way of a user namespace where this process may not do it directly."""
    try:
        unshare(CLONE_NEWNET)
        return owned
    except OSError as direct:
        if owned is not None:
            raise _RefusedError(f"network namespaces are refused ({direct.strerror})") from direct
    try:
        owned = _enter_user_namespace()
        unshare(CLONE_NEWNET)
    except OSError as error:
        raise _RefusedError(
            f"network namespaces need root or user namespaces, and both are refused ({error.strerror})"
        ) from error
    return owned


def _write_sysctl(name: str, value: str) -> None:
    path = Path("/proc/sys") / name.replace(".", "/")
    try:
        path.write_text(value)
    except OSError as error:
        raise _RefusedError(f"sysctl {name} = {value!r} is refused ({error.strerror})") from error


def _set_up(site: dict[str, Any], config: dict[str, Any]) -> int:
    """Configure the namespace this process is in; returns the TUN's descriptor."""
    interface: str = config["interface"]
    try:
        tun = open_tun(interface)
    except OSError as error:
        raise _RefusedError(f"/dev/net/tun cannot be used ({error.strerror})") from error
    if os.path.exists("/proc/sys/net/ipv6/conf/all/disable_ipv6"):
        _write_sysctl("net.ipv6.conf.all.disable_ipv6", "1")  # no router solicitations on the links
    bring_up("lo")
    for name, value in config["sysctls"].items():
        _write_sysctl(name, value)
    address = site["address"]
    set_transmit_queue(interface, _TRANSMIT_QUEUE_PACKETS)
    configure(interface, address, config["netmask"], config["mtu"])
    algorithm = config["congestion_control"]
    if algorithm is not None:
        try:
            set_congestion_control(interface, config["subnet"], config["prefix"], address, algorithm)
        except OSError as error:
            has = Path("/proc/sys/net/ipv4/tcp_available_congestion_control").read_text().split()
            raise _RefusedError(
                f"congestion control {algorithm!r} is not available (this kernel has {', '.join(has)})"
            ) from error
    return tun


def main() -> None:
    """Answer a request, a line of JSON, with a message of descriptors per site, or with an error.

    The messages, told apart by their byte: `n` TUN and network namespace, `u` user namespace, `.`
    the end, `e` an error, whose words follow.
    """
    die_with_parent(int(sys.argv[1]))
    control = socket.socket(fileno=0)
    config = json.loads(control.makefile("r").readline())
    owner: int | None = None
    try:
        for site in config["sites"]:
            owner = _new_network_namespace(owner)
            tun = _set_up(site, config)
            space = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
            socket.send_fds(control, [b"n"], [tun, space])
            os.close(tun)
            os.close(space)
        if owner is not None:
            socket.send_fds(control, [b"u"], [owner])
        control.sendall(b".")
    except (_RefusedError, OSError) as error:
        control.sendall(b"e" + str(error).encode())
