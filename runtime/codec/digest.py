"""Hashes of long data by several threads: XXH3 64-bit of a head and of the hashes of the data's chunks."""

from functools import partial

import xxhash

from runtime.codec.workers import run, shares, threads

CHUNK_BYTES = 1 << 22


def digest(head: bytes, data: memoryview) -> int:
    """XXH3 64-bit of `head`, then of each chunk's own XXH3 64-bit (docs/wire.md, "Hashes").

    Args:
        head: goes first, as it is.
        data: contiguous bytes; in chunks of `CHUNK_BYTES`, of which the last may be shorter.
    """
    data = data.cast("B")
    chunks = [data[at : at + CHUNK_BYTES] for at in range(0, len(data), CHUNK_BYTES)]
    hashes = [b""] * len(chunks)
    run([partial(_hash, chunks, hashes, share) for share in shares([1] * len(chunks), threads())])
    return xxhash.xxh3_64_intdigest(head + b"".join(hashes))


def _hash(chunks: list[memoryview], hashes: list[bytes], share: slice) -> None:
    # Long chunks let go of the interpreter's lock.
    for i in range(share.start, share.stop):
        hashes[i] = xxhash.xxh3_64_intdigest(chunks[i]).to_bytes(8, "little")
