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
LINE = 16  # elements of 4 bytes in a cache line
_CACHE_LINE = 4 * LINE
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
def count_reach(typing: Any, words: Any, at: Any, mask: Any, least: Any) -> Any:
    """How many bits of `reach` are 1, for masked words and `least` below 2^31.

    They are counted 16 at a time, which is faster than to put 64 together first.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        vector = ir.VectorType(ir.IntType(32), _STREAMED)
        bound = _spread(builder, arguments[3], vector)
        mask = _spread(builder, arguments[2], vector)
        total = ir.Constant(ir.IntType(64), 0)
        for i in range(0, LANES, _STREAMED):
            index = builder.add(arguments[1], ir.Constant(arguments[1].type, i))
            pointer = _at(context, builder, signature.args[0], arguments[0], index, vector)
            reached = builder.icmp_signed(">=", builder.and_(builder.load(pointer, align=4), mask), bound)
            few = builder.ctpop(builder.bitcast(reached, ir.IntType(_STREAMED)))
            total = builder.add(total, builder.zext(few, ir.IntType(64)))
        return total

    return types.intp(words, types.intp, types.uint32, types.uint32), generate


def _for_each_hit(builder: Any, hits: Any, to: Any, body: Any) -> Any:
    """A loop over the 1 bits of a uint64, lowest first: body(number of the bit, to), body(…, to + 1), …

    Returns where it ends.
    """
    long = ir.IntType(64)
    zero, one = ir.Constant(long, 0), ir.Constant(long, 1)
    before, loop, after = builder.block, *(builder.append_basic_block() for _ in range(2))
    builder.cbranch(builder.icmp_unsigned("!=", hits, zero), loop, after)
    builder.position_at_end(loop)
    left, end = builder.phi(long), builder.phi(long)
    body(builder.cttz(left, ir.Constant(ir.IntType(1), 1)), end)
    rest, next_ = builder.and_(left, builder.sub(left, one)), builder.add(end, one)
    for phi, start, then in ((left, hits, rest), (end, to, next_)):
        phi.add_incoming(start, before)
        phi.add_incoming(then, loop)
    builder.cbranch(builder.icmp_unsigned("!=", rest, zero), loop, after)
    builder.position_at_end(after)
    result = builder.phi(long)
    result.add_incoming(to, before)
    result.add_incoming(next_, loop)
    return result


@intrinsic
def take_hits(typing: Any, hits: Any, words: Any, at: Any, first: Any, found: Any, kept: Any, to: Any) -> Any:
    """For each bit j of `hits`, lowest first: ``first + j`` appended to `found`, ``words[at + j]`` to `kept`.

    Both are filled from `to` on. Returns where they end after it.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        hits, words, at, first, found, kept, to = arguments
        types_ = signature.args
        source, places, out = (
            context.make_array(types_[i])(context, builder, array).data
            for i, array in ((1, words), (4, found), (5, kept))
        )
        position = context.get_data_type(types_[4].dtype)

        def take(j: Any, end: Any) -> None:
            builder.store(builder.load(builder.gep(source, [builder.add(at, j)])), builder.gep(out, [end]))
            place = builder.add(first, j)
            builder.store(
                builder.trunc(place, position) if position.width < place.type.width else place,
                builder.gep(places, [end]),
            )

        return _for_each_hit(builder, hits, to, take)

    return types.intp(types.uint64, words, types.intp, types.intp, found, kept, types.intp), generate


@intrinsic
def move_hits(
    typing: Any, hits: Any, found: Any, words: Any, at: Any, found_out: Any, words_out: Any, to: Any
) -> Any:
    """As `take_hits`, of ``found[at + j]`` and ``words[at + j]`` into the outputs."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = [
            context.make_array(signature.args[i])(context, builder, arguments[i]).data for i in (1, 2, 4, 5)
        ]

        def move(j: Any, end: Any) -> None:
            for source, out in zip(data[:2], data[2:], strict=True):
                value = builder.load(builder.gep(source, [builder.add(arguments[3], j)]))
                builder.store(value, builder.gep(out, [end]))

        return _for_each_hit(builder, arguments[0], arguments[6], move)

    return types.intp(types.uint64, found, words, types.intp, found_out, words_out, types.intp), generate


@intrinsic
def add_lanes(typing: Any, values: Any, at: Any, weight: Any, residual: Any, begin: Any, adds: Any) -> Any:
    """64 times: residual <- weight * values (+ residual, if `adds`), unless a result is not finite.

    Returns whether all are; else nothing is stored.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        vector = ir.VectorType(ir.FloatType(), LANES)
        words = ir.VectorType(ir.IntType(32), LANES)
        given = _at(context, builder, signature.args[0], arguments[0], arguments[1], vector)
        place = _at(context, builder, signature.args[3], arguments[3], arguments[4], vector)
        product = builder.fmul(builder.load(given, align=4), _spread(builder, arguments[2], vector))
        before = builder.load(place, align=4)
        total = builder.select(arguments[5], builder.fadd(product, before), product)
        size = builder.and_(builder.bitcast(total, words), ir.Constant(words, [0x7FFFFFFF] * LANES))
        fine = _all_below(builder, size, 0x7F800000)
        # A jump, as a choice between sum and residual would hold both in registers, more than there are.
        with builder.if_then(fine, likely=True):
            builder.store(total, place, align=4)
        return fine

    boolean = types.boolean
    return boolean(values, types.intp, types.float32, residual, types.intp, boolean), generate


def _all_below(builder: Any, words: Any, bound: int) -> Any:
    """Whether all of a vector of unsigned words are; halves are compared with halves, as maxima are cheap."""
    count = words.type.count
    while count > _STREAMED:
        count //= 2
        low, high = (
            builder.shuffle_vector(
                words, words, ir.Constant(ir.VectorType(ir.IntType(32), count), list(places))
            )
            for places in (range(count), range(count, 2 * count))
        )
        words = builder.select(builder.icmp_unsigned(">", low, high), low, high)
    reached = builder.icmp_unsigned(">=", words, ir.Constant(words.type, [bound] * count))
    bits = builder.bitcast(reached, ir.IntType(count))
    return builder.icmp_unsigned("==", bits, ir.Constant(bits.type, 0))


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


@intrinsic
def store_half(typing: Any, data: Any, at: Any, word: Any) -> Any:
    """The lower half of a uint64 as four little-endian bytes of a uint8 array, aligned or not."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        half = ir.IntType(32)
        pointer = _at(context, builder, signature.args[0], arguments[0], arguments[1], half)
        builder.store(builder.trunc(arguments[2], half), pointer, align=1)
        return context.get_dummy_value()

    return types.void(data, types.intp, types.uint64), generate


def _prefetch(writes: int, level: int, places: int = 1) -> Any:
    """Of an array at an index, and where there are more places, each a step after the last."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        byte, word = ir.IntType(8).as_pointer(), ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [byte, word, word, word])
        function = builder.module.declare_intrinsic("llvm.prefetch", [byte], kind)
        data, place = context.make_array(signature.args[0])(context, builder, arguments[0]).data, arguments[1]
        for i in range(places):
            if i:
                place = builder.add(place, arguments[2])
            pointer = builder.bitcast(builder.gep(data, [place]), byte)
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
def look_ahead_four(typing: Any, array: Any, at: Any, step: Any) -> Any:
    """`look_ahead` at four places, each `step` elements after the last."""
    return types.void(array, types.intp, types.intp), _prefetch(0, 2, 4)


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
