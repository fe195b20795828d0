"""One site's side of the exchanges: a process in its namespace that does what its input says, line by line.

    {"do": "connect"}              new connections
    {"do": "ping"}                 round trips of single bytes on the first connection
    {"do": "exchange", "start": t} one exchange from `time.monotonic` = t on; answers when all has come

After an exchange every receiver sends the notice that Gloo's next receive would (48 bytes on the same
connection), so that connections are as silent between exchanges as the runtime's.
"""

import json
import socket
import struct
import sys
import threading
import time
from statistics import median
from typing import Any, Protocol

PORT = 6100
NOTICE_BYTES = 48  # gloo/transport/tcp/pair.h, Op::preamble
_TRACE_EVERY_S = 1e-3
_PINGS, _PING_GAP_S = 8, 0.05
# struct tcp_info of linux/tcp.h: where its 32-bit fields lie
_FIELDS = {
    "rto_us": 8,
    "unacked": 24,
    "lost": 32,
    "rtt_us": 68,
    "ssthresh": 76,
    "cwnd": 80,
    "retransmits": 100,
}


class End(Protocol):
    """What carries exchanges."""

    def connect(self) -> None:
        """Open new connections, once both ends have been told to."""

    def ping(self) -> float:
        """Seconds of a round trip of almost nothing; 0: not known here."""

    def exchange(self, start: float) -> dict[str, Any]:
        """Send and receive from `start` on."""


class SocketEnd:
    """Plain TCP sockets, one thread a direction and connection."""

    def __init__(
        self, own: str, peer: str, listens: bool, flows: int, sends: int, receives: int, trace: bool
    ) -> None:
        self._peer = peer
        self._flows = flows
        self._payload = bytes(-(-sends // flows)) if sends else b""
        self._receives = -(-receives // flows) if receives else 0
        self._trace = trace
        self._server = socket.create_server((own, PORT), backlog=64) if listens else None
        self._connections: list[socket.socket] = []

    def connect(self) -> None:
        """Open new connections; a connection's two ends have one number."""
        for connection in self._connections:
            connection.close()
        if self._server is not None:
            self._connections = [self._server.accept()[0] for _ in range(self._flows)]
        else:
            self._connections = [_connect(self._peer) for _ in range(self._flows)]
        for connection in self._connections:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def ping(self) -> float:
        """Median seconds of a round trip of one byte, on a path that is otherwise silent."""
        connection = self._connections[0]
        times = []
        for _ in range(_PINGS):
            if self._server is not None:
                time.sleep(_PING_GAP_S)
                begun = time.monotonic()
                connection.sendall(b"p")
                _receive(connection, 1)
                times.append(time.monotonic() - begun)
            else:
                _receive(connection, 1)
                connection.sendall(b"p")
        return median(times) if times else 0.0

    def exchange(self, start: float) -> dict[str, Any]:
        """Send and receive from `start` on; seconds until all had come, and what TCP says of itself."""
        began, ended = [0.0] * self._flows, [0.0] * self._flows
        samples: list[list[Any]] = []
        stop = threading.Event()
        before = [info(c)["retransmits"] for c in self._connections]

        def send(i: int, connection: socket.socket) -> None:
            time.sleep(max(0.0, start - time.monotonic()))
            began[i] = time.monotonic() - start
            connection.sendall(self._payload)

        def receive(i: int, connection: socket.socket) -> None:
            _receive(connection, self._receives)
            ended[i] = time.monotonic() - start
            sender = threads[self._flows + i]
            sender.join()
            if self._receives:
                connection.sendall(bytes(NOTICE_BYTES))
            if self._payload:
                _receive(connection, NOTICE_BYTES)

        def sample() -> None:
            while not stop.wait(_TRACE_EVERY_S):
                now = time.monotonic() - start
                if now >= 0:
                    rows = [info(c) for c in self._connections]
                    samples.append([round(now, 5), *[[r["cwnd"], r["ssthresh"], r["unacked"]] for r in rows]])

        threads = [threading.Thread(target=receive, args=pair) for pair in enumerate(self._connections)]
        threads += [threading.Thread(target=send, args=pair) for pair in enumerate(self._connections)]
        watcher = threading.Thread(target=sample)
        if self._trace:
            watcher.start()
        for thread in reversed(threads):  # receivers wait for senders
            thread.start()
        for thread in threads:
            thread.join()
        stop.set()
        if self._trace:
            watcher.join()
        last = [info(c) for c in self._connections]
        return {
            "seconds": max(ended) if self._receives else 0.0,
            "began": began,
            "retransmits": sum(now["retransmits"] for now in last) - sum(before),
            "cwnd": [now["cwnd"] for now in last],
            "ssthresh": [now["ssthresh"] for now in last],
            "trace": samples,
        }


class GlooEnd:
    """The runtime's own channel: a gloo group a stream."""

    def __init__(self, own: str, peer: str, listens: bool, flows: int, sends: int, receives: int) -> None:
        self._own, self._index, self._flows, self._size = own, 0 if listens else 1, flows, sends
        if sends != receives:
            raise ValueError("the runtime's channel sends as much as it receives")
        from torch.distributed import TCPStore

        self._store = TCPStore(own if listens else peer, PORT, 2, is_master=listens)
        self._round = 0

    def connect(self) -> None:
        """Open new groups."""
        import torch
        from torch.distributed import PrefixStore

        from geosim.policy import Direct
        from geosim.policy.routes import make_routes
        from runtime.gloo import open_stream
        from runtime.transfer import Channel

        self._round += 1
        groups = [
            open_stream(
                PrefixStore(f"{self._round}-{i}", self._store),
                self._index,
                2,
                address=self._own,
                timeout_s=60,
            )
            for i in range(self._flows)
        ]
        self._payload = torch.zeros(self._size, dtype=torch.uint8)
        names = ("a", "b")
        routes = make_routes(Direct(), names)
        self._channel = Channel(groups, names, self._index, routes, [self._size], None)

    def ping(self) -> float:
        """Its groups carry nothing but exchanges."""
        return 0.0

    def exchange(self, start: float) -> dict[str, Any]:
        """Send and receive from `start` on."""
        time.sleep(max(0.0, start - time.monotonic()))
        self._channel.exchange(0, 0, self._payload)
        seconds = time.monotonic() - start
        self._channel.expect(0)
        return {"seconds": seconds, "began": [], "retransmits": 0, "cwnd": [], "ssthresh": [], "trace": []}


def info(connection: socket.socket) -> dict[str, int]:
    """Some of Linux's `tcp_info`."""
    data = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104)
    return {name: struct.unpack_from("=I", data, at)[0] for name, at in _FIELDS.items()}


def _connect(peer: str) -> socket.socket:
    deadline = time.monotonic() + 10
    while True:
        try:
            return socket.create_connection((peer, PORT), timeout=120)
        except ConnectionRefusedError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def _receive(connection: socket.socket, count: int) -> None:
    buffer = bytearray(1 << 20)
    while count > 0:
        got = connection.recv_into(buffer, min(count, len(buffer)))
        if not got:
            raise ConnectionError("the other end left")
        count -= got


def main() -> None:
    """Argument: settings as JSON."""
    settings = json.loads(sys.argv[1])
    carrier = settings.pop("carrier")
    if carrier == "gloo":
        settings.pop("trace")
    end: End = GlooEnd(**settings) if carrier == "gloo" else SocketEnd(**settings)
    print(json.dumps("ready"), flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        if request["do"] == "connect":
            end.connect()
            answer: Any = "connected"
        elif request["do"] == "ping":
            answer = end.ping()
        else:
            answer = end.exchange(request["start"])
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
