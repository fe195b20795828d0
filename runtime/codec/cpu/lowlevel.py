"""A few machine instructions that numba has no name for, as portable LLVM."""

from typing import Any

import llvmlite.ir as ir
import numpy as np
from numba import carray
from numba.core import types
from numba.extending import intrinsic as _intrinsic
from numba.extending import overload

# Its own type would have callers pass the typing context, which they do not.
intrinsic: Any = _intrinsic

LANES = 64
_CACHE_LINE = 64
_STREAMED = 16


def _at(context: Any, builder: Any, array_type: Any, array: Any, index: Any, vector: Any) -> Any:
    """Pointer to a vector that begins at an element of a contiguous array."""
    data = context.make_array(array_type)(context, builder, array).data
    return builder.bitcast(builder.gep(data, [index]), vector.as_pointer())


@intrinsic
def trailing_zeros(typing: Any, word: Any) -> Any:
    """Zero bits below the lowest 1 of a uint64; 64 of 0."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 0))

    return types.uint64(types.uint64), generate


@intrinsic
def leading_zeros(typing: Any, word: Any) -> Any:
    """Zero bits above the highest 1 of a uint64; 64 of 0."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.ctlz(arguments[0], ir.Constant(ir.IntType(1), 0))

    return types.uint64(types.uint64), generate


@intrinsic
def ones(typing: Any, word: Any) -> Any:
    """Bits of a uint64 that are 1."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.ctpop(arguments[0])

    return types.uint64(types.uint64), generate


@intrinsic
def to_bits(typing: Any, number: Any) -> Any:
    """The bits of a float32, as uint32."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], ir.IntType(32))

    return types.uint32(types.float32), generate


@intrinsic
def from_bits(typing: Any, word: Any) -> Any:
    """The float32 of bits."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], ir.FloatType())

    return types.float32(types.uint32), generate


@intrinsic
def reach(typing: Any, words: Any, at: Any, mask: Any, least: Any) -> Any:
    """Bit j: whether ``words[at + j] & mask >= least``, for 64 uint32 words of a contiguous array.

    Without the highest bit in `mask`, `least` must not have it either.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        vector = ir.VectorType(ir.IntType(32), LANES)
        pointer = _at(context, builder, signature.args[0], arguments[0], arguments[1], vector)
        loaded = builder.load(pointer, align=4)
        masked = builder.and_(loaded, _spread(builder, arguments[2], vector))
        # AVX2 compares signed numbers only: the sign is turned over where it counts.
        sign = builder.and_(arguments[2], ir.Constant(ir.IntType(32), 1 << 31))
        turned = builder.xor(masked, _spread(builder, sign, vector))
        bound = _spread(builder, builder.xor(arguments[3], sign), vector)
        below = builder.icmp_signed("<", turned, bound)
        return builder.not_(builder.bitcast(below, ir.IntType(64)))

    return types.uint64(words, types.intp, types.uint32, types.uint32), generate


@intrinsic
def add_lanes(typing: Any, values: Any, at: Any, weight: Any, residual: Any, begin: Any, adds: Any) -> Any:
    """64 times: residual <- weight * values (+ residual, if `adds`), unless a result is not finite.

    Returns bit j: whether that of ``values[at + j]`` is not; then nothing is stored.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        vector = ir.VectorType(ir.FloatType(), LANES)
        words = ir.VectorType(ir.IntType(32), LANES)
        given = _at(context, builder, signature.args[0], arguments[0], arguments[1], vector)
        place = _at(context, builder, signature.args[3], arguments[3], arguments[4], vector)
        product = builder.fmul(builder.load(given, align=4), _spread(builder, arguments[2], vector))
        before = builder.load(place, align=4)
        total = builder.select(arguments[5], builder.fadd(product, before), product)
        exponent = builder.and_(builder.bitcast(total, words), ir.Constant(words, [0x7F800000] * LANES))
        bad = builder.icmp_unsigned("==", exponent, ir.Constant(words, [0x7F800000] * LANES))
        mask = builder.bitcast(bad, ir.IntType(64))
        # A jump, as a choice between sum and residual would hold both in registers, more than there are.
        with builder.if_then(builder.icmp_unsigned("==", mask, ir.Constant(ir.IntType(64), 0)), likely=True):
            builder.store(total, place, align=4)
        return mask

    boolean = types.boolean
    return types.uint64(values, types.intp, types.float32, residual, types.intp, boolean), generate


@intrinsic
def raise_lanes(typing: Any, top: Any, at: Any, words: Any, begin: Any, mask: Any) -> Any:
    """64 times: top <- max(top, words & mask)."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        vector = ir.VectorType(ir.IntType(32), LANES)
        place = _at(context, builder, signature.args[0], arguments[0], arguments[1], vector)
        source = _at(context, builder, signature.args[2], arguments[2], arguments[3], vector)
        new = builder.and_(builder.load(source, align=4), _spread(builder, arguments[4], vector))
        old = builder.load(place, align=4)
        above = builder.icmp_unsigned(">", new, old)
        builder.store(builder.select(above, new, old), place, align=4)
        return context.get_dummy_value()

    return types.void(top, types.intp, words, types.intp, types.uint32), generate


def _spread(builder: Any, scalar: Any, vector: Any) -> Any:
    one = builder.insert_element(ir.Constant(vector, ir.Undefined), scalar, ir.Constant(ir.IntType(32), 0))
    zeros = ir.Constant(ir.VectorType(ir.IntType(32), vector.count), None)
    return builder.shuffle_vector(one, ir.Constant(vector, ir.Undefined), zeros)


@intrinsic
def load_word(typing: Any, data: Any, at: Any) -> Any:
    """Eight bytes of a uint8 array as one little-endian uint64, aligned or not."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = _at(context, builder, signature.args[0], arguments[0], arguments[1], ir.IntType(64))
        return builder.load(pointer, align=1)

    return types.uint64(data, types.intp), generate


def _prefetch(writes: int, level: int) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        byte = ir.IntType(8).as_pointer()
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        pointer = builder.bitcast(builder.gep(data, [arguments[1]]), byte)
        word = ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [byte, word, word, word])
        function = builder.module.declare_intrinsic("llvm.prefetch", [byte], kind)
        builder.call(function, [pointer, *(ir.Constant(word, n) for n in (writes, level, 1))])
        return context.get_dummy_value()

    return generate


@intrinsic
def prefetch(typing: Any, array: Any, at: Any) -> Any:
    """Ask for an element's cache line, to be written soon; any index will do."""
    return types.void(array, types.intp), _prefetch(1, 3)


@intrinsic
def look_ahead(typing: Any, array: Any, at: Any) -> Any:
    """Ask for an element's cache line, to be read later: into the second-level cache; any index will do."""
    return types.void(array, types.intp), _prefetch(0, 2)


@intrinsic
def past_line(typing: Any, array: Any, at: Any) -> Any:
    """Bytes from the start of its cache line to an element of a contiguous array."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = _at(context, builder, signature.args[0], arguments[0], arguments[1], ir.IntType(8))
        address = builder.ptrtoint(pointer, ir.IntType(64))
        return builder.and_(address, ir.Constant(ir.IntType(64), _CACHE_LINE - 1))

    return types.intp(array, types.intp), generate


@intrinsic
def move_line(typing: Any, out: Any, at: Any, source: Any, begin: Any) -> Any:
    """Move 16 fp32 values past the caches and leave zeros; ``out[at]`` must begin a cache line."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        vector = ir.VectorType(ir.FloatType(), _STREAMED)
        source = _at(context, builder, signature.args[2], arguments[2], arguments[3], vector)
        target = _at(context, builder, signature.args[0], arguments[0], arguments[1], vector)
        store = builder.store(builder.load(source, align=4), target, align=_CACHE_LINE)
        one = builder.module.add_metadata([ir.Constant(ir.IntType(32), 1)])
        store.set_metadata("nontemporal", one)
        builder.store(ir.Constant(vector, None), source, align=4)
        return context.get_dummy_value()

    return types.void(out, types.intp, source, types.intp), generate


@intrinsic
def _pointer(typing: Any, address: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], ir.IntType(8).as_pointer())

    return types.voidptr(types.uint64), generate


def bytes_at(address: int, n: int) -> Any:
    """n bytes of memory as a uint8 array, which owns nothing."""


@overload(bytes_at)
def _bytes_at(address: Any, n: Any) -> Any:
    def view(address: Any, n: Any) -> Any:
        return carray(_pointer(address), (n,), np.uint8)

    return view


@intrinsic
def borrowed(typing: Any, array: Any) -> Any:
    """The same array without a share in its memory, which its owner must outlive.

    Counting owners takes an atomic operation for every slice; in inner loops those add up.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        view = context.make_array(signature.return_type)(context, builder, arguments[0])
        view.meminfo = ir.Constant(view.meminfo.type, None)
        view.parent = ir.Constant(view.parent.type, None)
        return view._getvalue()

    return array(array), generate


@intrinsic
def fence(typing: Any) -> Any:
    """All that was stored before is seen before what is stored after, streamed values too."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        builder.fence("seq_cst")
        return context.get_dummy_value()

    return types.void(), generate
