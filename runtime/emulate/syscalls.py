"""The few Linux calls that Python 3.11 lacks: namespaces, process control, ioctls of a TUN."""

from __future__ import annotations

import ctypes
import fcntl
import os
import signal
import socket
import struct

CLONE_NEWUSER = 0x10000000
CLONE_NEWNET = 0x40000000

_PR_SET_PDEATHSIG = 1
_PR_SET_TIMERSLACK = 29

_TUNSETIFF = 0x400454CA
_TUNSETOFFLOAD = 0x400454D0
_IFF_TUN, _IFF_NO_PI, _IFF_VNET_HDR = 0x0001, 0x1000, 0x4000
_TUN_F_CSUM, _TUN_F_TSO4 = 0x01, 0x02

_SIOCGIFFLAGS, _SIOCSIFFLAGS = 0x8913, 0x8914
_SIOCSIFADDR, _SIOCSIFNETMASK = 0x8916, 0x891C
_SIOCSIFMTU = 0x8922
_IFF_UP = 0x1

_libc = ctypes.CDLL(None, use_errno=True)


def _checked(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def unshare(flags: int) -> None:
    """Move the calling process into new namespaces."""
    _checked(_libc.unshare(flags), "unshare")


def setns(fd: int, kind: int) -> None:
    """Move the calling process into the namespace behind `fd`."""
    _checked(_libc.setns(fd, kind), "setns")


def die_with_parent(parent: int) -> None:
    """Be killed when the thread that started this process ends; exit if `parent` is gone."""
    _checked(_libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0), "prctl")
    if os.getppid() != parent:  # it died before the line above took effect
        os._exit(1)


def wake_precisely() -> None:
    """Let sleeps end on time: the kernel's default slack is 50 us."""
    _checked(_libc.prctl(_PR_SET_TIMERSLACK, 1, 0, 0, 0), "prctl")


def open_tun(interface: str, device: str = "/dev/net/tun") -> int:
    """A TUN device in this namespace that carries TCP superframes; it ends with its descriptor."""
    fd = os.open(device, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        flags = _IFF_TUN | _IFF_NO_PI | _IFF_VNET_HDR
        fcntl.ioctl(fd, _TUNSETIFF, struct.pack("16sH22x", interface.encode(), flags))
        fcntl.ioctl(fd, _TUNSETOFFLOAD, _TUN_F_CSUM | _TUN_F_TSO4)
    except OSError:
        os.close(fd)
        raise
    return fd


def bring_up(interface: str) -> None:
    """Set an interface up."""
    name = interface.encode()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        answer = fcntl.ioctl(control, _SIOCGIFFLAGS, struct.pack("16sH22x", name, 0))
        (flags,) = struct.unpack_from("H", answer, 16)
        fcntl.ioctl(control, _SIOCSIFFLAGS, struct.pack("16sH22x", name, flags | _IFF_UP))


def configure(interface: str, address: str, netmask: str, mtu: int) -> None:
    """Give an interface its address, mask and MTU, and set it up."""

    def of_address(text: str) -> bytes:
        return struct.pack("16sHH4s16x", name, socket.AF_INET, 0, socket.inet_aton(text))

    name = interface.encode()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        fcntl.ioctl(control, _SIOCSIFMTU, struct.pack("16si20x", name, mtu))
        fcntl.ioctl(control, _SIOCSIFADDR, of_address(address))
        fcntl.ioctl(control, _SIOCSIFNETMASK, of_address(netmask))
    bring_up(interface)
