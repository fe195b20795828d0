"""A decoder and an encoder in plain Python, written from docs/wire.md alone, and what the codecs write."""

import itertools
import math
import struct

import fuzz
import numpy as np
import pytest
import torch
import xxhash

from geosim.params import table
from geosim.policy import (
    E3M0,
    Cast,
    Codec,
    Dense,
    Feedback,
    Integer,
    NoResidual,
    RandomK,
    Sign,
    SyncPolicy,
    TopK,
    make_layout,
)

M = 0xFFFFFFFF
F = np.float32
MAX = F(3.4028234663852886e38)
BITS = {"fp32": 32, "bf16": 16, "fp16": 16, "int8": 8, "int4": 4, "int2": 2, "e3m0": 4, "sign": 1}
LEVEL = {"int8": 127, "int4": 7, "int2": 2, "e3m0": 1, "sign": 1}
# Several spans with scope fragment: the tensors between are small.
NUMELS = (700, 33, 1024, 16, 1641, 7, 1, 90)
SELECTS = [
    Dense(),
    TopK(ratio=0.02),
    TopK(ratio=0.3, scope="fragment"),
    TopK(ratio=0.1, scope=64),
    TopK(ratio=0.9),
    RandomK(ratio=0.1),
    RandomK(ratio=0.03, scope="fragment"),
    RandomK(ratio=0.2, scope=37),
]
QUANTIZES = [
    *(Cast(kind=kind) for kind in ("fp32", "bf16", "fp16")),
    Integer(group=16),
    Integer(group="section", rounding="stochastic"),
    Integer(kind="int4", group=9),
    Integer(kind="int4", rounding="stochastic"),
    Integer(kind="int2", group=13),
    Integer(kind="int2", group="section", rounding="stochastic"),
    E3M0(group=11),
    E3M0(rounding="stochastic"),
    Sign(group=8),
    Sign(group=100),
    Sign(group="section"),
]
SMALL = [(0.0, "fp32"), (150.0, "fp16"), (400.0, "bf16"), (400.0, "fp32")]


def field(data: bytes, i: int, w: int) -> int:
    return int.from_bytes(data, "little") >> (i * w) & ((1 << w) - 1)


def packed(values: list[int], w: int) -> bytes:
    return sum(v << (i * w) for i, v in enumerate(values)).to_bytes(-(-len(values) * w // 8), "little")


def checksum(data: bytes) -> int:
    chunks = [data[at : at + 4194304] for at in range(80, len(data), 4194304)]
    hashes = b"".join(xxhash.xxh3_64_intdigest(chunk).to_bytes(8, "little") for chunk in chunks)
    return xxhash.xxh3_64_intdigest(data[:72] + bytes(8) + hashes)


def kept(n: int, ratio: float) -> int:
    return max(1, min(n, math.floor(n * ratio + 0.5))) if n else 0


def mix(x: int) -> int:
    x = (x ^ x >> 16) * 0x21F0AAAD & M
    x = (x ^ x >> 15) * 0xD35A2D97 & M
    return x ^ x >> 15


def hashes(n: int, key: list[int]) -> list[int]:
    a = 0
    for part in key:
        a = mix((a + 0x9E3779B9 & M) ^ (part & M))
    b = mix(a ^ 0x5BD1E995)
    return [mix(mix(i + a & M) ^ b) for i in range(n)]


def scopes(n: int, select: dict) -> list[tuple[range, int]]:
    """Elements, and how many of them travel."""
    block = select["scope"] if isinstance(select.get("scope"), int) else n
    parts = [range(s, min(n, s + block)) for s in range(0, n, block)]
    return [(part, kept(len(part), select.get("ratio", 1))) for part in parts]


def drawn(n: int, select: dict, key: list[int]) -> list[int]:
    h = hashes(n, [1, *key])
    return sorted(
        i for part, k in scopes(n, select) for i in sorted(part, key=h.__getitem__)[len(part) - k :]
    )


def size(n: int, select: dict, quantize: dict) -> int:
    k = sum(count for _, count in scopes(n, select))
    total = -(-k * BITS[quantize["kind"]] // 8)
    if "group" in quantize:
        total += 4 * (1 if quantize["group"] == "section" else -(-k // quantize["group"]))
    if select["kind"] == "topk" and k < n:
        low = math.floor(math.log2(n // k))
        total += -(-k * low // 8) + -(-(k + ((n - 1) >> low)) // 8)
    return total


def section(spans: list[tuple[int, int]], codec: dict) -> tuple[list, dict, dict]:
    n = sum(stop - start for start, stop in spans)
    select, quantize, dense = codec["select"], codec["quantize"], {"kind": "dense"}
    smaller = n > 0 and size(n, select, quantize) < size(n, dense, quantize)
    return spans, select if smaller else dense, quantize


def sections(tensors: list[int], pieces: list[tuple[int, int]], codec: dict) -> list[tuple[list, dict, dict]]:
    """(spans, select, quantize) of each section, from (tensor, elements) of each piece."""
    out, coded, at = [], [], 0
    for tensor, n in pieces:
        span, at = (at, at + n), at + n
        if tensors[tensor] * 4 < codec["small_below_bytes"]:
            out.append(([span], {"kind": "dense"}, {"kind": codec["small_dtype"]}))
        elif codec["select"].get("scope") == "fragment":
            coded.append(span)
        else:
            out.append(section([span], codec))
    return [section(coded, codec), *out] if coded else out


def decode_section(body: bytes, n: int, select: dict, quantize: dict, key: list[int]) -> tuple[list, bytes]:
    """Values of one section, and the bytes after it."""
    k = sum(count for _, count in scopes(n, select))
    at = range(n)
    if k < n and select["kind"] == "randomk":
        at = drawn(n, select, key)
    elif k < n:
        low = math.floor(math.log2(n // k))
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
    bits = BITS[kind]
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


def positions(u: np.ndarray, select: dict) -> list[int]:
    """Of the largest magnitudes in each scope, of equal ones the lower."""
    best = (sorted(part, key=lambda i: (-abs(u[i]), i))[:k] for part, k in scopes(len(u), select))
    return sorted(itertools.chain(*best))


def elias_fano(at: list[int], n: int) -> bytes:
    k = len(at)
    low = math.floor(math.log2(n // k))
    ones = {(p >> low) + i for i, p in enumerate(at)}
    vector = packed([int(b in ones) for b in range(k + ((n - 1) >> low))], 1)
    return packed([p & ((1 << low) - 1) for p in at], low) + vector


def scale_of(v: np.ndarray, kind: str, size: int, bump: bool) -> np.float32:
    """`size`: the power of two to which a sign's magnitudes are filled up."""
    peak, level = abs(v).max(), F(LEVEL[kind])
    s = F(peak / level)
    if kind == "sign":
        sums = np.zeros(size, F)
        sums[: len(v)] = np.minimum(abs(v), F(float(MAX) / size))
        while len(sums) > 1:
            sums = sums[: len(sums) // 2] + sums[len(sums) // 2 :]
        s = min(F(sums[0] / F(len(v))), peak)
    elif bump and s > 0 and F(peak / s) > level:
        s = np.nextafter(s, MAX)
    most = F(float(MAX) / int(level))
    most = most if int(level) * float(most) <= float(MAX) else np.nextafter(most, F(0))
    return F(0) if s < F(2.0**-120) else min(s, most)


def level_of(x: np.float32, kind: str, r: float | None) -> int:
    """What is stored of v / s."""
    if kind == "sign":
        return int(x < 0)
    if kind == "e3m0":
        levels = [0.0] + [2.0 ** (code - 7) for code in range(1, 8)]
        size = float(abs(x))
        below = max(code for code in range(8) if levels[code] <= size)
        if r is None:
            code = min(range(8), key=lambda c: (abs(size - levels[c]), c % 2))
        elif below == 7:
            code = 7
        else:
            gap = levels[below + 1] - levels[below]
            code = below + int(r < F(F(size - levels[below]) / F(gap)))
        return code + (8 if x < 0 and code else 0)
    if kind == "int2":
        x = F(x - F(0.5))
    top = 1 if kind == "int2" else LEVEL[kind]
    q = math.floor(x) + int(r < F(x - F(math.floor(x)))) if r is not None else round(float(x))
    return max(-LEVEL[kind], min(top, q)) & ((1 << BITS[kind]) - 1)


def cast(v: np.float32, kind: str) -> int:
    word = int(v.view(np.uint32))
    if kind == "fp32":
        return word
    if kind == "fp16":
        return int(np.float16(max(F(-65504), min(F(65504), v))).view(np.uint16))
    return min((word & 0x7FFFFFFF) + 0x7FFF + (word >> 16 & 1) >> 16, 0x7F7F) | word >> 31 << 15


def encode_section(u: np.ndarray, select: dict, quantize: dict, key: list[int], site: int) -> bytes:
    """Bytes of one section of fp32 values."""
    n, kind = len(u), quantize["kind"]
    k = sum(count for _, count in scopes(n, select))
    at, out = list(range(n)), b""
    if k < n and select["kind"] == "randomk":
        at = drawn(n, select, key)
    elif k < n:
        at = positions(u, select)
        out = elias_fano(at, n)
    v = u[at]
    if "group" not in quantize:
        return out + packed([cast(x, kind) for x in v], BITS[kind])
    group = k if quantize["group"] == "section" else quantize["group"]
    dither: list = [None] * k
    if quantize.get("rounding") == "stochastic":
        dither = [(h >> 8) * 2.0**-24 for h in hashes(k, [2, *key, site])]
    scales, codes = [], []
    size = 1 << (min(group, k) - 1).bit_length()
    for first in range(0, k, group):
        part = v[first : first + group]
        s = scale_of(part, kind, size, quantize["group"] != "section")
        scales.append(s)
        ratios = part / (s if s else F(1))
        codes += [level_of(x, kind, r) for x, r in zip(ratios, dither[first:], strict=False)]
    return out + struct.pack(f"<{len(scales)}f", *scales) + packed(codes, BITS[kind])


def test_scope_fragment_has_several_spans() -> None:
    codec = {
        "small_below_bytes": 150.0,
        "small_dtype": "bf16",
        "select": {"kind": "topk", "ratio": 0.1, "scope": "fragment"},
        "quantize": {"kind": "int8", "group": 64},
    }
    spans, *small = sections([50, 9, 60], [(0, 50), (1, 9), (2, 60)], codec)
    assert spans[0] == [(0, 50), (59, 119)]
    assert small == [([(50, 59)], {"kind": "dense"}, {"kind": "bf16"})]


def cases():
    smalls = itertools.cycle(SMALL)
    for (select, quantize), (below, dtype) in zip(
        itertools.product(SELECTS, QUANTIZES), smalls, strict=False
    ):
        name = (
            f"{select.kind}-{getattr(select, 'scope', '')}-{quantize.kind}-{getattr(quantize, 'group', '')}"
        )
        residual = NoResidual() if isinstance(select, Dense) else Feedback()
        codec = Codec(
            select=select, quantize=quantize, residual=residual, small_below_bytes=below, small_dtype=dtype
        )
        yield pytest.param(codec, id=name)


@pytest.mark.parametrize("codec", list(cases()))
@pytest.mark.filterwarnings("ignore:overflow encountered", "ignore:underflow encountered")
def test_plain_decoder_and_encoder_agree(codec_class, codec) -> None:
    policy = SyncPolicy(codec=codec, order="model", seed=9)
    layout = make_layout(table((f"{i}.w", (n,)) for i, n in enumerate(NUMELS)), policy, 2)
    coder, device = codec_class(layout, 0, 1, 3), fuzz.home(codec_class)
    pieces = [(piece.tensor, piece.numel) for piece in layout.pieces(0, 1)]
    known = sections(list(NUMELS), pieces, codec.model_dump())
    for round, kind in enumerate(
        ("normal", "ties", "levels", "all sizes", "about the least scale", "huge"), 6
    ):
        u = fuzz.update_from(lambda options, kind=kind: kind if kind in options else 77, coder.numel)
        out = torch.zeros(coder.payload_bytes, dtype=torch.uint8)
        coder.encode(u.to(device), 1.0, fuzz.residual_of(coder), round, out)
        coder.seal(out, round, tokens=5, exchange_us=6, step_us=7, chain=b"chained.")
        data = out.numpy().tobytes()
        magic, version, flags, when, fragment, site, shard = struct.unpack_from("<4sHHQIHH", data)
        numel, tokens, exchange, step, chain, size, check = struct.unpack_from("<QQII8sQQ", data, 32)
        assert (magic, version, flags, when, fragment, site, shard) == (b"GSW1", 2, 0, round, 0, 3, 1)
        assert (data[24:32].hex(), numel) == (layout.fingerprint(), sum(n for _, n in pieces))
        assert (tokens, exchange, step, chain, size) == (5, 6, 7, b"chained.", len(data) - 80)
        assert check == checksum(data)

        body, written, found = data[80:], b"", np.zeros(numel)
        for number, (spans, select, quantize) in enumerate(known):
            key = [9, round, fragment, shard, number]
            n = sum(stop - start for start, stop in spans)
            values, body = decode_section(body, n, select, quantize, key)
            for start, stop in spans:
                found[start:stop], values = values[: stop - start], values[stop - start :]
            inside = np.concatenate([u.numpy()[start:stop] for start, stop in spans])
            written += encode_section(inside, select, quantize, key, site)
        assert not body
        np.testing.assert_array_equal(
            found.astype(np.float32), coder.decode(out, 3, round, device).values.cpu().numpy()
        )
        assert written == data[80:], kind
