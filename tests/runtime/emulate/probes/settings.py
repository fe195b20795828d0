"""Print a sysctl and the MTU as a program inside a site sees them: interface."""

import fcntl
import socket
import struct
import sys
from pathlib import Path

SIOCGIFMTU = 0x8921
request = struct.pack("16si20x", sys.argv[1].encode(), 0)
answer = fcntl.ioctl(socket.socket(), SIOCGIFMTU, request)
idle = Path("/proc/sys/net/ipv4/tcp_slow_start_after_idle").read_text().strip()
print(idle, struct.unpack_from("i", answer, 16)[0])
