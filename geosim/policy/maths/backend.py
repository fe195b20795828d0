"""What the Python array API leaves out: a few primitives for numpy, torch and jax, and nothing else.

Everything above this module is written once for all three. Neither torch nor jax is imported before an
array of that kind has been given. Torch tensors on the CPU use numpy's selection and running count on the
same memory, which is many times faster than torch's own.

`settle` and `divide` exist for XLA, which otherwise contracts ``a * b + c`` into one rounding and turns
``x / s`` into ``x * (1 / s)``; both would make jax differ from IEEE arithmetic in the last bit. XLA on the
CPU also takes denormal numbers as zero; the formats keep clear of them (see `quantize.TINY`).
"""

from typing import Any

import numpy as np
from array_api_compat import array_namespace, is_jax_array, is_torch_array

Array = Any
_MASK = 0xFFFFFFFF


def namespace(x: Array) -> Any:
    """The array API namespace of an array."""
    return array_namespace(x)


def _place(like: Array) -> dict[str, Any]:
    return {"device": like.device} if is_torch_array(like) else {}


def zeros(like: Array, numel: int) -> Array:
    """fp32 zeros [numel] where `like` lives."""
    xp = namespace(like)
    return xp.zeros(numel, dtype=xp.float32, **_place(like))


def constant(like: Array, values: Any) -> Array:
    """fp32 array of Python or numpy numbers where `like` lives; an array is only converted to fp32."""
    xp = namespace(like)
    if hasattr(values, "__array_namespace__") or is_torch_array(values):
        values = values if not isinstance(values, np.ndarray | np.generic) else np.asarray(values, np.float32)
        return xp.asarray(values, dtype=xp.float32, **_place(like))
    return xp.asarray(np.asarray(values, np.float32), **_place(like))


def float_bits(x: Array) -> Array:
    """The bits of fp32 values as int32."""
    if is_jax_array(x):
        from jax import lax

        return lax.bitcast_convert_type(x, np.int32)
    return x.view(namespace(x).int32)


def from_float_bits(bits: Array) -> Array:
    """The fp32 values of int32 bits."""
    if is_jax_array(bits):
        from jax import lax

        return lax.bitcast_convert_type(bits, np.float32)
    return bits.view(namespace(bits).float32)


def settle(x: Array) -> Array:
    """`x`, rounded here: no compiler may fuse the operation that made it with one that uses it.

    For XLA `x != x` is taken from the bits: a zero that no optimizer can foresee, and what is not finite
    stays so.
    """
    return _disguise(x, x) if is_jax_array(x) else x


def divide(x: Array, y: Array) -> Array:
    """x / y by IEEE division, never by a reciprocal."""
    return x / (_disguise(y, x) if is_jax_array(x) else y)


def _disguise(y: Array, x: Array) -> Array:
    return from_float_bits(float_bits(y) - (x != x).astype(np.int32))


def to_half(x: Array) -> Array:
    """fp32 values rounded to the nearest fp16 value, ties to even, still as fp32. `|x| <= 65504`."""
    xp = namespace(x)
    half = xp.astype(x, xp.float16)
    if is_jax_array(x):
        from jax import lax

        bits = lax.bitcast_convert_type(half, np.int16) - (x != x).astype(np.int16)
        half = lax.bitcast_convert_type(bits, np.float16)
    return xp.astype(half, xp.float32)


def kth_largest(order: Array, k: int) -> Array:
    """The k-th largest of each row of non-negative integers [rows, n], as [rows, 1]. 1 <= k <= n."""
    n = order.shape[-1]
    if is_jax_array(order):
        return _kth_by_bits(order, k)
    if is_torch_array(order):
        if order.device.type != "cpu":
            return order.topk(k, dim=-1, sorted=True).values[..., -1:]
        part = np.partition(order.detach().numpy(), n - k, axis=-1)[..., n - k : n - k + 1]
        return namespace(order).asarray(part.copy())
    return np.partition(order, n - k, axis=-1)[..., n - k : n - k + 1]


def _kth_by_bits(order: Array, k: int) -> Array:
    # The largest t with at least k elements >= t, bit by bit: 32 counting passes, no sort.
    from jax import lax

    xp = namespace(order)
    words = order.astype(np.uint32)

    def step(i: Array, found: Array) -> Array:
        trial = found | (np.uint32(1) << (np.uint32(31) - i.astype(np.uint32)))
        enough = xp.sum(words >= trial, axis=-1, keepdims=True) >= k
        return xp.where(enough, trial, found)

    start = xp.zeros_like(words[..., :1])
    return lax.fori_loop(0, 32, step, start).astype(order.dtype)


def running_count(mask: Array) -> Array:
    """Number of True so far in each row, the element itself included."""
    xp = namespace(mask)
    if is_torch_array(mask) and mask.device.type == "cpu":
        return xp.asarray(np.cumsum(mask.numpy(), axis=-1, dtype=np.int32))
    return xp.cumulative_sum(mask, axis=-1, dtype=xp.int32)


def ascending(mask: Array, count: int) -> Array:
    """Ascending indices [count] of the True elements of a 1-D mask that has exactly `count` of them."""
    if is_jax_array(mask):
        return namespace(mask).nonzero(mask, size=count)[0]
    return mask.nonzero().flatten() if is_torch_array(mask) else np.flatnonzero(mask)


def scatter(numel: int, indices: Array, values: Array) -> Array:
    """Zeros [numel] with `values` at the distinct `indices`."""
    out = zeros(values, numel)
    if is_jax_array(values):
        return out.at[indices].set(values, unique_indices=True, indices_are_sorted=True)
    out[indices] = values
    return out


def words(like: Array, values: Any) -> Array:
    """Unsigned 32-bit words [n] from one integer [1] or from an array of integers.

    numpy and jax hold them as uint32; torch, which lacks arithmetic on those, as int64 below 2^32.
    """
    xp = namespace(like)
    if isinstance(values, int):
        values = np.asarray([values & _MASK], np.int64 if is_torch_array(like) else np.uint32)
    if is_torch_array(like):
        return xp.reshape(xp.asarray(values, dtype=xp.int64, **_place(like)) & _MASK, (-1,))
    return xp.reshape(xp.astype(xp.asarray(values), xp.uint32), (-1,))


def word_range(like: Array, count: int) -> Array:
    """The words 0 .. count - 1."""
    xp = namespace(like)
    return xp.arange(count, dtype=xp.int64 if is_torch_array(like) else xp.uint32, **_place(like))


def wrap(word: Array) -> Array:
    """A word modulo 2^32, after an addition or a multiplication."""
    return word & _MASK if is_torch_array(word) else word
