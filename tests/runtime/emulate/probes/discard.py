"""Accept one TCP connection and throw away what comes: address, port."""

import socket
import sys

server = socket.create_server((sys.argv[1], int(sys.argv[2])))
print("ready", flush=True)
connection, _ = server.accept()
buffer = bytearray(1 << 20)
while connection.recv_into(buffer):
    pass
