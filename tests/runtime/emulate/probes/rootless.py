"""Become user 65534 and run the rest of the command line as a program.

This machine's TUN device may be root's alone, so this process gets one for everybody in a mount
namespace of its own.
"""

import ctypes
import os
import stat
import sys

NOBODY = 65534
CLONE_NEWNS, MS_REC, MS_PRIVATE = 0x00020000, 0x4000, 0x40000

libc = ctypes.CDLL(None, use_errno=True)


def checked(result: int) -> None:
    if result:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


checked(libc.unshare(CLONE_NEWNS))
checked(libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None))
checked(libc.mount(b"tmpfs", b"/dev/net", b"tmpfs", 0, None))
os.umask(0)
os.mknod("/dev/net/tun", 0o666 | stat.S_IFCHR, os.makedev(10, 200))
os.setgroups([])
os.setresgid(NOBODY, NOBODY, NOBODY)
os.setresuid(NOBODY, NOBODY, NOBODY)
os.execv(sys.argv[1], sys.argv[1:])
