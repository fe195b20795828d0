"""Positions: exact round trip, size known before the data, near the bound, and nothing false accepted."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from geosim.policy.codec import position_bits
from runtime.codec import elias_fano
from runtime.codec.bits import pack, packed_bytes, unpack
from runtime.codec.cpu import positions as kernels


@settings(max_examples=150, deadline=None)
@given(st.integers(1, 5000), st.data())
def test_round_trip_and_size(numel: int, data) -> None:
    count = data.draw(st.integers(1, numel))
    rng = np.random.default_rng(data.draw(st.integers(0, 100)))
    positions = np.sort(rng.choice(numel, count, replace=False))
    code = elias_fano.encode(positions, numel)
    assert len(code) == elias_fano.encoded_bytes(numel, count)
    assert np.array_equal(elias_fano.decode(code, numel, count), positions)


@pytest.mark.parametrize(
    "positions", [[0], [999], list(range(1000)), list(range(500)), list(range(500, 1000)), [0, 999]]
)
def test_extremes(positions: list[int]) -> None:
    code = elias_fano.encode(np.array(positions), 1000)
    assert elias_fano.decode(code, 1000, len(positions)).tolist() == positions


def test_large_sections() -> None:
    numel = (1 << 33) + 7
    positions = np.array([0, 5, 1 << 32, numel - 1])
    assert np.array_equal(elias_fano.decode(elias_fano.encode(positions, numel), numel, 4), positions)


@given(st.integers(1, 10**12), st.data())
def test_bound(numel: int, data) -> None:
    count = data.draw(st.integers(1, numel))
    low, upper = position_bits(numel, count)
    assert count * low + upper <= count * (2 + math.log2(numel / count)) + 1e-3


def test_what_no_encoder_writes_is_refused() -> None:
    code = elias_fano.encode(np.array([3, 400, 401, 900]), 1000)
    low, upper = position_bits(1000, 4)
    split = packed_bytes(4, low)
    assert (low, upper, split) == (7, 11, 4)

    def changed(byte: int, value: int) -> np.ndarray:
        out = code.copy()
        out[byte] = value
        return out

    cases = {
        "3 positions instead of 4": changed(split, code[split] & (code[split] - 1)),
        "unused bits": changed(3, code[3] | 0x80),
        "out of range": np.concatenate([pack(np.array([3, 16, 17, 127]), 7), code[split:]]),
        "ascend": np.concatenate([pack(np.array([3, 17, 16, 4]), 7), code[split:]]),
    }
    for reason, data in cases.items():
        with pytest.raises(ValueError, match=reason):
            elias_fano.decode(data, 1000, 4)
    high = np.zeros(16, np.uint8)
    high[[0, 4, 5, 12]] = 1
    with pytest.raises(ValueError, match="unused bits"):
        elias_fano.decode(np.concatenate([code[:split], np.packbits(high, bitorder="little")]), 1000, 4)


@pytest.mark.parametrize("width", [0, 1, 2, 3, 4, 5, 7, 8, 13, 33])
@pytest.mark.parametrize("count", [0, 1, 7, 8, 9, 100])
def test_bits(width: int, count: int) -> None:
    values = np.random.default_rng(count).integers(0, 1 << width, count)
    data = pack(values, width)
    assert len(data) == packed_bytes(count, width)
    assert np.array_equal(unpack(data, count, width), values)
    bits = "".join(format(v, f"0{width}b")[::-1] for v in values.tolist()) if width else ""
    assert bits == "".join(format(b, "08b")[::-1] for b in data.tolist())[: len(bits)]
    if count * width % 8:
        data[-1] |= 0x80
        with pytest.raises(ValueError, match="unused bits"):
            unpack(data, count, width)


@pytest.mark.parametrize("numel", [40, 1000, 1 << 20, (1 << 33) + 7, 1 << 45])
@pytest.mark.parametrize("count", [1, 7, 16, 40])
def test_compiled_kernels_write_the_same_in_one_go_and_in_parts(numel: int, count: int) -> None:
    rng = np.random.default_rng(count)
    positions = np.sort(
        rng.choice(numel, count, replace=False) if numel < 1 << 21 else rng.integers(0, numel, count)
    )
    low, upper = position_bits(numel, count)
    code = elias_fano.encode(positions, numel)
    split = packed_bytes(count, low)
    lower, high = np.full(split, 255, np.uint8), np.full(packed_bytes(upper, 1), 255, np.uint8)
    kernels.write_low(positions, low, 0, lower)
    kernels.write_all_high(positions, low, high)
    assert np.array_equal(np.concatenate([lower, high]), code)

    lower[:], high[:] = 255, 0
    begun, cut = np.zeros(2, np.uint64), count // 16 * 8
    for begin, end in ((0, cut), (cut, count)):
        kernels.write_low(positions[begin:end], low, begin, lower)
        kernels.write_high(positions[begin:end], low, begin, 0, high, begun)
    kernels.end_high(begun, high)
    assert np.array_equal(np.concatenate([lower, high]), code)
