"""Square transposes in vector registers, as LLVM IR; the inner step of every bulk transform.

L vectors of L lanes are transposed in log2(L) steps. The step with stride s exchanges, for each pair of rows
(i, i + s), the lanes of row i that have bit s set with the lanes of row i + s that have it clear. Every step takes two
registers to two, so the tile never leaves the registers.

Each intrinsic has a Python twin of the same meaning, which runs when the JIT is switched off.
"""

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from npu_sim._jit import JIT_ENABLED, jit


def _vector_at(context, builder, array_type, array_value, index, vector_type):
    """Return a pointer to ``vector_type`` at element ``index`` of a contiguous array."""
    array = context.make_array(array_type)(context, builder, array_value)
    return builder.bitcast(builder.gep(array.data, [index]), vector_type.as_pointer())


def _transpose_rows(builder, rows):
    """Transpose ``L`` vectors of ``L`` lanes, ``L`` a power of two; the module text gives the steps."""
    count = len(rows)
    mask_type = ir.VectorType(ir.IntType(32), count)
    rows = list(rows)
    stride = 1
    while stride < count:
        low = [lane if not lane & stride else count + lane - stride for lane in range(count)]
        high = [lane + stride if not lane & stride else count + lane for lane in range(count)]
        for i in range(count):
            if not i & stride:
                pair = rows[i], rows[i + stride]
                rows[i] = builder.shuffle_vector(*pair, ir.Constant(mask_type, low))
                rows[i + stride] = builder.shuffle_vector(*pair, ir.Constant(mask_type, high))
        stride *= 2
    return rows


def _transpose_intrinsic(lanes):
    """Build the transpose of ``lanes`` x ``lanes`` elements between two arrays of 16- or 32-bit words."""

    @intrinsic
    def transpose(typingctx, src, src_at, src_step, rows, dst, dst_at, dst_step, columns):
        signature = types.void(src, types.intp, types.intp, types.intp, dst, types.intp, types.intp, types.intp)

        def codegen(context, builder, sig, args):
            source, src_first, src_stride, row_count, target, dst_first, dst_stride, column_count = args
            bits = sig.args[0].dtype.bitwidth
            vector = ir.VectorType(ir.IntType(bits), lanes)
            index = src_first.type
            zero = ir.Constant(vector, [0] * lanes)
            loaded = []
            at = src_first
            for i in range(lanes):
                present = builder.icmp_signed("<", ir.Constant(index, i), row_count)
                pointer = _vector_at(context, builder, sig.args[0], source, at, vector)
                loaded.append(builder.select(present, builder.load(pointer, align=bits // 8), zero))
                # rows that are not there are read at the last one that is, so no address leaves the array
                following = builder.icmp_signed("<", ir.Constant(index, i + 1), row_count)
                at = builder.select(following, builder.add(at, src_stride), at)
            at = dst_first
            for j, column in enumerate(_transpose_rows(builder, loaded)):
                pointer = _vector_at(context, builder, sig.args[4], target, at, vector)
                with builder.if_then(builder.icmp_signed("<", ir.Constant(index, j), column_count), likely=True):
                    builder.store(column, pointer, align=bits // 8)
                at = builder.add(at, dst_stride)
            return context.get_dummy_value()

        return signature, codegen

    return transpose


def _copy_intrinsic(lanes):
    """Build the copy of ``lanes`` elements between two arrays of 16- or 32-bit words."""

    @intrinsic
    def copy(typingctx, src, src_at, dst, dst_at):
        signature = types.void(src, types.intp, dst, types.intp)

        def codegen(context, builder, sig, args):
            bits = sig.args[0].dtype.bitwidth
            vector = ir.VectorType(ir.IntType(bits), lanes)
            value = builder.load(_vector_at(context, builder, sig.args[0], args[0], args[1], vector), align=bits // 8)
            builder.store(value, _vector_at(context, builder, sig.args[2], args[2], args[3], vector), align=bits // 8)
            return context.get_dummy_value()

        return signature, codegen

    return copy


def _window(words, at, lanes):
    """Return a view of ``lanes`` words; unlike a plain slice it refuses to leave the array."""
    if not 0 <= at <= words.size - lanes:
        raise IndexError(f"Vector access must be inside [0, {words.size}), not [{at}, {at + lanes})")
    return words[at : at + lanes]


def _transpose_twin(lanes):
    def transpose(src, src_at, src_step, rows, dst, dst_at, dst_step, columns):
        tile = np.zeros((lanes, lanes), src.dtype)
        for i in range(min(rows, lanes)):
            tile[i] = _window(src, src_at + i * src_step, lanes)
        for j in range(min(columns, lanes)):
            _window(dst, dst_at + j * dst_step, lanes)[:] = tile[:, j]

    return transpose


def _copy_twin(lanes):
    def copy(src, src_at, dst, dst_at):
        _window(dst, dst_at, lanes)[:] = _window(src, src_at, lanes)

    return copy


_transpose_of = _transpose_intrinsic if JIT_ENABLED else _transpose_twin
_copy_of = _copy_intrinsic if JIT_ENABLED else _copy_twin
_transpose_16 = _transpose_of(16)
_transpose_8 = _transpose_of(8)
_copy_16 = _copy_of(16)
_copy_8 = _copy_of(8)


@jit
def transpose_tile(lanes, src, src_at, src_step, rows, dst, dst_at, dst_step, columns):
    """Transpose a tile of ``lanes`` x ``lanes`` words; the rows that are not there count as zero.

    ``dst[dst_at + j * dst_step + i] = src[src_at + i * src_step + j]`` for i < ``lanes`` and j < ``columns``. Reads
    ``lanes`` words of each row there is. All reads come before all writes, and the writes in ascending order of j, so
    the result is defined even if they overlap.

    Parameters
    ----------
    lanes : int
        16 or 8.
    src, dst : uint16[:] or uint32[:]
        Contiguous, of the same type.
    src_at, src_step, dst_at, dst_step : int
        Elements.
    rows, columns : int
        Rows of the source and columns to write; at least 1, more than ``lanes`` counts as ``lanes``.
    """
    if lanes == 16:
        _transpose_16(src, src_at, src_step, rows, dst, dst_at, dst_step, columns)
    else:
        _transpose_8(src, src_at, src_step, rows, dst, dst_at, dst_step, columns)


@jit
def copy_lanes(lanes, src, src_at, dst, dst_at):
    """Copy ``lanes`` words, 16 or 8, between arrays of 16- or 32-bit words."""
    if lanes == 16:
        _copy_16(src, src_at, dst, dst_at)
    else:
        _copy_8(src, src_at, dst, dst_at)
