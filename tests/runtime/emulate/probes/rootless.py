"""Become user 65534 and run the rest of the command line as a program.

The TUN device may be root's alone, and so may be a folder above the tree. So this process gets a device for
everybody, and the tree under /mnt, in a mount namespace of its own.
"""

import ctypes
import os
import stat
import sys
from pathlib import Path

NOBODY = 65534
CLONE_NEWNS, MS_BIND, MS_REC, MS_PRIVATE = 0x00020000, 0x1000, 0x4000, 0x40000
ROOT, SHOWN = str(Path(__file__).resolve().parents[4]), "/mnt"

libc = ctypes.CDLL(None, use_errno=True)


def checked(result: int) -> None:
    if result:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


checked(libc.unshare(CLONE_NEWNS))
checked(libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None))
checked(libc.mount(b"tmpfs", b"/dev/net", b"tmpfs", 0, None))
checked(libc.mount(ROOT.encode(), SHOWN.encode(), None, MS_BIND, None))
os.umask(0)
os.mknod("/dev/net/tun", 0o666 | stat.S_IFCHR, os.makedev(10, 200))
os.setgroups([])
os.setresgid(NOBODY, NOBODY, NOBODY)
os.setresuid(NOBODY, NOBODY, NOBODY)
arguments = [argument.replace(ROOT, SHOWN) for argument in sys.argv[1:]]
os.chdir("/")
os.execv(arguments[0], arguments)
