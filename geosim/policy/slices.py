"""How payloads that sites pass on are cut: the runtime cuts them so, and the simulator prices that."""

import math

# Of a payload that is passed on: what a hop adds is one slice's time, what a slice adds is a notice.
_SLICES = 32  # a stream
_LEAST_SLICE_BYTES = 64 * 1024


def passing_slice(size: int, streams: int) -> int:
    """Bytes of a slice where payloads are passed on and the policy says nothing."""
    return min(-(-size // streams), max(_LEAST_SLICE_BYTES, -(-size // (streams * _SLICES))))


def slice_share(size: float, streams: int, chunk_bytes: float | None) -> float:
    """How much of a payload of `size` bytes is under way before its first bytes can be passed on.

    That is a slice on each stream, since all streams carry theirs at the same time.
    """
    if size <= 0:
        return 1.0
    step = passing_slice(math.ceil(size), streams) if chunk_bytes is None else max(1.0, chunk_bytes)
    return min(1.0, streams * step / size)
