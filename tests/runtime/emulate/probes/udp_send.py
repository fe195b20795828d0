"""Send numbered UDP datagrams: address, port, count, payload bytes, seconds between two."""

import socket
import struct
import sys
import time

address, port, count, size = sys.argv[1], *map(int, sys.argv[2:5])
interval = float(sys.argv[5])
sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
sender.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 22)
started = time.monotonic()
for number in range(count):
    wait = started + number * interval - time.monotonic()
    if wait > 0:
        time.sleep(wait)
    stamp = struct.pack("!Id", number, time.monotonic())
    sender.sendto(stamp.ljust(size, b"\0"), (address, port))
