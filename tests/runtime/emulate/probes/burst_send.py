"""Send transfers over one connection, waiting for each's answer: address, port, gap_s, sizes."""

import json
import socket
import struct
import sys
import time

connection = socket.create_connection((sys.argv[1], int(sys.argv[2])))
connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
gap = float(sys.argv[3])


def info() -> tuple[int, int, int]:
    raw = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 192)
    fields = struct.unpack_from("24I", raw, 8)
    # snd_ssthresh, snd_cwnd, total_retrans of struct tcp_info
    return fields[17], fields[18], fields[23]


rows = []
for size in map(int, sys.argv[4:]):
    time.sleep(gap)
    _, before, resent = info()
    started = time.monotonic()
    connection.sendall(struct.pack("!I", size) + bytes(size - 4))
    answer = b""
    while len(answer) < 8:
        answer += connection.recv(8 - len(answer))
    seconds = time.monotonic() - started
    threshold, after, total = info()
    rows.append(
        {
            "bytes": size, "seconds": seconds, "first_to_last_s": struct.unpack("!d", answer)[0],
            "cwnd_before": before, "cwnd_after": after,
            "ssthresh_after": -1 if threshold >= 0x7FFFFFFF else threshold,
            "retransmitted": total - resent,
        }
    )  # fmt: skip
print(json.dumps(rows))
