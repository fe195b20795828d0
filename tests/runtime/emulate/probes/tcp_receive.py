"""Accept one TCP connection and take all its bytes: address, port. Reports the hash and when bytes arrived."""

import hashlib
import json
import socket
import sys
import time

server = socket.create_server((sys.argv[1], int(sys.argv[2])))
print("ready", flush=True)
connection, _ = server.accept()
digest = hashlib.sha256()
arrivals = []
total = 0
while piece := connection.recv(1 << 20):
    total += len(piece)
    arrivals.append((time.monotonic(), total))
    digest.update(piece)
connection.close()
print(json.dumps({"bytes": total, "sha256": digest.hexdigest(), "arrivals": arrivals}))
