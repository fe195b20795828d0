"""Collect numbered UDP datagrams: address, port, seconds of silence to end on."""

import contextlib
import json
import os
import socket
import struct
import sys
import time

with contextlib.suppress(PermissionError):  # a busy machine must not blur what is measured
    os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
# The forced variant passes the machine's limit, and needs a privilege that not every run has.
for option in (33, socket.SO_RCVBUF):  # 33 is SO_RCVBUFFORCE
    try:
        receiver.setsockopt(socket.SOL_SOCKET, option, 1 << 25)
        break
    except PermissionError:
        continue
receiver.bind((sys.argv[1], int(sys.argv[2])))
print("ready", flush=True)
receiver.settimeout(10.0)
arrivals = []
while True:
    try:
        datagram = receiver.recv(65536)
    except TimeoutError:
        break
    number, sent = struct.unpack_from("!Id", datagram)
    arrivals.append((number, sent, time.monotonic()))
    receiver.settimeout(float(sys.argv[3]))
print(json.dumps(arrivals))
