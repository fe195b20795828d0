"""ICMP echo over a raw socket: address, count, seconds between two. Reports the round trips."""

import contextlib
import json
import os
import socket
import struct
import sys
import time

with contextlib.suppress(PermissionError):  # a busy machine must not blur what is measured
    os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
address, count, interval = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
raw = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
raw.settimeout(1.0)
identity = os.getpid() & 0xFFFF


def summed(data: bytes) -> int:
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    total = (total >> 16) + (total & 0xFFFF)
    return ~(total + (total >> 16)) & 0xFFFF


trips = []
for number in range(count):
    body = bytes(48)
    head = struct.pack("!BBHHH", 8, 0, 0, identity, number)
    head = struct.pack("!BBHHH", 8, 0, summed(head + body), identity, number)
    started = time.monotonic()
    raw.sendto(head + body, (address, 0))
    try:
        while True:
            packet = raw.recv(2048)
            icmp = packet[(packet[0] & 15) * 4 :]
            if icmp[0] == 0 and struct.unpack("!HH", icmp[4:8]) == (identity, number):
                trips.append(time.monotonic() - started)
                break
    except TimeoutError:
        pass
    time.sleep(interval)
print(json.dumps(trips))
