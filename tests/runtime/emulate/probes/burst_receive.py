"""Take transfers off one connection, answer each with its duration here: address, port."""

import json
import socket
import struct
import sys
import time

server = socket.create_server((sys.argv[1], int(sys.argv[2])))
print("ready", flush=True)
connection, _ = server.accept()
bursts = []
while first := connection.recv(1 << 18):
    started = time.monotonic()
    (size,) = struct.unpack_from("!I", first)
    steps = [(0.0, len(first))]
    left = size - len(first)
    while left:
        piece = connection.recv(1 << 18)
        left -= len(piece)
        steps.append((time.monotonic() - started, len(piece)))
    connection.sendall(struct.pack("!d", time.monotonic() - started))
    bursts.append(steps)
print(json.dumps(bursts))
