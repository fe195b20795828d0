"""Hashes of long data: what docs/wire.md says, however many threads share them."""

import numpy as np
import pytest
import torch
import xxhash

from runtime.codec.digest import CHUNK_BYTES, digest

DATA = np.random.default_rng(0).integers(0, 256, 3 * CHUNK_BYTES + 5, dtype=np.uint8)


@pytest.fixture(params=[1, 2, 5])
def threads(request):
    """So many for torch, and for what follows its number."""
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


def plain(head: bytes, data: bytes) -> int:
    hashes = b""
    while data:
        hashes += xxhash.xxh3_64_intdigest(data[:4194304]).to_bytes(8, "little")
        data = data[4194304:]
    return xxhash.xxh3_64_intdigest(head + hashes)


@pytest.mark.parametrize("size", [0, 1, CHUNK_BYTES - 1, CHUNK_BYTES, CHUNK_BYTES + 1, len(DATA)])
def test_the_hash_is_what_the_format_says(size, threads):
    assert digest(b"head", DATA[:size].data) == plain(b"head", DATA[:size].tobytes())


def test_the_hash_sees_each_chunk_and_their_order(threads):
    once = digest(b"", DATA.data)
    for at in (0, CHUNK_BYTES, 2 * CHUNK_BYTES + 7, len(DATA) - 1):
        changed = DATA.copy()
        changed[at] ^= 1
        assert digest(b"", changed.data) != once
    swapped = np.concatenate(
        [DATA[CHUNK_BYTES : 2 * CHUNK_BYTES], DATA[:CHUNK_BYTES], DATA[2 * CHUNK_BYTES :]]
    )
    assert digest(b"", swapped.data) != once
    assert digest(b"", DATA[:-1].data) != once


def test_floats_are_hashed_by_their_bytes():
    values = torch.arange(10, dtype=torch.float32).numpy()
    assert digest(b"x", values.data) == plain(b"x", values.tobytes())
