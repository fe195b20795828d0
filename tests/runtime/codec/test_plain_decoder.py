"""A decoder in plain Python, written from docs/wire.md alone, reads what the codec writes."""

import struct

import numpy as np
import torch
import xxhash

M = 0xFFFFFFFF


def field(data: bytes, i: int, w: int) -> int:
    return int.from_bytes(data, "little") >> (i * w) & ((1 << w) - 1)


def kept(n: int, ratio: float) -> int:
    return max(1, min(n, int(n * ratio + 0.5))) if n else 0


def mix(x: int) -> int:
    x = (x ^ x >> 16) * 0x21F0AAAD & M
    x = (x ^ x >> 15) * 0xD35A2D97 & M
    return x ^ x >> 15


def drawn(n: int, ratio: float, block: int, key: list[int]) -> list[int]:
    a = 0
    for part in [1, *key]:
        a = mix((a + 0x9E3779B9 & M) ^ part)
    b = mix(a ^ 0x5BD1E995)
    h = [mix(mix(i + a & M) ^ b) for i in range(n)]
    scopes = [range(s, min(n, s + block)) for s in range(0, n, block)]
    return sorted(i for s in scopes for i in sorted(s, key=h.__getitem__)[len(s) - kept(len(s), ratio) :])


def section(body: bytes, n: int, select: dict, quantize: dict, key: list[int]) -> tuple[list[float], bytes]:
    """Values of one section, and the bytes after it."""
    block = select["scope"] if isinstance(select.get("scope"), int) else n
    ratio = select.get("ratio", 1)
    k = sum(kept(min(block, n - s), ratio) for s in range(0, n, block))
    at = range(n)
    if k < n and select["kind"] == "randomk":
        at = drawn(n, ratio, block, key)
    elif k < n:
        low = (n // k).bit_length() - 1
        lows, body = body[: -(-k * low // 8)], body[-(-k * low // 8) :]
        size = -(-(k + ((n - 1) >> low)) // 8)
        ones = [b for b in range(8 * size) if body[b // 8] >> b % 8 & 1]
        at = [((b - i) << low) + field(lows, i, low) for i, b in enumerate(ones)]
        body = body[size:]
    kind, scales = quantize["kind"], []
    if "group" in quantize:
        group = k if quantize["group"] == "section" else quantize["group"]
        scales = struct.unpack_from(f"<{-(-k // group)}f", body)
        body = body[4 * len(scales) :]
    bits = {"fp32": 32, "bf16": 16, "fp16": 16, "int8": 8, "int4": 4, "int2": 2, "e3m0": 4, "sign": 1}[kind]
    values, body, out = body[: -(-k * bits // 8)], body[-(-k * bits // 8) :], [0.0] * n
    for i, p in enumerate(at):
        q, s = field(values, i, bits), scales[i // group] if scales else 0
        signed = q - (1 << bits if q >> (bits - 1) else 0)
        if kind in ("fp32", "bf16"):
            out[p] = struct.unpack("<f", (q << (32 - bits)).to_bytes(4, "little"))[0]
        elif kind == "fp16":
            out[p] = struct.unpack("<e", q.to_bytes(2, "little"))[0]
        elif kind == "e3m0":
            out[p] = (-1 if q & 8 else 1) * (2.0 ** ((q & 7) - 7) if q & 7 else 0) * s
        else:
            out[p] = {"sign": 1 - 2 * q, "int2": signed + 0.5}.get(kind, signed) * s
    return out, body


def test_plain_decoder_agrees(codec_class, codec, build, update) -> None:
    coder = build(codec_class, codec, order="model")
    out = torch.zeros(coder.payload_bytes, dtype=torch.uint8)
    e = None if coder.decay is None else torch.zeros(coder.numel)
    coder.encode(update(coder.numel), 1.0, e, 6, out)
    coder.seal(out, 6)
    data = out.numpy().tobytes()
    magic, _, _, round, fragment, site, shard = struct.unpack_from("<4sHHQIHH", data)
    numel, _, _, _, _, size, check = struct.unpack_from("<QQII8sQQ", data, 32)
    assert (magic, round, fragment, site, shard, numel) == (b"GSW1", 6, 0, 1, 1, coder.numel)
    assert size == len(data) - 80
    assert check == xxhash.xxh3_64_intdigest(data[:72] + bytes(8) + data[80:])

    body, found = data[80:], np.zeros(numel)
    for number, part in enumerate(coder.sections):
        key = [9, round, fragment, shard, number]
        values, body = section(body, part.numel, part.select.to_dict(), part.quantize.to_dict(), key)
        for start, stop in part.spans:
            found[start:stop], values = values[: stop - start], values[stop - start :]
    assert not body
    np.testing.assert_array_equal(found.astype(np.float32), coder.decode(out, 1, 6).values.numpy())
