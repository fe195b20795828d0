"""Send zeros over one TCP connection until killed: address, port."""

import socket
import sys

connection = socket.create_connection((sys.argv[1], int(sys.argv[2])))
while True:
    connection.sendall(bytes(1 << 18))
