"""IPv4 packets as a TUN with virtio headers gives them: their wire segments, and slices of them.

The kernel hands over TCP superframes of up to 64 KB, one set of headers for many segments. A wire
would carry each segment with headers of its own, and could lose any of them; `cut` makes the
superframe of a run of segments.
"""

from __future__ import annotations

import struct

VNET_BYTES = 10  # struct virtio_net_hdr: flags, gso_type, hdr_len, gso_size, csum_start, csum_offset
_VNET = struct.Struct("=BBHHHH")
_NEEDS_CSUM = 1
_GSO_NONE, _GSO_TCPV4 = 0, 1
_GSO_KIND = 0x7F  # the remaining bit says ECN
_IPPROTO_TCP = 6
_FIN, _PSH, _CWR = 0x01, 0x08, 0x80

Buffers = tuple[bytes | bytearray | memoryview, ...]


def checksum(data: bytes | bytearray | memoryview) -> int:
    """The ones' complement sum of 16-bit words, folded, not inverted."""
    if len(data) % 2:
        data = bytes(data) + b"\0"
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total > 0xFFFF:
        total = (total & 0xFFFF) + (total >> 16)
    return total


def shape(packet: bytes) -> tuple[int, int, int]:
    """Wire segments, header bytes of each, payload bytes of a full one; all header if not TCP."""
    size = len(packet) - VNET_BYTES
    if packet[VNET_BYTES + 9] != _IPPROTO_TCP:
        return 1, size, 0
    ip_bytes = (packet[VNET_BYTES] & 0x0F) * 4
    if size < ip_bytes + 20 or packet[VNET_BYTES + 6] & 0x1F or packet[VNET_BYTES + 7]:
        return 1, size, 0  # a later fragment has no TCP header
    header = ip_bytes + (packet[VNET_BYTES + ip_bytes + 12] >> 4) * 4
    payload = size - header
    if packet[1] & _GSO_KIND != _GSO_TCPV4:
        return 1, header, payload
    segment: int = _VNET.unpack_from(packet)[3]
    return max(1, -(-payload // segment)), header, segment


def cut(packet: bytes, header: int, segment: int, first: int, end: int) -> Buffers:
    """Segments `first` up to `end` of a superframe: new headers, and a view of the payload."""
    view = memoryview(packet)
    body = VNET_BYTES + header
    start = body + first * segment
    stop = min(body + end * segment, len(packet))
    payload = stop - start
    head = bytearray(packet[:body])
    ip_bytes = (head[VNET_BYTES] & 0x0F) * 4
    tcp = VNET_BYTES + ip_bytes

    flags, kind, _, _, csum_start, csum_offset = _VNET.unpack_from(packet)
    one = payload <= segment
    # hdr_len was the kernel's linear part, which may reach beyond this slice.
    _VNET.pack_into(
        head, 0, flags, _GSO_NONE if one else kind, header, 0 if one else segment, csum_start,
        csum_offset,
    )  # fmt: skip

    identity = (int.from_bytes(head[VNET_BYTES + 4 : VNET_BYTES + 6], "big") + first) & 0xFFFF
    struct.pack_into("!HH", head, VNET_BYTES + 2, header + payload, identity)
    struct.pack_into("!H", head, VNET_BYTES + 10, 0)
    struct.pack_into("!H", head, VNET_BYTES + 10, checksum(head[VNET_BYTES:tcp]) ^ 0xFFFF)

    (sequence,) = struct.unpack_from("!I", head, tcp + 4)
    struct.pack_into("!I", head, tcp + 4, (sequence + first * segment) & 0xFFFFFFFF)
    if stop < len(packet):
        head[tcp + 13] &= ~(_FIN | _PSH) & 0xFF
    if first:
        head[tcp + 13] &= ~_CWR & 0xFF
    # With NEEDS_CSUM the field holds the sum of the pseudo-header, which contains the TCP length.
    if flags & _NEEDS_CSUM:
        pseudo = bytes(head[VNET_BYTES + 12 : VNET_BYTES + 20]) + struct.pack(
            "!HH", _IPPROTO_TCP, header - ip_bytes + payload
        )
        struct.pack_into("!H", head, tcp + 16, checksum(pseudo))
    return head, view[start:stop]
