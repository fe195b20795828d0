"""Two netlink messages, for what the older calls on interfaces cannot say or refuse to users."""

from __future__ import annotations

import os
import socket
import struct

_RTM_NEWLINK, _RTM_NEWROUTE = 16, 24
_NLM_F_REQUEST, _NLM_F_ACK, _NLM_F_REPLACE, _NLM_F_CREATE = 0x1, 0x4, 0x100, 0x400
_NLMSG_ERROR = 2
_IFLA_TXQLEN = 13
_RT_TABLE_MAIN, _RTPROT_KERNEL, _RT_SCOPE_LINK, _RTN_UNICAST = 254, 2, 253, 1
_RTA_DST, _RTA_OIF, _RTA_PREFSRC, _RTA_METRICS = 1, 4, 7, 8
_RTAX_CC_ALGO = 16


def _attribute(kind: int, value: bytes) -> bytes:
    return struct.pack("HH", 4 + len(value), kind) + value + b"\0" * (-len(value) % 4)


def _request(kind: int, flags: int, body: bytes) -> None:
    flags |= _NLM_F_REQUEST | _NLM_F_ACK
    header = struct.pack("IHHII", 16 + len(body), kind, flags, 1, 0)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as netlink:
        netlink.send(header + body)
        answer = netlink.recv(65536)
    (kind,) = struct.unpack_from("H", answer, 4)
    (error,) = struct.unpack_from("i", answer, 16)
    if kind == _NLMSG_ERROR and error:
        raise OSError(-error, os.strerror(-error))


def set_transmit_queue(interface: str, packets: int) -> None:
    """How many packets an interface holds until somebody takes them."""
    link = struct.pack("BxHiII", socket.AF_UNSPEC, 0, socket.if_nametoindex(interface), 0, 0)
    _request(_RTM_NEWLINK, 0, link + _attribute(_IFLA_TXQLEN, struct.pack("I", packets)))


def set_congestion_control(interface: str, subnet: str, prefix: int, address: str, name: str) -> None:
    """Make connections by this interface to its subnet use the congestion control `name`.

    The route's attribute is used, not the sysctl: a namespace may take as its default only
    algorithms that the host allows to every process; a route may name any that the kernel has.
    """
    route = struct.pack(
        "BBBBBBBBI",
        socket.AF_INET, prefix, 0, 0,
        _RT_TABLE_MAIN, _RTPROT_KERNEL, _RT_SCOPE_LINK, _RTN_UNICAST, 0,
    )  # fmt: skip
    route += _attribute(_RTA_DST, socket.inet_aton(subnet))
    route += _attribute(_RTA_OIF, struct.pack("I", socket.if_nametoindex(interface)))
    route += _attribute(_RTA_PREFSRC, socket.inet_aton(address))
    route += _attribute(_RTA_METRICS, _attribute(_RTAX_CC_ALGO, name.encode() + b"\0"))
    _request(_RTM_NEWROUTE, _NLM_F_REPLACE | _NLM_F_CREATE, route)
