"""LLVM IR of `lanes`: vector loads and stores between raw bytes and float32 carriers.

Each factory returns a `numba.extending.intrinsic`; twins in Python: `lanes_twin`.
"""

from __future__ import annotations

import functools
import re

import llvmlite.binding
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from npu_sim.isa.host import host_has

_I8P = ir.IntType(8).as_pointer()
_BITS_OF_2_TO_MINUS_51 = 76 << 23


def _byte_pointer(context, builder, array_type, array_value, byte_index):
    """Return an i8* to byte ``byte_index`` of a contiguous array."""
    array = context.make_array(array_type)(context, builder, array_value)
    return builder.gep(builder.bitcast(array.data, _I8P), [byte_index])


def _vector_pointer(builder, pointer, vector_type):
    return builder.bitcast(pointer, vector_type.as_pointer())


@functools.cache
def _converts_halves(machine):
    """Return whether the target has an instruction for fp16 to fp32 (x86: F16C).

    Without one LLVM calls a routine of a C runtime that need not be there. A feature list would not tell: the target's
    name alone can imply it.
    """
    source = (
        "define <16 x float> @widen(<16 x half> %v) {\n"
        "  %r = fpext <16 x half> %v to <16 x float>\n  ret <16 x float> %r\n}\n"
    )
    module = llvmlite.binding.parse_assembly(source)
    module.triple = machine.triple
    return not re.search("hfsf2|h2f_ieee", machine.emit_assembly(module))


def _load_halves(context, builder, pointer):
    """Load 16 fp16 and widen them: exact, a signalling NaN becomes quiet."""
    floats = ir.VectorType(ir.FloatType(), 16)
    if _converts_halves(context.codegen()._tm):
        halves = builder.load(_vector_pointer(builder, pointer, ir.VectorType(ir.HalfType(), 16)), align=2)
        return builder.fpext(halves, floats)
    wide = ir.VectorType(ir.IntType(32), 16)

    def constant(value):
        return ir.Constant(wide, [value] * 16)

    words = builder.load(_vector_pointer(builder, pointer, ir.VectorType(ir.IntType(16), 16)), align=2)
    words = builder.zext(words, wide)
    magnitude = builder.and_(words, constant(0x7FFF))
    sign = builder.shl(builder.and_(words, constant(0x8000)), constant(16))
    # normal numbers: the exponent's bias grows by 112; Inf and NaN: by 112 once more
    bits = builder.add(builder.shl(magnitude, constant(13)), constant(112 << 23))
    special = builder.icmp_unsigned(">=", magnitude, constant(0x7C00))
    bits = builder.select(special, builder.add(bits, constant(112 << 23)), bits)
    is_nan = builder.icmp_unsigned(">", magnitude, constant(0x7C00))
    bits = builder.select(is_nan, builder.or_(bits, constant(1 << 22)), bits)
    # subnormal numbers: an integer of 10 bits times 2^-24, exact and normal in float32
    small = builder.fmul(builder.sitofp(magnitude, floats), ir.Constant(floats, [2.0**-24] * 16))
    subnormal = builder.icmp_unsigned("<", magnitude, constant(0x0400))
    bits = builder.select(subnormal, builder.bitcast(small, wide), bits)
    return builder.bitcast(builder.or_(bits, sign), floats)


def decode(kind):
    """Build ``f(src: uint8[:], byte, dst: float32[:], index)`` for one 32-byte block of ``kind``."""

    @intrinsic
    def block(typingctx, src, src_byte, dst, dst_index):
        signature = types.void(src, types.intp, dst, types.intp)

        def codegen(context, builder, sig, args):
            lanes = 8 if kind == "fp32" else 16
            source = _byte_pointer(context, builder, sig.args[0], args[0], args[1])
            target_byte = builder.mul(args[3], ir.Constant(args[3].type, 4))
            target = _byte_pointer(context, builder, sig.args[2], args[2], target_byte)
            out_type = ir.VectorType(ir.FloatType(), lanes)
            if kind == "fp16":
                values = _load_halves(context, builder, source)
            elif kind == "bf16":
                words = builder.load(_vector_pointer(builder, source, ir.VectorType(ir.IntType(16), 16)), align=2)
                wide = ir.VectorType(ir.IntType(32), 16)
                shifted = builder.shl(builder.zext(words, wide), ir.Constant(wide, [16] * 16))
                values = builder.bitcast(shifted, out_type)
            else:
                values = builder.load(_vector_pointer(builder, source, out_type), align=4)
            builder.store(values, _vector_pointer(builder, target, out_type), align=4)
            return context.get_dummy_value()

        return signature, codegen

    return block


@intrinsic
def copy(typingctx, dst, dst_byte, src, src_byte, length):
    """Copy ``length`` bytes between two arrays; the ranges are disjoint."""
    signature = types.void(dst, types.intp, src, types.intp, types.intp)

    def codegen(context, builder, sig, args):
        target = _byte_pointer(context, builder, sig.args[0], args[0], args[1])
        source = _byte_pointer(context, builder, sig.args[2], args[2], args[3])
        cgutils.raw_memcpy(builder, target, source, args[4], 1)
        return context.get_dummy_value()

    return signature, codegen


@intrinsic
def add_block(typingctx, dst, dst_byte, src, src_index):
    """Add the 8 float32 at ``src[src_index]`` to those at byte ``dst_byte``."""
    signature = types.void(dst, types.intp, src, types.intp)

    def codegen(context, builder, sig, args):
        vector = ir.VectorType(ir.FloatType(), 8)
        target = _vector_pointer(builder, _byte_pointer(context, builder, sig.args[0], args[0], args[1]), vector)
        byte = builder.mul(args[3], ir.Constant(args[3].type, 4))
        source = _vector_pointer(builder, _byte_pointer(context, builder, sig.args[2], args[2], byte), vector)
        total = builder.fadd(builder.load(target, align=1), builder.load(source, align=4))
        builder.store(total, target, align=1)
        return context.get_dummy_value()

    return signature, codegen


@intrinsic
def splat(typingctx, dst, index, value):
    """Store 16 copies of ``value`` at ``dst[index]``."""
    signature = types.void(dst, types.intp, types.float32)

    def codegen(context, builder, sig, args):
        byte = builder.mul(args[1], ir.Constant(args[1].type, 4))
        target = _byte_pointer(context, builder, sig.args[0], args[0], byte)
        vector = ir.VectorType(ir.FloatType(), 16)
        splat = ir.Constant(vector, ir.Undefined)
        splat = builder.insert_element(splat, args[2], ir.Constant(ir.IntType(32), 0))
        mask = ir.Constant(ir.VectorType(ir.IntType(32), 16), [0] * 16)
        splat = builder.shuffle_vector(splat, ir.Constant(vector, ir.Undefined), mask)
        builder.store(splat, _vector_pointer(builder, target, vector), align=4)
        return context.get_dummy_value()

    return signature, codegen


@intrinsic
def compress(typingctx, src, src_index, mask, dst, dst_index):
    """Store those of the 16 lanes at ``src[src_index]`` that ``mask`` names, adjacent, at ``dst[dst_index]``.

    Sixteen are written: what stands behind the named ones means nothing.
    """
    signature = types.void(src, types.intp, types.intp, dst, types.intp)

    def codegen(context, builder, sig, args):
        def place(array, index):
            byte = builder.mul(args[index], ir.Constant(args[index].type, 4))
            return _byte_pointer(context, builder, sig.args[array], args[array], byte)

        mask = builder.trunc(args[2], ir.IntType(16))
        # without AVX2 LLVM goes lane by lane; only AVX-512 has an instruction
        shuffles = host_has("avx2") and not host_has("avx512f")
        pack = _pack_halves if shuffles else _pack_lanes
        pack(builder, place(0, 1), mask, place(3, 4))
        return context.get_dummy_value()

    return signature, codegen


def _pack_lanes(builder, source, mask, target):
    """`compress` as LLVM has it."""
    vector, lanes = ir.VectorType(ir.IntType(32), 16), ir.VectorType(ir.IntType(1), 16)
    kind = ir.FunctionType(vector, [vector, lanes, vector])
    function = cgutils.get_or_insert_function(builder.module, kind, "llvm.experimental.vector.compress.v16i32")
    bits = builder.load(_vector_pointer(builder, source, vector), align=4)
    packed = builder.call(function, [bits, builder.bitcast(mask, lanes), ir.Constant(vector, ir.Undefined)])
    builder.store(packed, _vector_pointer(builder, target, vector), align=4)


def _pack_halves(builder, source, mask, target):
    """`compress` of 8 lanes and 8 more, each by one shuffle of AVX2, whose order is in a table."""
    vector = ir.VectorType(ir.IntType(32), 8)
    orders = [sorted(range(8), key=lambda lane, named=named: not named >> lane & 1) for named in range(256)]
    table = cgutils.global_constant(
        builder, "npu_sim_lane_orders", ir.Constant(ir.ArrayType(vector, 256), [ir.Constant(vector, o) for o in orders])
    )
    kind = ir.FunctionType(vector, [vector, vector])
    shuffle = cgutils.get_or_insert_function(builder.module, kind, "llvm.x86.avx2.permd")
    low = builder.and_(mask, ir.Constant(mask.type, 0xFF))
    high = builder.lshr(mask, ir.Constant(mask.type, 8))
    count = builder.zext(builder.ctpop(low), ir.IntType(64))
    behind = builder.gep(target, [builder.mul(count, ir.Constant(count.type, 4))])
    packed = []
    for half, named in enumerate((low, high)):
        lanes = builder.gep(source, [ir.Constant(ir.IntType(64), 32 * half)])
        bits = builder.load(_vector_pointer(builder, lanes, vector), align=4)
        order = builder.load(builder.gep(table, [ir.IntType(32)(0), builder.zext(named, ir.IntType(32))]), align=32)
        packed.append(builder.call(shuffle, [bits, order]))
    for bits, place in zip(packed, (target, behind), strict=True):
        builder.store(bits, _vector_pointer(builder, place, vector), align=4)


def _lanes_where(kept, test):
    """Build ``f(values: float32[:], index, count) -> int64``: bit i tells of lane i what its ``count`` values are like.

    There are ``count`` adjacent vectors of 16 lanes, the first at ``index``. ``kept`` are (first value, how the next
    comes from it and the bits of a vector); ``test(builder, *kept)`` looks at them behind the last vector.
    """

    @intrinsic
    def lanes(typingctx, values, index, count):
        signature = types.int64(values, types.intp, types.intp)

        def codegen(context, builder, sig, args):
            vector = ir.VectorType(ir.IntType(32), 16)
            places = [cgutils.alloca_once_value(builder, ir.Constant(vector, [first] * 16)) for first, _ in kept]
            with cgutils.for_range(builder, args[2]) as loop:
                at = builder.add(args[1], builder.mul(loop.index, ir.Constant(args[1].type, 16)))
                byte = builder.mul(at, ir.Constant(at.type, 4))
                source = _byte_pointer(context, builder, sig.args[0], args[0], byte)
                bits = builder.load(_vector_pointer(builder, source, vector), align=4)
                for place, (_, combine) in zip(places, kept, strict=True):
                    builder.store(combine(builder, builder.load(place), bits), place)
            mask = test(builder, *(builder.load(place) for place in places))
            return builder.zext(builder.bitcast(mask, ir.IntType(16)), ir.IntType(64))

        return signature, codegen

    return lanes


def _splat_bits(like, value):
    return ir.Constant(like.type, [value] * 16)


def _magnitude(builder, bits):
    return builder.and_(bits, _splat_bits(bits, 0x7FFFFFFF))


def _compare(builder, predicate, a, value):
    return builder.icmp_unsigned(predicate, a, _splat_bits(a, value))


def _either(builder, kept, bits):
    return builder.or_(kept, bits)


def _smallest(builder, kept, bits):
    """Keep the smallest magnitude less 1, unsigned, so that zero is the largest."""
    value = builder.sub(_magnitude(builder, bits), _splat_bits(bits, 1))
    return builder.select(builder.icmp_unsigned("<", value, kept), value, kept)


def _largest(builder, kept, bits):
    value = _magnitude(builder, bits)
    return builder.select(builder.icmp_unsigned(">", value, kept), value, kept)


def _most_negative(builder, kept, bits):
    """Keep the smallest signed number that the bits are: -0 is the smallest of all."""
    return builder.select(builder.icmp_signed("<", bits, kept), bits, kept)


def _is_fragile(builder, smallest, largest, negative):
    extreme = builder.or_(
        _compare(builder, "<", smallest, 0x00800000 - 1), _compare(builder, ">=", largest, 0x7F800000)
    )
    return builder.or_(extreme, _compare(builder, "==", negative, 0x80000000))


def _is_tiny(builder, smallest):
    return _compare(builder, "<", smallest, _BITS_OF_2_TO_MINUS_51 - 1)


def _is_outside(smallest, largest):
    """Build the test for numbers below 2^``smallest`` but not zero, or from 2^``largest`` on, or with a third: -0."""

    def test(builder, least, most, negative=None):
        tiny = _compare(builder, "<", least, ((127 + smallest) << 23) - 1)
        found = builder.or_(tiny, _compare(builder, ">=", most, (127 + largest) << 23))
        return found if negative is None else builder.or_(found, _compare(builder, "==", negative, 0x80000000))

    return test


def transpose(kind):
    """Build ``f(src: uint8[:], byte, dst: float32[:], index)``: decode a 512-byte fractal and transpose it.

    16-bit: 16 rows of 16 elements, dst[16 c + r] = src[r][c].  fp32: 16 rows of 8, dst[16 c + r] = src[r][c].
    Squares of 8 by 8: vectors of 8 are registers of every x86 host, and no shuffle crosses more than halves of them.
    """

    @intrinsic
    def fractal(typingctx, src, src_byte, dst, dst_index):
        signature = types.void(src, types.intp, dst, types.intp)

        def codegen(context, builder, sig, args):
            lanes = 8 if kind == "fp32" else 16
            row_type = ir.VectorType(ir.FloatType(), lanes)
            rows = []
            for r in range(16):
                at = builder.add(args[1], ir.Constant(args[1].type, 32 * r))
                source = _byte_pointer(context, builder, sig.args[0], args[0], at)
                if kind == "fp16":
                    rows.append(_load_halves(context, builder, source))
                elif kind == "bf16":
                    word = builder.load(_vector_pointer(builder, source, ir.VectorType(ir.IntType(16), 16)), align=2)
                    wide = ir.VectorType(ir.IntType(32), 16)
                    shifted = builder.shl(builder.zext(word, wide), ir.Constant(wide, [16] * 16))
                    rows.append(builder.bitcast(shifted, row_type))
                else:
                    rows.append(builder.load(_vector_pointer(builder, source, row_type), align=4))
            for first in range(0, lanes, 8):
                for half in (0, 8):
                    square = [_some_lanes(builder, row, range(first, first + 8)) for row in rows[half : half + 8]]
                    for c, column in enumerate(_transposed_square(builder, square)):
                        at = 16 * (first + c) + half
                        element = builder.add(args[3], ir.Constant(args[3].type, at))
                        byte = builder.mul(element, ir.Constant(args[3].type, 4))
                        target = _byte_pointer(context, builder, sig.args[2], args[2], byte)
                        builder.store(column, _vector_pointer(builder, target, column.type), align=4)
            return context.get_dummy_value()

        return signature, codegen

    return fractal


def _some_lanes(builder, a, lanes, b=None):
    """Return a vector of the numbered lanes of ``a`` and behind them those of ``b``."""
    mask = ir.Constant(ir.VectorType(ir.IntType(32), len(lanes)), list(lanes))
    return builder.shuffle_vector(a, a if b is None else b, mask)


def _transposed_square(builder, rows):
    """Return the columns of 8 vectors of 8 lanes of 32 bits, by shuffles as SSE and AVX have them."""
    columns = []
    for first in (0, 4):
        halves = [*range(first, first + 4), *range(first + 8, first + 12)]
        # in each half of 4 lanes one 4 by 4 square: rows 0 to 3, rows 4 to 7
        a, b, c, d = (_some_lanes(builder, rows[r], halves, rows[r + 4]) for r in range(4))
        for unpack in ((0, 8, 1, 9, 4, 12, 5, 13), (2, 10, 3, 11, 6, 14, 7, 15)):
            ab, cd = _some_lanes(builder, a, unpack, b), _some_lanes(builder, c, unpack, d)
            columns.append(_some_lanes(builder, ab, (0, 1, 8, 9, 4, 5, 12, 13), cd))
            columns.append(_some_lanes(builder, ab, (2, 3, 10, 11, 6, 7, 14, 15), cd))
    return columns


def _interleave_transpose(builder, rows):
    """Transpose 16 vectors of 16 lanes.

    Pairs of vectors are merged by interleaving, log2(16) rounds, which keeps every step in registers. Lane labels are
    tracked symbolically, so the network is right by construction.
    """
    # position[v][lane] = (r, c) held by vector v at that lane
    position = [[(r, c) for c in range(16)] for r in range(16)]
    vectors = list(rows)
    span = 8
    while span >= 1:
        merged, merged_position = [None] * 16, [None] * 16
        for base in range(0, 16, 2 * span):
            for i in range(span):
                a, b = base + i, base + i + span
                for half in range(2):
                    # the columns of a pair split by one bit of their number; each output keeps one value of that bit
                    keep_a = [lane for lane in range(16) if (position[a][lane][1] // span) & 1 == half]
                    keep_b = [lane for lane in range(16) if (position[b][lane][1] // span) & 1 == half]
                    labels = [(position[a][lane], lane) for lane in keep_a]
                    labels += [(position[b][lane], 16 + lane) for lane in keep_b]
                    labels.sort(key=lambda item: (item[0][1], item[0][0]))
                    slot = base + i + half * span
                    merged[slot] = _some_lanes(builder, vectors[a], [lane for _, lane in labels], vectors[b])
                    merged_position[slot] = [label for label, _ in labels]
        vectors, position = merged, merged_position
        span //= 2
    ordered = [None] * 16
    for vector, labels in zip(vectors, position, strict=True):
        ordered[labels[0][1]] = vector
    return ordered


def transpose_blocks(bits):
    """Build ``f(data: uint8[:], addresses: int64[32], source shift, target shift)``: 16 blocks of 32 bytes transposed.

    The blocks start at the first 16 addresses, the results at the other 16. Words of ``bits`` 16: result i holds word i
    of all blocks; 32: results 2 i and 2 i + 1 do. All is read before anything is written.
    """

    @intrinsic
    def blocks(typingctx, data, addresses, source_shift, target_shift):
        signature = types.void(data, addresses, types.intp, types.intp)

        def codegen(context, builder, sig, args):
            lanes = 256 // bits
            word = ir.IntType(bits)
            block_type = ir.VectorType(word, lanes)

            def block(i, shift):
                place = _byte_pointer(context, builder, sig.args[1], args[1], ir.Constant(shift.type, 8 * i))
                address = builder.load(builder.bitcast(place, ir.IntType(64).as_pointer()), align=4)
                where = _byte_pointer(context, builder, sig.args[0], args[0], builder.add(address, shift))
                return _vector_pointer(builder, where, block_type)

            rows = [builder.load(block(i, args[2]), align=bits // 8) for i in range(16)]
            if lanes == 8:
                halves = [_transposed_square(builder, rows[first : first + 8]) for first in (0, 8)]
                columns = [half[c] for c in range(8) for half in halves]
            else:
                columns = _interleave_transpose(builder, rows)
            for i, column in enumerate(columns):
                builder.store(column, block(16 + i, args[3]), align=bits // 8)
            return context.get_dummy_value()

        return signature, codegen

    return blocks


nonzero = _lanes_where([(0, _either)], lambda builder, bits: _compare(builder, "!=", _magnitude(builder, bits), 0))
fragile = _lanes_where([(0xFFFFFFFF, _smallest), (0, _largest), (0, _most_negative)], _is_fragile)
tiny = _lanes_where([(0xFFFFFFFF, _smallest)], _is_tiny)
awkward = _lanes_where(
    [(0xFFFFFFFF, _smallest), (0, _largest)],
    lambda builder, smallest, largest: builder.or_(
        _is_tiny(builder, smallest), _compare(builder, ">=", largest, 0x7F800000)
    ),
)
minus_zero = _lanes_where(
    [(0, _most_negative)], lambda builder, negative: _compare(builder, "==", negative, 0x80000000)
)
nan = _lanes_where([(0, _largest)], lambda builder, largest: _compare(builder, ">", largest, 0x7F800000))
unusual = _lanes_where([(0xFFFFFFFF, _smallest), (0, _largest)], _is_outside(-24, 40))
extreme = _lanes_where([(0xFFFFFFFF, _smallest), (0, _largest), (0, _most_negative)], _is_outside(-102, 126))
