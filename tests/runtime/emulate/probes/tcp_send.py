"""Send seeded bytes over one TCP connection: address, port, byte count, seed."""

import hashlib
import json
import random
import socket
import sys
import time

address, port, count, seed = sys.argv[1], *map(int, sys.argv[2:5])
block = random.Random(seed).randbytes(1 << 20)
digest = hashlib.sha256()
connection = socket.create_connection((address, port), timeout=60)
algorithm = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16)
started = time.monotonic()
left = count
while left:
    piece = block[: min(left, len(block))]
    connection.sendall(piece)
    digest.update(piece)
    left -= len(piece)
connection.shutdown(socket.SHUT_WR)
connection.recv(1)  # the receiver closes once it has everything
print(
    json.dumps(
        {
            "sha256": digest.hexdigest(),
            "seconds": time.monotonic() - started,
            "algorithm": algorithm.rstrip(b"\0").decode(),
        }
    )
)
