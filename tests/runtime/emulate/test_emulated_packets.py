"""Cutting superframes: every slice is a correct packet, and together they are the original."""

from __future__ import annotations

import random
import struct
from itertools import pairwise

import pytest

from runtime.emulate.packets import VNET_BYTES, cut, shape

SOURCE, DESTINATION = bytes([10, 77, 0, 1]), bytes([10, 77, 0, 2])
FIN, PSH, ACK, CWR = 0x01, 0x08, 0x10, 0x80
OPTIONS = bytes(range(12))


def summed(data: bytes) -> int:
    total = 0
    for index in range(0, len(data), 2):
        total += int.from_bytes(data[index : index + 2].ljust(2, b"\0"), "big")
        total = (total & 0xFFFF) + (total >> 16)
    return total


def superframe(payload: bytes, mss: int, *, flags: int = ACK, sequence: int = 1000, ident: int = 7) -> bytes:
    tcp_length = 20 + len(OPTIONS) + len(payload)
    pseudo = SOURCE + DESTINATION + struct.pack("!HH", 6, tcp_length)
    tcp = struct.pack("!HHIIBBHHH", 1, 2, sequence, 5, 8 << 4, flags, 500, summed(pseudo), 0)
    ip = struct.pack("!BBHHHBBH", 0x45, 0, 20 + tcp_length, ident, 0x4000, 64, 6, 0)
    ip = ip[:10] + struct.pack("!H", summed(ip + SOURCE + DESTINATION) ^ 0xFFFF)
    vnet = struct.pack("=BBHHHH", 1, 1, 66, mss, 20, 16)
    return vnet + ip + SOURCE + DESTINATION + tcp + OPTIONS + payload


def finished(packet: bytes) -> list[tuple[int, int, int, bytes]]:
    """Do what a receiving kernel does: check, then give (sequence, ip id, flags, payload)."""
    flags, kind, header, mss, csum_start, csum_offset = struct.unpack_from("=BBHHHH", packet)
    ip = packet[VNET_BYTES:]
    assert summed(ip[:20]) == 0xFFFF
    assert struct.unpack_from("!H", ip, 2)[0] == len(ip)
    assert (flags, csum_start, csum_offset) == (1, 20, 16)
    # Completing the checksum from csum_start on must give a packet whose full checksum holds.
    field = summed(ip[csum_start:]) ^ 0xFFFF
    whole = ip[: csum_start + 16] + struct.pack("!H", field) + ip[csum_start + 18 :]
    pseudo = ip[12:20] + struct.pack("!HH", 6, len(ip) - 20)
    assert summed(pseudo + whole[20:]) == 0xFFFF
    payload = ip[52:]
    assert header <= len(ip)
    assert kind == (1 if len(payload) > 1448 else 0)
    assert mss == (1448 if kind else 0)
    (ident,) = struct.unpack_from("!H", ip, 4)
    (sequence,) = struct.unpack_from("!I", ip, 24)
    return [(sequence, ident, ip[33], payload)]


def test_shape_counts_wire_segments():
    assert shape(superframe(bytes(1448 * 3 + 1), 1448)) == (4, 52, 1448)
    assert shape(superframe(bytes(1448 * 3), 1448)) == (3, 52, 1448)


def test_other_packets_are_one_segment():
    udp = bytearray(superframe(bytes(100), 1448))
    udp[VNET_BYTES + 9] = 17
    assert shape(bytes(udp)) == (1, 152, 0)
    small = bytearray(superframe(bytes(100), 0))
    small[1] = 0
    assert shape(bytes(small)) == (1, 52, 100)


@pytest.mark.parametrize("seed", range(20))
def test_slices_are_sound_and_complete(seed):
    draw = random.Random(seed)
    payload = draw.randbytes(draw.randrange(1449, 60_000))
    sequence, ident = draw.choice([1000, 2**32 - 3000]), draw.choice([7, 65_530])
    packet = superframe(payload, 1448, flags=ACK | PSH | FIN | CWR, sequence=sequence, ident=ident)
    count, header, segment = shape(packet)
    bounds = sorted({0, count, *(draw.randrange(count) for _ in range(4))})
    rebuilt = b""
    for first, end in pairwise(bounds):
        pieces = cut(packet, header, segment, first, end)
        ((got_sequence, got_ident, flags, part),) = finished(b"".join(pieces))
        assert got_sequence == (sequence + len(rebuilt)) % 2**32
        assert got_ident == (ident + first) % 2**16
        assert bool(flags & (FIN | PSH)) == (end == count)
        assert bool(flags & CWR) == (first == 0)
        rebuilt += part
    assert rebuilt == payload
