"""LLVM IR of the micro-kernels: register tiles that Numba's own vectoriser does not find.

Each factory returns a `numba.extending.intrinsic`. The IR names every floating-point operation (``llvm.fma``, fpext,
fptrunc) without fast-math flags, so the bits of an element depend on its operands only: tile shapes and the width of
the host's vectors change the speed. Callers and the meaning of all arguments: `microkernel`; twins: `microkernel_twin`.
"""

# mypy: ignore-errors

from __future__ import annotations

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

_I32 = ir.IntType(32)
_I64 = ir.IntType(64)
_F32 = ir.FloatType()
_F64 = ir.DoubleType()
LANES32 = 16
LANES64 = 8


def _vector(element, lanes):
    return ir.VectorType(element, lanes)


def _constant(vector_type, value):
    return ir.Constant(vector_type, [value] * vector_type.count)


def _pointer(context, builder, array_type, array, offset):
    """Return a pointer to element ``offset`` of a contiguous array."""
    return builder.gep(context.make_array(array_type)(context, builder, array).data, [offset])


def _load(builder, pointer, vector_type):
    value = builder.load(builder.bitcast(pointer, vector_type.as_pointer()))
    value.align = 4 if vector_type.element in (_F32, _I32) else 8
    return value


def _store(builder, value, pointer):
    stored = builder.store(value, builder.bitcast(pointer, value.type.as_pointer()))
    stored.align = 4 if value.type.element in (_F32, _I32) else 8


def _splat(builder, scalar, lanes):
    vector_type = _vector(scalar.type, lanes)
    undefined = ir.Constant(vector_type, ir.Undefined)
    single = builder.insert_element(undefined, scalar, _I32(0))
    return builder.shuffle_vector(single, undefined, _constant(_vector(_I32, lanes), 0))


def _call_fma(builder, a, b, c):
    """Return a * b + c with one rounding (``llvm.fma`` on vectors)."""
    suffix = "f32" if a.type.element == _F32 else "f64"
    signature = ir.FunctionType(a.type, [a.type] * 3)
    function = cgutils.get_or_insert_function(builder.module, signature, f"llvm.fma.v{a.type.count}{suffix}")
    return builder.call(function, [a, b, c])


def _repeat_while(builder, carried, body, between=None):
    """Emit a loop that runs ``body`` at least once.

    ``body(values)`` gets the loop-carried values and returns (new values, i1: run again); what it gets then is
    ``between(new values)``, if there is such a function. The values behind the last round are returned.
    """
    before = builder.block
    loop = builder.append_basic_block("loop")
    after = builder.append_basic_block("after")
    builder.branch(loop)
    builder.position_at_end(loop)
    phis = []
    for value in carried:
        phi = builder.phi(value.type)
        phi.add_incoming(value, before)
        phis.append(phi)
    values, again = body(phis)
    following = values
    if between is None:
        builder.cbranch(again, loop, after)
    else:
        next_round = builder.append_basic_block("next")
        builder.cbranch(again, next_round, after)
        builder.position_at_end(next_round)
        following = between(values)
        builder.branch(loop)
    for phi, value in zip(phis, following, strict=True):
        phi.add_incoming(value, builder.block)
    builder.position_at_end(after)
    return values


def _repeat(builder, count, carried, body):
    """Emit ``count`` >= 1 rounds of ``body(values) -> values``."""

    def step(values):
        left = builder.sub(values[0], _I64(1))
        return [left, *body(values[1:])], builder.icmp_signed(">", left, _I64(0))

    return _repeat_while(builder, [count, *carried], step)[1:]


def _keep_out_of_line(builder):
    """Forbid inlining the function under construction: callers have several calls, and compile all that they inline."""
    builder.function.attributes.add("noinline")


def _at_most(builder, value, limit):
    return builder.select(builder.icmp_signed("<", value, limit), value, limit)


def _load_or_zero(builder, init, pointers, vector_type):
    """Load the accumulators, or give zeros when ``init`` is not 0 (memory is then not read: it may hold poison)."""
    zero = _constant(vector_type, 0.0)
    before = builder.block
    read = builder.append_basic_block("read")
    ready = builder.append_basic_block("ready")
    builder.cbranch(builder.icmp_signed("!=", init, _I64(0)), ready, read)
    builder.position_at_end(read)
    loaded = [_load(builder, pointer, vector_type) for pointer in pointers]
    builder.branch(ready)
    builder.position_at_end(ready)
    values = []
    for value in loaded:
        phi = builder.phi(vector_type)
        phi.add_incoming(zero, before)
        phi.add_incoming(value, read)
        values.append(phi)
    return values


def _fma_step(builder, rows, columns, acc):
    """Add one k: ``rows[r]()`` gives the broadcast A element of row r; ``columns`` are the B vectors."""
    new = []
    for r, broadcast in enumerate(rows):
        a = broadcast()
        for j, column in enumerate(columns):
            new.append(_call_fma(builder, a, column, acc[r * len(columns) + j]))
    return new


def _row_pointers(builder, row, row_count, columns):
    """Return where the next ``row_count`` rows begin in each of ``columns``; ``row`` points to their offsets."""
    places = [builder.load(builder.gep(row, [_I64(r)])) for r in range(row_count)]
    return [builder.gep(column, [place]) for place in places for column in columns]


def serial_tile(row_count, column_count):
    """Build the float32 chain on tiles of ``row_count`` rows and ``column_count`` vectors of 16 columns."""

    @intrinsic
    def tile(
        typing_context, a, a_at, b, b_at, c, c_at, rows, k, chunk, a_line, a_step, b_step, b_column, c_column, init,
        tiles, a_row, lane, lanes,
    ):  # fmt: skip
        index = types.int64
        signature = types.void(a, index, b, index, c, index, rows, *[index] * 12)

        def codegen(context, builder, signature, args):
            _keep_out_of_line(builder)
            a, a_at, b, b_at, c, c_at, rows, k, chunk, a_line, a_step, b_step, b_column, c_column, init = args[:15]
            tiles, a_row, first_lane, lanes = args[15:]
            vector_type = _vector(_F32, LANES32)
            b_first = _pointer(context, builder, signature.args[2], b, b_at)
            next_fractal = builder.sub(a_row, builder.sub(lanes, _I64(row_count)))

            def one_k(values):
                a_now, b_now, *acc = values
                columns = [
                    _load(builder, builder.gep(b_now, [builder.mul(b_column, _I64(j))]), vector_type)
                    for j in range(column_count)
                ]
                rows = [
                    lambda r=r: _splat(builder, builder.load(builder.gep(a_now, [_I64(r)])), LANES32)
                    for r in range(row_count)
                ]
                new = _fma_step(builder, rows, columns, acc)
                return [builder.gep(a_now, [a_line]), builder.gep(b_now, [_I64(16)]), *new]

            def one_chunk(values):
                left, a_now, b_now, *acc = values
                count = _at_most(builder, left, chunk)
                new = _repeat(builder, count, [a_now, b_now, *acc], one_k)[2:]
                left = builder.sub(left, count)
                moved = [left, builder.gep(a_now, [a_step]), builder.gep(b_now, [b_step]), *new]
                return moved, builder.icmp_signed(">", left, _I64(0))

            def one_tile(values):
                lane, a_first, row = values
                targets = _row_pointers(builder, row, row_count, c_columns)
                acc = _load_or_zero(builder, init, targets, vector_type)
                acc = _repeat_while(builder, [k, a_first, b_first, *acc], one_chunk)[3:]
                for value, target in zip(acc, targets, strict=True):
                    _store(builder, value, target)
                lane = builder.add(lane, _I64(row_count))
                is_last = builder.icmp_signed("==", lane, lanes)
                a_first = builder.gep(a_first, [builder.select(is_last, next_fractal, _I64(row_count))])
                return [builder.select(is_last, _I64(0), lane), a_first, builder.gep(row, [_I64(row_count)])]

            a_first = _pointer(context, builder, signature.args[0], a, a_at)
            c_first = _pointer(context, builder, signature.args[4], c, c_at)
            c_columns = [builder.gep(c_first, [builder.mul(c_column, _I64(j))]) for j in range(column_count)]
            row = _pointer(context, builder, signature.args[6], rows, _I64(0))
            _repeat(builder, tiles, [first_lane, a_first, row], one_tile)
            return context.get_dummy_value()

        return signature, codegen

    return tile


def _round_by_subtraction(builder, s):
    """Round float64 lanes to 24 significant bits, to nearest even, by what leaves the multipliers free.

    t = 2^29 s - s has its last place where float32 has it, so the rounding of t is the rounding of s: 2^29 s is a
    multiple of that last place, and an even one when s lies half way. Just above a power of two t drops one binade and
    keeps one bit more; s is then within 2^-6 places of the power, which both grids contain. 2^29 s - t is exact.
    2^29 s is s with another exponent; of a zero it is no zero, but it cancels: zeros become +0.
    Equal to fptrunc where s is a multiple of 2^-149 (below 2^-126 both then keep it as it is), not -0, and the result
    is finite. The caller must know that (`cube_exact`, "fast").
    """
    bits = builder.bitcast(s, _vector(_I64, s.type.count))
    scaled = builder.bitcast(builder.add(bits, _constant(bits.type, 29 << 52)), s.type)
    return builder.fsub(scaled, builder.fsub(scaled, s))


def _round_by_conversion(builder, s, limit, floor):
    """Round float64 lanes to float32 and back: to nearest even, but toward zero where that is above ``limit``.

    Then what is below ``floor`` (int32 bits of a float32) becomes a zero of its sign.
    """
    single = builder.fptrunc(s, _vector(_F32, LANES64))
    magnitude = _magnitude(builder, builder.fpext(single, s.type))
    away = builder.fcmp_ordered(">", magnitude, _magnitude(builder, s))
    # One step toward zero in the bit pattern: the largest finite value follows Inf, zero the smallest subnormal.
    step = builder.zext(builder.and_(away, builder.fcmp_ordered(">", magnitude, limit)), _vector(_I32, LANES64))
    bits = builder.sub(builder.bitcast(single, step.type), step)
    sign = builder.and_(bits, _constant(bits.type, 0x80000000))
    is_small = builder.icmp_unsigned("<", builder.xor(bits, sign), floor)
    return builder.fpext(builder.bitcast(builder.select(is_small, sign, bits), single.type), s.type)


def _magnitude(builder, s):
    bits_type = _vector(_I64, LANES64)
    bits = builder.and_(builder.bitcast(s, bits_type), _constant(bits_type, (1 << 63) - 1))
    return builder.bitcast(bits, s.type)


def exact_tile(row_count, vector_count, *, fast):
    """Build the grouped float64 sum on tiles of ``row_count`` rows and ``vector_count`` vectors of 8 columns."""

    @intrinsic
    def tile(
        typing_context, a, a_at, b, b_at, c, c_at, rows, half, c_column, k, group, limit, floor, init, tiles, a_tile,
        b_skip,
    ):  # fmt: skip
        index = types.int64
        signature = types.void(a, index, b, index, c, index, rows, *[index] * 4, types.float64, *[index] * 5)

        def codegen(context, builder, signature, args):
            _keep_out_of_line(builder)
            a, a_at, b, b_at, c, c_at, rows, half, c_column, k, group, limit, floor, init, tiles = args[:15]
            a_tile, b_skip = args[15:]
            wide, narrow = _vector(_F64, LANES64), _vector(_F32, LANES64)
            b_first = _pointer(context, builder, signature.args[2], b, b_at)
            limits, floors = [_splat(builder, x, LANES64) for x in (limit, builder.trunc(floor, _I32))]
            c_vectors = []
            for j in range(vector_count):
                at = builder.add(half, _I64(j))
                column = builder.mul(builder.lshr(at, _I64(1)), c_column)
                lane = builder.mul(builder.and_(at, _I64(1)), _I64(LANES64))
                c_vectors.append(builder.add(column, lane))

            def one_k(values):
                a_now, b_now, *acc = values
                columns = [_load(builder, builder.gep(b_now, [_I64(LANES64 * j)]), wide) for j in range(vector_count)]
                rows = [
                    lambda r=r: _splat(builder, builder.load(builder.gep(a_now, [_I64(r)])), LANES64)
                    for r in range(row_count)
                ]
                new = _fma_step(builder, rows, columns, acc)
                a_next = builder.gep(a_now, [_I64(row_count)])
                return [a_next, builder.gep(b_now, [_I64(LANES64 * vector_count)]), *new]

            def one_group(values):
                left, *running = values
                count = _at_most(builder, left, group)
                a_next, b_next, *sums = _repeat(builder, count, running, one_k)
                left = builder.sub(left, count)
                moved = [a_next, builder.gep(b_next, [b_skip])]
                if fast:
                    return [left, *moved, *sums], builder.icmp_signed(">", left, _I64(0))
                rounded = [_round_by_conversion(builder, s, limits, floors) for s in sums]
                return [left, *moved, *rounded], builder.icmp_signed(">", left, _I64(0))

            def before_next_group(values):
                left, a_next, b_next, *sums = values
                # the last sums are rounded as they are stored
                return [left, a_next, b_next, *(_round_by_subtraction(builder, s) for s in sums)] if fast else values

            def one_tile(values):
                a_first, row = values
                targets = _row_pointers(builder, row, row_count, c_places)
                acc = [builder.fpext(value, wide) for value in _load_or_zero(builder, init, targets, narrow)]
                acc = _repeat_while(builder, [k, a_first, b_first, *acc], one_group, before_next_group)[3:]
                for value, target in zip(acc, targets, strict=True):
                    _store(builder, builder.fptrunc(value, narrow), target)
                return [builder.gep(a_first, [a_tile]), builder.gep(row, [_I64(row_count)])]

            a_first = _pointer(context, builder, signature.args[0], a, a_at)
            c_first = _pointer(context, builder, signature.args[4], c, c_at)
            c_places = [builder.gep(c_first, [place]) for place in c_vectors]
            row = _pointer(context, builder, signature.args[6], rows, _I64(0))
            _repeat(builder, tiles, [a_first, row], one_tile)
            return context.get_dummy_value()

        return signature, codegen

    return tile


def _range_step(builder, bits, ranges):
    """Update (largest, smallest nonzero less one, OR) of the magnitudes of int32 lanes, all unsigned."""
    largest, smallest, union = ranges
    magnitude = builder.and_(bits, _constant(bits.type, 0x7FFFFFFF))
    less_one = builder.sub(magnitude, _constant(bits.type, 1))
    largest = builder.select(builder.icmp_unsigned(">", magnitude, largest), magnitude, largest)
    smallest = builder.select(builder.icmp_unsigned("<", less_one, smallest), less_one, smallest)
    return [largest, smallest, builder.or_(union, magnitude)]


def _valid_lanes(builder, valid, lanes):
    bits_type = _vector(_I32, lanes)
    iota = ir.Constant(bits_type, list(range(lanes)))
    return builder.icmp_signed("<", iota, _splat(builder, builder.trunc(valid, _I32), lanes))


def _range_pointers(builder, base):
    return [builder.gep(base, [_I64(8 * i)]) for i in range(3)]


def widen(lanes, parts):
    """Build the conversion of ``lanes`` adjacent carriers per k to float64, in ``parts`` places."""

    @intrinsic
    def convert(typing_context, src, src_at, k, chunk, line, step, valid, dst, dst_at, dst_step, dst_part):
        index = types.int64
        signature = types.void(src, *[index] * 6, dst, *[index] * 3)

        def codegen(context, builder, signature, args):
            _keep_out_of_line(builder)
            src, src_at, k, chunk, line, step, valid, dst, dst_at, dst_step, dst_part = args
            source = _pointer(context, builder, signature.args[0], src, src_at)
            target = _pointer(context, builder, signature.args[7], dst, dst_at)
            mask = _valid_lanes(builder, valid, lanes)
            bits_type = _vector(_I32, lanes)

            def one_k(values):
                source, target = values
                bits = _load(builder, builder.bitcast(source, _I32.as_pointer()), bits_type)
                value = builder.bitcast(builder.select(mask, bits, _constant(bits_type, 0)), _vector(_F32, lanes))
                undefined = ir.Constant(value.type, ir.Undefined)
                for part in range(parts):
                    own = [_I32(part * (lanes // parts) + i) for i in range(lanes // parts)]
                    some = builder.shuffle_vector(value, undefined, ir.Constant(_vector(_I32, len(own)), own))
                    place = builder.gep(target, [builder.mul(dst_part, _I64(part))])
                    _store(builder, builder.fpext(some, _vector(_F64, len(own))), place)
                return [builder.gep(source, [line]), builder.gep(target, [dst_step])]

            def one_chunk(values):
                left, source, target = values
                count = _at_most(builder, left, chunk)
                _, target = _repeat(builder, count, [source, target], one_k)
                left = builder.sub(left, count)
                return [left, builder.gep(source, [step]), target], builder.icmp_signed(">", left, _I64(0))

            _repeat_while(builder, [k, source, target], one_chunk)
            return context.get_dummy_value()

        return signature, codegen

    return convert


def scan(lanes):
    """Build the range of ``lanes`` adjacent float32 of each of some rows of 16."""

    @intrinsic
    def look(typing_context, src, src_at, row_count, valid, ranges):
        index = types.int64
        signature = types.void(src, index, index, index, ranges)

        def codegen(context, builder, signature, args):
            _keep_out_of_line(builder)
            src, src_at, row_count, valid, ranges = args
            bits_type = _vector(_I32, lanes)
            source = _pointer(context, builder, signature.args[0], src, src_at)
            stores = _range_pointers(builder, _pointer(context, builder, signature.args[4], ranges, _I64(0)))
            mask = _valid_lanes(builder, valid, lanes)

            def one_row(values):
                source, *found = values
                bits = _load(builder, builder.bitcast(source, _I32.as_pointer()), bits_type)
                bits = builder.select(mask, bits, _constant(bits_type, 0))
                return [builder.gep(source, [_I64(16)]), *_range_step(builder, bits, found)]

            found = [_load(builder, pointer, bits_type) for pointer in stores]
            found = _repeat(builder, row_count, [source, *found], one_row)[1:]
            for value, pointer in zip(found, stores, strict=True):
                _store(builder, value, pointer)
            return context.get_dummy_value()

        return signature, codegen

    return look
